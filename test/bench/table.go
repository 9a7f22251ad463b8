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

// row is one figure.
type row struct {
	figure, got string
	// yardstick is what got is held against, "" for nothing; ratio is got by it.
	yardstick string
	ratio     float64
	// goal is what is aimed at; upstream is what was measured of OVN-Kubernetes
	// on a machine of this kind at another time.
	goal, upstream string
}

// latency is a row of times beside those of a yardstick.
func latency(figure string, got times.Times, name string, yardstick times.Times) row {
	return row{figure: figure, got: percentiles(got), yardstick: name + " " + percentiles(yardstick), ratio: times.Ratio(got.Median(), yardstick.Median())}
}

// against adds what the figure is to be, and OVN-Kubernetes' figure.
func (r row) against(goal, upstream string) row {
	r.goal, r.upstream = goal, upstream
	return r
}

// percentiles are the median and the 95th.
func percentiles(t times.Times) string {
	return fmt.Sprintf("%.2f / %.2f ms", times.Milliseconds(t.Median()), times.Milliseconds(t.Quantile(0.95)))
}

// table is what a part prints when it has come to its end.
type table struct {
	title string
	rows  []row
}

// progress tells people what is being measured.
func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "... "+format+"\n", args...) }

func (t *table) add(rows ...row) { t.rows = append(t.rows, rows...) }

// print leaves out the columns that no row uses.
func (t *table) print() error {
	columns := []struct {
		head string
		cell func(row) string
	}{
		{"figure", func(r row) string { return r.figure }},
		{"p50 / p95", func(r row) string { return r.got }},
		{"yardstick of this run", func(r row) string { return r.yardstick }},
		{"ratio", func(r row) string {
			if r.ratio == 0 {
				return ""
			}
			return fmt.Sprintf("%.2f", r.ratio)
		}},
		{"goal", func(r row) string { return r.goal }},
		{"OVN-Kubernetes*", func(r row) string { return r.upstream }},
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(os.Stdout, "\n%s\n\n", t.title)
	lines := make([][]string, len(t.rows)+1)
	for _, c := range columns {
		cells, used := []string{c.head}, false
		for _, r := range t.rows {
			cells = append(cells, c.cell(r))
			used = used || c.cell(r) != ""
		}
		for i := range cells {
			if used {
				lines[i] = append(lines[i], cells[i])
			}
		}
	}
	for _, line := range lines {
		fmt.Fprintln(w, strings.Join(line, "\t"))
	}
	if slices.ContainsFunc(t.rows, func(r row) bool { return r.upstream != "" }) {
		fmt.Fprintln(w, "\n* measured at another time, on a machine of this kind with 2 processors")
	}
	return w.Flush()
}
