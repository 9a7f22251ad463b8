// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
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
	ratio  float64 // ours by the bare socket's; 0 for none
	goal   string  // "" for none
	met    bool
	// elsewhere is what was measured of the daemon on another machine.
	elsewhere string
}

// fill has the figures of those that took part in a contest.
func (r *row) fill(took [contestants]times, text func(times) string) {
	for i, t := range took {
		if len(t) > 0 {
			r.got[i] = text(t)
		}
	}
	r.ratio = ratio(took[product].median(), took[bound].median())
}

type table struct {
	rows []row
	note string
}

func (t *table) add(r row) { t.rows = append(t.rows, r) }

func (t *table) print() error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(os.Stdout, "\nLeases, by the calls of the CNI plugin dhcp, or of the engine in the process that measures; %s\n\n", t.note)
	names := columns()
	fmt.Fprintln(w, strings.Join(slices.Concat([]string{"figure"}, names[:], []string{"ours by bare", "goal", "met", "the daemon elsewhere"}), "\t"))
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

// times are the durations of one thing that was done again and again.
type times []time.Duration

// quantile is the time that a share q of them does not exceed.
func (t times) quantile(q float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t))
	return sorted[max(int(math.Ceil(q*float64(len(sorted)))), 1)-1]
}

func (t times) median() time.Duration { return t.quantile(0.5) }

// String has the median and the 95th percentile.
func (t times) String() string {
	return fmt.Sprintf("%.1f / %.1f ms", milliseconds(t.median()), milliseconds(t.quantile(0.95)))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func ratio(got, yardstick time.Duration) float64 {
	if yardstick <= 0 {
		return 0
	}
	return float64(got) / float64(yardstick)
}
