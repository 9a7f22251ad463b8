// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/bench/times"
)

// step is one step of the ADDs.
type step struct {
	name  string
	times times.Times
}

// steps are what the node daemon's log tells about the steps of some ADDs.
func (c *containers) steps(adds calls) (steps []step, rest times.Times, err error) {
	log, err := os.ReadFile(filepath.Join(c.Lab.Nodes[0].Dir, "node.log"))
	if err != nil {
		return nil, nil, err
	}
	return stepsOf(adds, string(log))
}

// stepsOf are the steps of some ADDs in their order, and the time of each ADD
// that is not in any step.
func stepsOf(adds calls, log string) (steps []step, rest times.Times, err error) {
	line := regexp.MustCompile(`msg="step of an ADD" step="?(.+?)"? took=(\S+) sandbox=(\S+)`)
	inSteps := calls{}
	for _, m := range line.FindAllStringSubmatch(log, -1) {
		name, sandbox := m[1], m[3]
		if _, wanted := adds[sandbox]; !wanted {
			continue
		}
		took, err := time.ParseDuration(m[2])
		if err != nil {
			return nil, nil, fmt.Errorf("log of the node daemon: %w", err)
		}
		i := slices.IndexFunc(steps, func(s step) bool { return s.name == name })
		if i < 0 {
			i, steps = len(steps), append(steps, step{name: name})
		}
		steps[i].times = append(steps[i].times, took)
		inSteps[sandbox] += took
	}
	for sandbox, took := range adds {
		if _, known := inSteps[sandbox]; !known {
			return nil, nil, fmt.Errorf("the node daemon's log does not tell of the steps of the ADD of %s", sandbox)
		}
		rest = append(rest, took-inSteps[sandbox])
	}
	return steps, rest, nil
}
