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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	if err := writeList(path, list); err != nil {
		return fmt.Errorf("report on %s: %w", key, err)
	}
	return nil
}

// PodProblems returns what is wrong with a pod at this moment, each as
// "reason: message".
func (d *Dir) PodProblems(_ context.Context, namespace, name string, _ time.Time) ([]string, error) {
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

// maxEvents is how many events of a pod are kept.
const maxEvents = 10

// Event adds an event to those of a pod, in the folder "events" of the directory;
// the last ten are kept. Nothing is done when the pod is gone or has another UID.
func (d *Dir) Event(ctx context.Context, namespace, name string, uid types.UID, eventType, reason, message string) (err error) {
	unlock, err := d.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	pod, err := d.GetPod(ctx, namespace, name)
	if apierrors.IsNotFound(err) || err == nil && pod.UID != uid {
		return nil
	}
	if err != nil {
		return err
	}
	path := d.eventPath(Key{"Pod", namespace, name})
	list := corev1.EventList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "EventList"}}
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("events of pod %s/%s: %w", namespace, name, err)
	}
	list.Items = append(list.Items, corev1.Event{
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: name, UID: uid},
		Type:           eventType,
		Reason:         reason,
		Message:        message,
		LastTimestamp:  metav1.NewTime(time.Now().UTC().Truncate(time.Second)),
	})
	list.Items = list.Items[max(0, len(list.Items)-maxEvents):]
	return writeList(path, list)
}

// eventPath is beside reportPath: what happened, where that is what is wrong.
func (d *Dir) eventPath(key Key) string {
	return strings.TrimSuffix(d.reportPath(key), ".json") + ".events.json"
}

func writeList(path string, list corev1.EventList) error {
	data, err := marshalJSON(list)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = renameio.WriteFile(path, data, 0o644, renameio.WithTempDir(filepath.Dir(path)))
	}
	if err != nil {
		return fmt.Errorf("write events to %s: %w", path, err)
	}
	return nil
}

// dropStaleReports removes the reports on objects that are gone.
func (d *Dir) dropStaleReports() {
	paths, err := filepath.Glob(filepath.Join(d.path, reportDir, "*.json"))
	if err != nil {
		return
	}
	current := map[string]bool{}
	for _, key := range d.keys() {
		current[d.reportPath(key)], current[d.eventPath(key)] = true, true
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
