// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Package objects is a directory of Kubernetes objects: what the daemons read
// and annotate where there is no Kubernetes API. Each object is a file of its
// own, in JSON or YAML, of any name that ends in .json, .yaml or .yml. Several
// daemons may share a directory: a change is made under a lock and replaces
// the file as a whole.
package objects

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Config says where the objects are.
type Config struct {
	Path string
	Log  *slog.Logger
}

// Dir is a directory of objects. It is safe for concurrent use. The objects
// that it returns are shared and must not be changed.
type Dir struct {
	path string
	log  *slog.Logger

	mu    sync.Mutex
	files map[string]file  // by file name
	bad   map[string]error // why files can't be read, by file name
	index map[Key]string   // the file that holds an object
}

// Key names an object.
type Key struct{ Kind, Namespace, Name string }

func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Namespace + "/" + k.Name
}

// file is a file as it was when it was read.
type file struct {
	info   fs.FileInfo
	key    Key
	object *unstructured.Unstructured // nil when the file has never been readable
	pod    *corev1.Pod                // set for pods
	node   *corev1.Node               // set for nodes
}

// Open reads the directory, which must exist. A file that can't be read as an
// object is logged and stops no other.
func Open(cfg Config) (*Dir, error) {
	d := &Dir{path: filepath.Clean(cfg.Path), log: cfg.Log, files: map[string]file{}, bad: map[string]error{}, index: map[Key]string{}}
	if _, err := d.scan(); err != nil {
		return nil, err
	}
	d.logBad(nil)
	return d, nil
}

// scan brings what is in memory in line with the directory and returns the
// keys of the objects that came, changed or went.
func (d *Dir) scan() ([]Key, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, fmt.Errorf("object directory: %w", err)
	}
	present := map[string]bool{}
	var changed []Key
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range entries {
		if isObjectFile(e.Name()) && !e.IsDir() {
			present[e.Name()] = true
			changed = append(changed, d.read(e.Name())...)
		}
	}
	for name := range d.files {
		if !present[name] {
			changed = append(changed, d.read(name)...)
		}
	}
	return changed, nil
}

// refresh is scan for one file.
func (d *Dir) refresh(name string) []Key {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.read(name)
}

func isObjectFile(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(name))
}

// read reads one file if it differs from the one in memory. A file that became
// unreadable keeps its last good object: it may be in the middle of an edit.
func (d *Dir) read(name string) []Key {
	old, known := d.files[name]
	info, err := os.Stat(filepath.Join(d.path, name))
	if errors.Is(err, fs.ErrNotExist) {
		if !known {
			return nil
		}
		delete(d.files, name)
		delete(d.bad, name)
		return d.forget(old, name)
	}
	if err == nil && known && sameFile(old.info, info) {
		return nil
	}
	var f file
	if err == nil {
		f, err = load(filepath.Join(d.path, name))
	}
	if err == nil {
		if other, taken := d.index[f.key]; taken && other != name {
			err = fmt.Errorf("%s is in file %s already", f.key, other)
		}
	}
	f.info = info
	if err != nil {
		d.bad[name] = err
		old.info = info
		d.files[name] = old
		return nil
	}
	d.files[name] = f
	delete(d.bad, name)
	changed := []Key{f.key}
	if known && old.object != nil && old.key != f.key {
		changed = append(changed, d.forget(old, name)...)
	}
	d.index[f.key] = name
	return changed
}

// forget takes the object that a file no longer holds out of the index.
func (d *Dir) forget(old file, name string) []Key {
	if old.object == nil || d.index[old.key] != name {
		return nil
	}
	delete(d.index, old.key)
	changed := []Key{old.key}
	// Another file that was refused because of this one has its turn.
	for other, f := range d.files {
		if f.object == nil {
			d.files[other] = file{}
			changed = append(changed, d.read(other)...)
		}
	}
	return changed
}

func sameFile(a, b fs.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

func load(name string) (file, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return file{}, err
	}
	return decode(data)
}

// decode reads one object. Kubernetes gives every pod a UID; without one a pod
// couldn't be told from a later one of the same name.
func decode(data []byte) (file, error) {
	if err := single(data); err != nil {
		return file{}, err
	}
	data, err := yaml.YAMLToJSON(data)
	if err != nil {
		return file{}, err
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(data); err != nil {
		return file{}, err
	}
	f := file{object: object, key: Key{object.GetKind(), object.GetNamespace(), object.GetName()}}
	for name, value := range map[string]string{"metadata.name": f.key.Name, "metadata.namespace": f.key.Namespace} {
		if why := content.IsPathSegmentName(value); len(why) > 0 {
			return file{}, fmt.Errorf("field %s: %q: %s", name, value, strings.Join(why, ", "))
		}
	}
	if f.key.Name == "" {
		return file{}, errors.New("field metadata.name must be set")
	}
	if first, _ := utf8.DecodeRuneInString(f.key.Kind); !unicode.IsUpper(first) {
		return file{}, fmt.Errorf("field kind: %q: must begin with an upper case letter", f.key.Kind)
	}
	switch f.key.Kind {
	case "Pod":
		f.pod = &corev1.Pod{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, f.pod); err != nil {
			return file{}, err
		}
		if f.pod.Namespace == "" || f.pod.UID == "" {
			return file{}, errors.New("fields metadata.namespace and metadata.uid of a Pod must be set")
		}
	case "Node":
		f.node = &corev1.Node{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, f.node); err != nil {
			return file{}, err
		}
	}
	return f, nil
}

// single refuses a file with more than one YAML document: the others would be
// lost when the file is written.
func single(data []byte) error {
	documents := 0
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(document)) > 0 {
			documents++
		}
	}
	if documents != 1 {
		return fmt.Errorf("the file must hold one object, and holds %d", documents)
	}
	return nil
}

// logBad logs the files that can't be read, but for those that were logged
// before with the same error, and returns what is logged by now.
func (d *Dir) logBad(logged map[string]string) map[string]string {
	now := map[string]string{}
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, err := range d.bad {
		if now[name] = err.Error(); now[name] != logged[name] {
			d.log.Error("object file is ignored", "file", filepath.Join(d.path, name), "err", err)
		}
	}
	return now
}

// ignored names the files that can't be read, as part of an error.
func (d *Dir) ignored() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(d.bad)) {
		fmt.Fprintf(&b, "; file %s is ignored: %v", name, d.bad[name])
	}
	return b.String()
}

func (d *Dir) lookup(key Key) (file, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name, ok := d.index[key]
	return d.files[name], ok
}

// Pod returns a pod as it was last read, nil when there is none.
func (d *Dir) Pod(namespace, name string) *corev1.Pod {
	f, _ := d.lookup(Key{"Pod", namespace, name})
	return f.pod
}

// Node returns a node as it was last read, nil when there is none.
func (d *Dir) Node(name string) *corev1.Node {
	f, _ := d.lookup(Key{"Node", "", name})
	return f.node
}

// Object returns an object as it was last read, nil when there is none.
func (d *Dir) Object(kind, namespace, name string) *unstructured.Unstructured {
	f, _ := d.lookup(Key{kind, namespace, name})
	return f.object
}
