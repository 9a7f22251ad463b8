// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

const lockName = ".lock"

// GetPod returns a pod as it is in the directory now. The error of a pod that
// does not exist is that of the Kubernetes API (apierrors.IsNotFound).
func (d *Dir) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	if _, err := d.scan(); err != nil {
		return nil, err
	}
	if pod := d.Pod(namespace, name); pod != nil {
		return pod, nil
	}
	return nil, d.notFound(namespace, name)
}

// ListPods returns the pods of a namespace in the directory, or with "" of all, that
// have all of these labels.
func (d *Dir) ListPods(_ context.Context, namespace string, having map[string]string) ([]*corev1.Pod, error) {
	if _, err := d.scan(); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	selector := labels.SelectorFromSet(having)
	var pods []*corev1.Pod
	for _, name := range d.index {
		if pod := d.files[name].pod; pod != nil && (namespace == "" || pod.Namespace == namespace) && selector.Matches(labels.Set(pod.Labels)) {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// notFound is the Kubernetes API's error of a pod that does not exist. The pod
// may be in a file that can't be read.
func (d *Dir) notFound(namespace, name string) error {
	return fmt.Errorf("%w%s", apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, namespace+"/"+name), d.ignored())
}

// AnnotatePod replaces the value of one annotation of the pod with this UID by
// what change makes of the present one, "" standing for an annotation that is
// not set. No other program that uses the directory's lock changes the pod
// meanwhile. When the pod is gone, or one of the same name has another UID,
// the error is that of a pod that does not exist and nothing is written.
func (d *Dir) AnnotatePod(ctx context.Context, namespace, name string, uid types.UID, annotation string, change func(old string) (string, error)) (err error) {
	unlock, err := d.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if _, err := d.scan(); err != nil {
		return err
	}
	d.mu.Lock()
	fileName, ok := d.index[Key{"Pod", namespace, name}]
	f := d.files[fileName]
	d.mu.Unlock()
	if !ok || f.pod.UID != uid {
		return d.notFound(namespace, name)
	}
	annotations := f.object.GetAnnotations()
	old := annotations[annotation]
	value, err := change(old)
	if err != nil || value == old {
		return err
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[annotation] = value; value == "" {
		delete(annotations, annotation)
	}
	object := f.object.DeepCopy()
	object.SetAnnotations(annotations)
	return d.write(fileName, object.Object)
}

// write replaces a file; JSON stays JSON, and YAML stays YAML.
func (d *Dir) write(name string, object map[string]any) error {
	path := filepath.Join(d.path, name)
	var data []byte
	var err error
	if filepath.Ext(name) == ".json" {
		data, err = marshalJSON(object)
	} else {
		data, err = yaml.Marshal(object)
	}
	if err == nil {
		err = renameio.WriteFile(path, data, 0o644, renameio.WithTempDir(d.path), renameio.WithExistingPermissions())
	}
	if err != nil {
		return fmt.Errorf("write object file %s: %w", path, err)
	}
	return nil
}

// lock takes the directory's lock, which programs hold while they change an
// object.
func (d *Dir) lock(ctx context.Context) (unlock func() error, err error) {
	f, err := os.OpenFile(filepath.Join(d.path, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock object directory: %w", err)
	}
	tick := time.NewTicker(lockInterval)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			// Closing the file gives the lock back.
			return f.Close, nil
		}
		if errors.Is(err, unix.EWOULDBLOCK) {
			select {
			case <-tick.C:
				continue
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		return nil, errors.Join(fmt.Errorf("lock object directory by %s: %w", f.Name(), err), f.Close())
	}
}

// lockInterval is between tries to get the lock, which is held for milliseconds.
const lockInterval = 2 * time.Millisecond
