// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/bench/times"
)

// shimRuns is how often each program is started.
const shimRuns = 300

// shim measures what starting the CNI plugin costs: its VERSION does nothing
// else.
func (b *bench) shim(ctx context.Context) error {
	progress("starting the shim and a hello-world program %d times each", shimRuns)
	plugin := b.program("ovn-k8s-cni-overlay")
	var shim, hello times.Times
	for i := range shimRuns + 10 {
		s, err := versionOf(exec.CommandContext(ctx, plugin))
		if err != nil {
			return err
		}
		h, err := timed(exec.CommandContext(ctx, b.hello), "hello, world")
		if err != nil {
			return err
		}
		if i >= 10 { // by now the files are in memory
			shim, hello = append(shim, s), append(hello, h)
		}
	}
	t := table{title: "The CNI plugin"}
	t.add(latency("VERSION", shim, "hello-world program", hello).against("ratio ≤ 3", ""))
	size, err := os.Stat(plugin)
	if err != nil {
		return err
	}
	helloSize, err := os.Stat(b.hello)
	if err != nil {
		return err
	}
	t.add(row{
		figure: "size", got: megabytes(size.Size()), yardstick: "hello-world program " + megabytes(helloSize.Size()),
		ratio: float64(size.Size()) / float64(helloSize.Size()), goal: "< 12 MB",
	})
	return t.print()
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// versionOf is how long a VERSION of the plugin takes.
func versionOf(plugin *exec.Cmd) (time.Duration, error) {
	plugin.Env = append(plugin.Environ(), "CNI_COMMAND=VERSION")
	plugin.Stdin = strings.NewReader(`{"cniVersion": "1.0.0"}`)
	return timed(plugin, "supportedVersions")
}

// timed runs a program, whose output has to contain a text.
func timed(cmd *exec.Cmd, want string) (time.Duration, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	err := cmd.Run()
	took := time.Since(began)
	if err == nil && !strings.Contains(out.String(), want) {
		err = fmt.Errorf("no %q in the output", want)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %s", cmd, err, out.Bytes())
	}
	return took, nil
}
