//go:build lab

// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }

// within is how long anything that a test awaits may take.
const within = 30 * time.Second

func nads() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "k8s.cni.cncf.io", Version: "v1", Resource: "network-attachment-definitions"}
}

func nad(namespace, name, config string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1",
		"kind":       "NetworkAttachmentDefinition",
		"metadata":   map[string]any{"namespace": namespace, "name": name},
		"spec":       map[string]any{"config": config},
	}}
}

func pod(namespace, name, node string, annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func createPod(t *testing.T, c *ControlPlane, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	created, err := c.Client.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{})
	ok(t, err)
	return created
}

func getPod(t *testing.T, c *ControlPlane, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	got, err := c.Client.CoreV1().Pods(p.Namespace).Get(t.Context(), p.Name, metav1.GetOptions{})
	ok(t, err)
	return got
}

func createNAD(t *testing.T, c *ControlPlane, n *unstructured.Unstructured) {
	t.Helper()
	_, err := c.Dynamic.Resource(nads()).Namespace(n.GetNamespace()).Create(t.Context(), n, metav1.CreateOptions{})
	ok(t, err)
}

// eventually awaits that try has no error.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	deadline := time.After(within)
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for err := try(); err != nil; err = try() {
		select {
		case <-deadline:
			t.Fatalf("after %v: %v", within, err)
		case <-tick.C:
		}
	}
}

// next returns the next event of a watch, and false when it has ended.
func next(t *testing.T, w watch.Interface) (watch.Event, bool) {
	t.Helper()
	select {
	case e, more := <-w.ResultChan():
		return e, more
	case <-time.After(within):
		t.Fatalf("the watch has told nothing for %v", within)
		return watch.Event{}, false
	}
}

// watchPods watches the pods of a namespace from now on.
func watchPods(t *testing.T, c kubernetes.Interface, namespace string) watch.Interface {
	t.Helper()
	pods := c.CoreV1().Pods(namespace)
	list, err := pods.List(t.Context(), metav1.ListOptions{})
	ok(t, err)
	w, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	ok(t, err)
	t.Cleanup(w.Stop)
	return w
}

// annotate sets an annotation of a pod by a JSON patch that tests its UID.
func annotate(ctx context.Context, c kubernetes.Interface, p *corev1.Pod, uid types.UID, value string) error {
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": uid},
		{"op": "add", "path": "/metadata/annotations/example.com~1note", "value": value},
	})
	if err != nil {
		return err
	}
	_, err = c.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	return err
}

func TestControlPlane(t *testing.T) {
	ctx := t.Context()
	c := New(t, Options{})
	ok(t, c.InstallCRDs(ctx))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
	_, err := c.Client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	ok(t, err)
	p := createPod(t, c, pod("blue", "p1", "node1", map[string]string{"k8s.v1.cni.cncf.io/networks": "lan"}))

	t.Run("network", func(t *testing.T) {
		blue := c.Dynamic.Resource(nads()).Namespace("blue")
		createNAD(t, c, nad("blue", "lan", `{"type":"x"}`))
		lan, err := blue.Get(ctx, "lan", metav1.GetOptions{})
		ok(t, err)
		if config, _, err := unstructured.NestedString(lan.Object, "spec", "config"); err != nil || config != `{"type":"x"}` {
			t.Errorf("spec.config is %q (%v)", config, err)
		}
		bad := nad("blue", "bad", "")
		bad.Object["spec"] = map[string]any{"config": int64(1)}
		if _, err := blue.Create(ctx, bad, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("a config that is a number: %v, want that it is invalid", err)
		}
	})

	t.Run("annotation", func(t *testing.T) {
		w := watchPods(t, c.Client, "blue")
		if err := annotate(ctx, c.Client, p, "another", "no"); !apierrors.IsInvalid(err) {
			t.Errorf("a patch whose test fails: %v, want that it is invalid", err)
		}
		ok(t, annotate(ctx, c.Client, p, p.UID, "yes"))
		e, _ := next(t, w)
		got, isPod := e.Object.(*corev1.Pod)
		if !isPod || e.Type != watch.Modified || got.Annotations["example.com/note"] != "yes" {
			t.Errorf("the first event is %v %v", e.Type, e.Object)
		}
	})

	t.Run("rights", func(t *testing.T) { testRights(t, c, p) })
	t.Run("restart", func(t *testing.T) { testRestart(t, c, p) })
}

// testRights has a service account that may read pods of one namespace.
func testRights(t *testing.T, c *ControlPlane, p *corev1.Pod) {
	ctx := t.Context()
	config, err := c.Config("system:serviceaccount:blue:reader", "system:serviceaccounts")
	ok(t, err)
	reader, err := kubernetes.NewForConfig(config)
	ok(t, err)
	dynamicReader, err := dynamic.NewForConfig(config)
	ok(t, err)
	get := func(namespace, name string) error {
		_, err := reader.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		return err
	}
	if err := get("blue", "p1"); !apierrors.IsForbidden(err) {
		t.Errorf("without a role: %v, want that it is forbidden", err)
	}
	_, err = c.Client.RbacV1().Roles("blue").Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}},
	}, metav1.CreateOptions{})
	ok(t, err)
	_, err = c.Client.RbacV1().RoleBindings("blue").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "blue", Name: "reader"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
	}, metav1.CreateOptions{})
	ok(t, err)
	eventually(t, func() error { return get("blue", "p1") })

	_, listErr := dynamicReader.Resource(nads()).Namespace("blue").List(ctx, metav1.ListOptions{})
	for what, err := range map[string]error{
		"get in another namespace": get("default", "p1"),
		"patch":                    annotate(ctx, reader, p, p.UID, "mine"),
		"list networks":            listErr,
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want that it is forbidden", what, err)
		}
	}
}

func testRestart(t *testing.T, c *ControlPlane, p *corev1.Pod) {
	ctx := t.Context()
	pods := c.Client.CoreV1().Pods(p.Namespace)
	before := getPod(t, c, p)
	w := watchPods(t, c.Client, "blue")
	ok(t, c.StopAPIServer())
	if e, more := next(t, w); more {
		t.Errorf("the watch has told %v instead of its end", e)
	}
	if _, err := pods.Get(ctx, p.Name, metav1.GetOptions{}); err == nil {
		t.Error("the stopped server has answered")
	}
	ok(t, c.StartAPIServer(ctx))
	after := getPod(t, c, p)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the pod is another after the restart (-before +after):\n%s", diff)
	}
	w = watchPods(t, c.Client, "blue")
	ok(t, annotate(ctx, c.Client, p, p.UID, "again"))
	if e, _ := next(t, w); e.Type != watch.Modified {
		t.Errorf("the first event after the restart is %v", e)
	}
}

// surroundings are what a control plane could leave behind.
func surroundings(t *testing.T) map[string]string {
	t.Helper()
	var pids, links, addresses []string
	entries, err := os.ReadDir("/proc")
	ok(t, err)
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, e.Name())
		}
	}
	list, err := netlink.LinkList()
	ok(t, err)
	for _, l := range list {
		links = append(links, l.Attrs().Name)
	}
	local, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	ok(t, err)
	for _, a := range local {
		addresses = append(addresses, a.String())
	}
	directories, err := filepath.Glob("/run/kube*")
	ok(t, err)
	return map[string]string{
		"processes":   strings.Join(pids, " "),
		"devices":     strings.Join(links, " "),
		"addresses":   strings.Join(addresses, " "),
		"directories": strings.Join(directories, " "),
	}
}

func TestStopLeavesNothing(t *testing.T) {
	before := surroundings(t)
	one, err := Start(t.Context(), Options{})
	ok(t, err)
	dir := filepath.Join(t.TempDir(), "below", "kube")
	two, err := Start(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Error(err)
	} else {
		if one.Endpoint == two.Endpoint {
			t.Errorf("both are at %s", one.Endpoint)
		}
		if err := two.Stop(); err != nil {
			t.Error(err)
		}
	}
	if err := one.ready(t.Context()); err != nil {
		t.Errorf("the first one does not outlive the second: %v", err)
	}
	if err := one.Stop(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(before, surroundings(t)); diff != "" {
		t.Errorf("left behind (-before +after):\n%s", diff)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there (%v)", dir, err)
	}
}

func TestServerEndsByItself(t *testing.T) {
	c, err := Start(t.Context(), Options{})
	ok(t, err)
	c.etcd.Cmd.Process.Kill()
	<-c.etcd.Ended
	if err := c.Stop(); err == nil || !strings.Contains(err.Error(), "etcd ended by itself (signal: killed)") {
		t.Errorf("Stop returns %v, want that etcd ended by itself", err)
	}
}

func TestMissingPrograms(t *testing.T) {
	before := surroundings(t)
	if _, err := Start(t.Context(), Options{Bin: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "there is no etcd in") {
		t.Errorf("an empty folder: %v", err)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	_, err := Start(t.Context(), Options{})
	if err == nil || !strings.Contains(err.Error(), "run test/tools/build.sh") || strings.Contains(err.Error(), "\n") {
		t.Errorf("an empty cache: %v, want one line that says what to run", err)
	}
	if diff := cmp.Diff(before, surroundings(t)); diff != "" {
		t.Errorf("left behind (-before +after):\n%s", diff)
	}
}

func TestMultus(t *testing.T) {
	ctx := t.Context()
	l := lab.New(t, lab.Options{})
	node := l.Nodes[0]
	c := New(t, Options{})
	ok(t, c.InstallCRDs(ctx))
	ok(t, c.Connect(ctx, node))
	kubeconfig, err := c.Kubeconfig("multus", "system:masters")
	ok(t, err)
	m, err := c.NewMultus(node, kubeconfig, t.TempDir())
	ok(t, err)

	config := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"lan","type":"bridge","bridge":"lan0","ipam":{
		"type":"host-local","subnet":"10.9.9.0/24","rangeStart":"10.9.9.9","dataDir":%q}}`, t.TempDir())
	createNAD(t, c, nad("default", "lan", config))
	p := createPod(t, c, pod("default", "p1", node.Name, map[string]string{"k8s.v1.cni.cncf.io/networks": "lan"}))
	netns, err := l.AddNetns("p1")
	ok(t, err)
	sandbox := Sandbox{Pod: p, ContainerID: "sandbox1", Netns: netns}

	before, err := node.Links()
	ok(t, err)
	result, err := m.Add(ctx, sandbox)
	ok(t, err)
	if len(result.IPs) != 1 || !strings.HasPrefix(result.IPs[0].Address.String(), "10.244.0.") {
		t.Errorf("the default network's result is %v", result)
	}
	p = getPod(t, c, p)
	var status []struct {
		Name, Interface string
		IPs             []string
	}
	if err := json.Unmarshal([]byte(p.Annotations["k8s.v1.cni.cncf.io/network-status"]), &status); err != nil {
		t.Fatalf("%v in the annotations %v", err, p.Annotations)
	}
	if len(status) != 2 || status[1].Name != "default/lan" || status[1].Interface != "net1" || !cmp.Equal(status[1].IPs, []string{"10.9.9.9"}) {
		t.Errorf("network-status is %+v", status)
	}
	out, err := l.InNetns(ctx, "p1", "ip", "-brief", "address", "show", "dev", "net1").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "10.9.9.9/24") {
		t.Errorf("net1 in the pod is %s (%v)", out, err)
	}
	if err := m.Del(ctx, sandbox); err != nil {
		t.Error(err)
	}
	after, err := node.Links()
	ok(t, err)
	before = append(before, "cni0", "lan0") // the plugin leaves its bridges
	slices.Sort(before)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("devices of the node (-want +got):\n%s", diff)
	}
	another := *p
	another.UID = "another"
	if _, err := m.Add(ctx, Sandbox{Pod: &another, ContainerID: "sandbox2", Netns: sandbox.Netns}); err == nil || !strings.Contains(err.Error(), `expected pod UID "another"`) {
		t.Errorf("ADD for another pod of that name: %v, want that it is refused", err)
	}
}
