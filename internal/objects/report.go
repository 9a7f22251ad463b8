// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reportDir is the folder below the directory with what is wrong at present:
// one EventList for each object that has problems.
const reportDir = "events"

func marshalJSON(v any) ([]byte, error) {
	data, err := json.MarshalIndent(v, "", "  ")
	return append(data, '\n'), err
}

func (d *Dir) reportPath(key Key) string {
	name := strings.ToLower(key.Kind) + "." + key.Name + ".json"
	if key.Namespace != "" {
		name = strings.ToLower(key.Kind) + "." + key.Namespace + "." + key.Name + ".json"
	}
	return filepath.Join(d.path, reportDir, name)
}

// Report sets what is wrong with an object at this moment, as Events in the
// folder "events" of the directory; problems are messages by reason, and none
// clears the object's report.
func (d *Dir) Report(_ context.Context, kind, namespace, name string, problems map[string]string) error {
	key := Key{kind, namespace, name}
	path := d.reportPath(key)
	if len(problems) == 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("clear the report on %s: %w", key, err)
		}
		return nil
	}
	list := corev1.EventList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "EventList"}}
	object := corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: name}
	if f, ok := d.lookup(key); ok {
		object.UID = f.object.GetUID()
	}
	for _, reason := range slices.Sorted(maps.Keys(problems)) {
		list.Items = append(list.Items, corev1.Event{
			InvolvedObject: object,
			Type:           corev1.EventTypeWarning,
			Reason:         reason,
			Message:        problems[reason],
			LastTimestamp:  metav1.NewTime(time.Now().UTC().Truncate(time.Second)),
		})
	}
	data, err := marshalJSON(list)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = renameio.WriteFile(path, data, 0o644, renameio.WithTempDir(filepath.Dir(path)))
	}
	if err != nil {
		return fmt.Errorf("report on %s: %w", key, err)
	}
	return nil
}

// PodProblems returns what has been reported on a pod, each as
// "reason: message".
func (d *Dir) PodProblems(_ context.Context, namespace, name string) ([]string, error) {
	data, err := os.ReadFile(d.reportPath(Key{"Pod", namespace, name}))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("problems of pod %s/%s: %w", namespace, name, err)
	}
	var list corev1.EventList
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("problems of pod %s/%s: %w", namespace, name, err)
	}
	var problems []string
	for _, e := range list.Items {
		problems = append(problems, e.Reason+": "+e.Message)
	}
	return problems, nil
}

// dropStaleReports removes the reports on objects that are gone.
func (d *Dir) dropStaleReports() {
	paths, err := filepath.Glob(filepath.Join(d.path, reportDir, "*.json"))
	if err != nil {
		return
	}
	current := map[string]bool{}
	for _, key := range d.keys() {
		current[d.reportPath(key)] = true
	}
	for _, path := range paths {
		if current[path] {
			continue
		}
		if err := os.Remove(path); err != nil {
			d.log.Error("report on an object that is gone can't be removed", "file", path, "err", err)
		}
	}
}
