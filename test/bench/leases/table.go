// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/bench/times"
)

// The columns of those that are measured.
const (
	product     = 0
	bound       = 2
	contestants = 3
)

func columns() [contestants]string { return [...]string{"ours", "dhcp daemon", "bare socket"} }

// row is one figure.
type row struct {
	figure string
	got    [contestants]string
	ratio  float64 // ours by the bare socket's, in the middle one of the rounds; 0 for none
	goal   string  // "" for none
	met    bool
	// elsewhere is what was measured of the daemon on another machine.
	elsewhere string
}

// fill has the figures of those that took part in a contest.
func (r *row) fill(took *turns, text func(times.Times) string) {
	for i := range took {
		if t := took.all(i); len(t) > 0 {
			r.got[i] = text(t)
		}
	}
	r.ratio = took.ratio()
}

type table struct {
	rows []row
	note string
}

func (t *table) add(r row) { t.rows = append(t.rows, r) }

func (t *table) print() error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(os.Stdout, "\nLeases, by the calls of the CNI plugin dhcp, or of the engine in the process that measures; %s. The goals are this project's own; elsewhere is another machine's figure for the other daemon, or for the bare socket where it says so.\n\n", t.note)
	names := columns()
	fmt.Fprintln(w, strings.Join(slices.Concat([]string{"figure"}, names[:], []string{"ours by bare, in the middle round", "goal", "met", "elsewhere"}), "\t"))
	for _, r := range t.rows {
		by, met := "", ""
		if r.ratio > 0 {
			by = fmt.Sprintf("%.2f", r.ratio)
		}
		if r.goal != "" {
			met = map[bool]string{true: "yes", false: "no"}[r.met]
		}
		fmt.Fprintln(w, strings.Join(slices.Concat([]string{r.figure}, r.got[:], []string{by, r.goal, met, r.elsewhere}), "\t"))
	}
	return w.Flush()
}

// progress tells people what is being measured.
func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "... "+format+"\n", args...) }

// percentiles are the median and the 95th.
func percentiles(t times.Times) string {
	return fmt.Sprintf("%.1f / %.1f ms", times.Milliseconds(t.Median()), times.Milliseconds(t.Quantile(0.95)))
}
