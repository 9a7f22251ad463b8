// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits to what an object can cost.
const (
	// maxElements is how many rules, peers, prefixes and ports an object may
	// have together. Prefixes count as they are in a match, without exceptions.
	maxElements = 10000
	// maxErrors is how many errors are reported; others are counted.
	maxErrors = 8
	// maxShown is how many bytes of a wrong value, and of what is quoted about
	// it, are shown.
	maxShown = 200
)

// reader takes an object apart, and notes what is wrong with it. What it does
// not know is wrong too: the rest could allow more than is meant.
type reader struct {
	errs     []string
	more     int // errors that were not noted
	elements int
}

// errors is how many there are.
func (r *reader) errors() int { return len(r.errs) + r.more }

func (r *reader) failed() bool { return r.errors() > 0 }

// err is what was wrong, nil for nothing.
func (r *reader) err() error {
	if !r.failed() {
		return nil
	}
	text := strings.Join(r.errs, "; ")
	if r.more > 0 {
		text += fmt.Sprintf("; and %d more", r.more)
	}
	return errors.New(text)
}

func (r *reader) note(at *field.Path, value any, why string) {
	if len(r.errs) == maxErrors {
		r.more++
		return
	}
	shown := fmt.Sprint(value)
	if s, ok := value.(string); ok {
		shown = strconv.Quote(s)
	}
	r.errs = append(r.errs, fmt.Sprintf("%s: %s: %s", shorten(at.String()), shorten(shown), shorten(why)))
}

func shorten(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "…"
}

// count adds elements, and reports whether the object may still have them.
func (r *reader) count(at *field.Path, n int) bool {
	before := r.elements
	r.elements += n
	if r.elements <= maxElements {
		return true
	}
	if before <= maxElements {
		r.note(at, r.elements, fmt.Sprintf("rules, peers, address prefixes and ports can be %d at most", maxElements))
	}
	return false
}

// child is a field that an object may have, and its reader.
type child struct {
	name string
	read func(at *field.Path, v any)
}

// fields calls the readers of the fields that are there and not null, in the
// order of known.
func (r *reader) fields(at *field.Path, v any, known []child) {
	if v == nil {
		return
	}
	object, ok := v.(map[string]any)
	if !ok {
		r.note(at, v, "must be an object")
		return
	}
	names := map[string]bool{}
	for _, c := range known {
		names[c.name] = true
		if object[c.name] != nil {
			c.read(at.Child(c.name), object[c.name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if object[name] != nil && !names[name] {
			r.note(at.Child(name), object[name], "is not a field that can be used here")
		}
	}
}

// list calls read for each element.
func (r *reader) list(at *field.Path, v any, read func(at *field.Path, v any)) {
	elements, ok := v.([]any)
	if !ok {
		r.note(at, v, "must be a list")
		return
	}
	if !r.count(at, len(elements)) {
		return
	}
	for i, e := range elements {
		read(at.Index(i), e)
	}
}

// text stores a string.
func (r *reader) text(into *string) func(at *field.Path, v any) {
	return func(at *field.Path, v any) {
		s, ok := v.(string)
		if !ok {
			r.note(at, v, "must be a string")
			return
		}
		*into = s
	}
}

// number stores a whole number in these limits.
func (r *reader) number(into *int, lowest, highest int) func(at *field.Path, v any) {
	return func(at *field.Path, v any) {
		n, ok := v.(int64)
		if f, isFloat := v.(float64); isFloat {
			n, ok = int64(f), f == math.Trunc(f) && math.Abs(f) < 1<<53
		}
		if !ok || n < int64(lowest) || n > int64(highest) {
			r.note(at, v, fmt.Sprintf("must be a number from %d to %d", lowest, highest))
			return
		}
		*into = int(n)
	}
}

// identity checks what an object is, and its name, which goes into ids.
func (r *reader) identity(u *unstructured.Unstructured, kind string, versions ...string) {
	if !slices.Contains(versions, u.GetAPIVersion()) {
		r.note(field.NewPath("apiVersion"), u.GetAPIVersion(), "must be "+strings.Join(versions, " or "))
	}
	if u.GetKind() != kind {
		r.note(field.NewPath("kind"), u.GetKind(), "must be "+kind)
	}
	metadata := field.NewPath("metadata")
	for _, problem := range validation.IsDNS1123Label(u.GetNamespace()) {
		r.note(metadata.Child("namespace"), u.GetNamespace(), problem)
	}
	for _, problem := range validation.IsDNS1123Subdomain(u.GetName()) {
		r.note(metadata.Child("name"), u.GetName(), problem)
	}
}
