// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, dir string) *Dir {
	t.Helper()
	d, err := Open(Config{Path: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

const podYAML = "apiVersion: v1\nkind: Pod\nmetadata: {namespace: ns, name: web, uid: u1, annotations: {a: \"1\"}}\nspec: {nodeName: node1, priority: 7}\nfuture: {x: 3}\n"

func pod(namespace, name, uid string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":%q,"name":%q,"uid":%q}}`, namespace, name, uid)
}

func TestObjectsAreRead(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "web.yaml", podYAML)
	put(t, dir, "n.json", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"node1"}}`)
	put(t, dir, "lan.yml", "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {namespace: ns, name: lan}\nspec: {config: '{}'}\n")
	for name, content := range map[string]string{
		"broken.yaml":     "kind: [",
		"nokind.yaml":     "metadata: {name: x}",
		"noname.yaml":     "apiVersion: v1\nkind: Pod\nmetadata: {namespace: ns, uid: u}",
		"nouid.json":      `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"ns","name":"nouid"}}`,
		"traversal.json":  pod("ns", "../x", "u"),
		".hidden.yaml":    podYAML,
		"lower.yaml":      "apiVersion: v1\nkind: pod\nmetadata: {namespace: ns, name: lower, uid: u}\n",
		"two.yaml":        "---\n" + pod("ns", "one", "u") + "\n---\n" + pod("ns", "two", "u") + "\n",
		"empty.yaml":      "",
		"readme.txt":      "not an object",
		"web-again.yaml":  podYAML,
		"wrongtypes.json": `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"ns","name":"y","uid":"u"},"spec":"x"}`,
	} {
		put(t, dir, name, content)
	}
	d := open(t, dir)
	keys := map[Key]bool{}
	for _, k := range d.keys() {
		keys[k] = true
	}
	want := map[Key]bool{{"Pod", "ns", "web"}: true, {"Node", "", "node1"}: true, {"NetworkAttachmentDefinition", "ns", "lan"}: true}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	if p := d.Pod("ns", "web"); p == nil || p.UID != "u1" || p.Spec.NodeName != "node1" {
		t.Errorf("pod %+v", p)
	}
	if _, err := d.GetPod(context.Background(), "ns", "nouid"); !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "file nouid.json is ignored: fields metadata.namespace and metadata.uid") {
		t.Errorf("the error of a pod in a bad file does not say so: %v", err)
	}
	if d.Pod("ns", "other") != nil || d.Node("other") != nil || d.Object("Pod", "ns", "other") != nil {
		t.Error("objects that do not exist were found")
	}
	if d.Node("node1") == nil || d.Object("NetworkAttachmentDefinition", "ns", "lan") == nil {
		t.Error("node or NAD not found")
	}
}

func TestOpenNeedsADirectory(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	if _, err := Open(Config{Path: missing, Log: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("error %v does not name %s", err, missing)
	}
}

func TestAnnotatePod(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	put(t, dir, "web.yaml", podYAML)
	d := open(t, dir)
	set := func(value string) func(string) (string, error) {
		return func(string) (string, error) { return value, nil }
	}
	if err := d.AnnotatePod(ctx, "ns", "web", "u1", "b", set("2")); err != nil {
		t.Fatal(err)
	}
	p, err := open(t, dir).GetPod(ctx, "ns", "web")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"a": "1", "b": "2"}, p.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	object := open(t, dir).Object("Pod", "ns", "web").Object
	if diff := cmp.Diff(map[string]any{"x": int64(3)}, object["future"]); diff != "" {
		t.Errorf("a field that is not known (-want +got):\n%s", diff)
	}
	if err := d.AnnotatePod(ctx, "ns", "web", "u1", "b", set("")); err != nil {
		t.Fatal(err)
	}
	if p, err = d.GetPod(ctx, "ns", "web"); err != nil || len(p.Annotations) != 1 {
		t.Errorf("annotations %v, error %v", p.Annotations, err)
	}

	before, err := os.Stat(filepath.Join(dir, "web.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.AnnotatePod(ctx, "ns", "web", "u1", "a", set("1")); err != nil {
		t.Fatal(err)
	}
	if err := d.AnnotatePod(ctx, "ns", "web", "u2", "a", set("3")); !apierrors.IsNotFound(err) {
		t.Errorf("another UID: got error %v", err)
	}
	if err := d.AnnotatePod(ctx, "ns", "gone", "u1", "a", set("3")); !apierrors.IsNotFound(err) {
		t.Errorf("another name: got error %v", err)
	}
	after, err := os.Stat(filepath.Join(dir, "web.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if !sameFile(before, after) {
		t.Error("the file was written though nothing was to be changed")
	}
}

func TestNoChangeIsLostBetweenDaemons(t *testing.T) {
	const daemons, rounds = 4, 25
	ctx := context.Background()
	dir := t.TempDir()
	put(t, dir, "web.yaml", podYAML)
	var wg sync.WaitGroup
	for range daemons {
		d := open(t, dir)
		wg.Go(func() {
			for range rounds {
				err := d.AnnotatePod(ctx, "ns", "web", "u1", "count", func(old string) (string, error) {
					n, _ := strconv.Atoi(old)
					return strconv.Itoa(n + 1), nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	p, err := open(t, dir).GetPod(ctx, "ns", "web")
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Annotations["count"]; got != strconv.Itoa(daemons*rounds) {
		t.Errorf("counted to %s, want %d", got, daemons*rounds)
	}
}

func TestRunTellsOfChanges(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "web.json", pod("ns", "web", "u1"))
	d := open(t, dir)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	events := make(chan Key, 100)
	synced := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- d.Run(ctx, func(kind, namespace, name string) { events <- Key{kind, namespace, name} }, func() { close(synced) })
	}()
	expect := func(what string, want Key, holds func() bool) {
		t.Helper()
		for {
			select {
			case got := <-events:
				if got == want && holds() {
					return
				}
			case err := <-done:
				t.Fatalf("%s: Run ended: %v", what, err)
			case <-ctx.Done():
				t.Fatalf("%s: no event", what)
			}
		}
	}
	web, api := Key{"Pod", "ns", "web"}, Key{"Pod", "ns", "api"}
	expect("present at the start", web, func() bool { return true })
	<-synced
	put(t, dir, "api.json", pod("ns", "api", "u2"))
	expect("created", api, func() bool { return d.Pod("ns", "api") != nil })
	if err := d.AnnotatePod(ctx, "ns", "web", "u1", "a", func(string) (string, error) { return "x", nil }); err != nil {
		t.Fatal(err)
	}
	expect("annotated", web, func() bool { return d.Pod("ns", "web").Annotations["a"] == "x" })
	put(t, dir, "web.json", "{ half an ed")
	put(t, dir, "web.json", pod("ns", "web", "u3"))
	expect("replaced", web, func() bool { return d.Pod("ns", "web").UID == "u3" })
	if err := os.Remove(filepath.Join(dir, "api.json")); err != nil {
		t.Fatal(err)
	}
	expect("deleted", api, func() bool { return d.Pod("ns", "api") == nil })
	cancel()
	if err := <-done; err != context.Canceled {
		t.Errorf("Run ended with %v", err)
	}
}

func TestUnreadableFileKeepsItsLastObject(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "web.json", pod("ns", "web", "u1"))
	d := open(t, dir)
	put(t, dir, "web.json", "{ half an ed")
	if p, err := d.GetPod(context.Background(), "ns", "web"); err != nil || p.UID != "u1" {
		t.Errorf("pod %v, error %v", p, err)
	}
}

func TestSecondFileOfAnObjectHasItsTurn(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	put(t, dir, "a.json", pod("ns", "web", "u1"))
	d := open(t, dir)
	put(t, dir, "b.json", pod("ns", "web", "u2"))
	if p, err := d.GetPod(ctx, "ns", "web"); err != nil || p.UID != "u1" {
		t.Errorf("with both: pod %v, error %v", p, err)
	}
	if err := os.Remove(filepath.Join(dir, "a.json")); err != nil {
		t.Fatal(err)
	}
	if p, err := d.GetPod(ctx, "ns", "web"); err != nil || p.UID != "u2" {
		t.Errorf("with the second: pod %v, error %v", p, err)
	}
}

func TestReports(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	put(t, dir, "web.json", pod("ns", "web", "u1"))
	d := open(t, dir)
	if err := d.Report(ctx, "Pod", "ns", "web", map[string]string{"MACConflict": "taken", "BadEntry": "broken"}); err != nil {
		t.Fatal(err)
	}
	got, err := d.PodProblems(ctx, "ns", "web", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"BadEntry: broken", "MACConflict: taken"}, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	for range 2 {
		if err := d.Report(ctx, "Pod", "ns", "web", nil); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := d.PodProblems(ctx, "ns", "web", time.Time{}); err != nil || len(got) != 0 {
		t.Errorf("problems %v, error %v", got, err)
	}
	if err := d.Report(ctx, "Pod", "ns", "gone", map[string]string{"X": "y"}); err != nil {
		t.Fatal(err)
	}
	d.dropStaleReports()
	if got, err := d.PodProblems(ctx, "ns", "gone", time.Time{}); err != nil || len(got) != 0 {
		t.Errorf("problems of an object that is gone: %v, error %v", got, err)
	}
}

func TestWaitingForTheLockEnds(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "web.yaml", podYAML)
	d := open(t, dir)
	unlock, err := d.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err = open(t, dir).AnnotatePod(ctx, "ns", "web", "u1", "a", func(string) (string, error) { return "x", nil })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with the lock held: error %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if err := d.AnnotatePod(t.Context(), "ns", "web", "u1", "a", func(string) (string, error) { return "x", nil }); err != nil {
		t.Error(err)
	}
}

func TestListPods(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "web.json", pod("ns", "web", "u1"))
	put(t, dir, "db.json", strings.Replace(pod("other", "db", "u2"), `"metadata":{`, `"metadata":{"labels":{"app":"db","tier":"back"},`, 1))
	d := open(t, dir)
	for _, test := range []struct {
		namespace string
		having    map[string]string
		want      []string
	}{
		{"", nil, []string{"db", "web"}}, {"ns", nil, []string{"web"}}, {"none", nil, nil},
		{"", map[string]string{"app": "db"}, []string{"db"}}, {"ns", map[string]string{"app": "db"}, nil},
		{"", map[string]string{"app": "db", "tier": "front"}, nil},
	} {
		pods, err := d.ListPods(context.Background(), test.namespace, test.having)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range pods {
			got = append(got, p.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, test.want) {
			t.Errorf("namespace %q: got %v, want %v", test.namespace, got, test.want)
		}
	}
}
