// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build guest

package handoff

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/vfio"
)

// What a process of this program does in place of the tests, with the arguments
// that follow it.
const (
	roleBorrow  = "borrow"  // JOURNAL, MOMENT, PCI, MAC and whether it is to fail
	roleRecover = "recover" // JOURNAL
)

func TestMain(m *testing.M) {
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 6 && args[0] == roleBorrow:
		err = borrow(args[1], args[2], args[3], args[4], args[5] == "fail")
	case len(args) == 2 && args[0] == roleRecover:
		err = recoverAll(args[1])
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// borrow does a hand-off in which the process is killed.
func borrow(journal, moment, pci, mac string, fail bool) error {
	h, err := vfio.New(vfio.Config{Dir: journal, Log: slog.Default(), Step: func(now string) error {
		if now != moment {
			return nil
		}
		return unix.Kill(unix.Getpid(), unix.SIGKILL)
	}})
	if err != nil {
		return err
	}
	hw, err := net.ParseMAC(mac)
	if err != nil {
		return err
	}
	return h.Borrow(context.Background(), pci, hw, func(context.Context, string) error {
		if fail {
			return errors.New("no lease")
		}
		return nil
	})
}

func recoverAll(journal string) error {
	h, err := vfio.New(vfio.Config{Dir: journal, Log: slog.Default()})
	if err != nil {
		return err
	}
	return h.Recover(context.Background())
}

// TestKilled kills the process before and after each step of a hand-off, and
// has another process recover.
func TestKilled(t *testing.T) {
	// After a step is before the next one, but for these.
	moments := []string{"after set former MAC address back", "after close record"}
	for _, step := range vfio.Steps() {
		moments = append(moments, "before "+step)
	}
	for _, moment := range moments {
		t.Run(moment, func(t *testing.T) { testKilled(t, moment) })
	}
	n := newNetwork(t)
	n.handoff(t, newDevice(t, 0), newHandoffs(t, vfio.Config{}))
}

func testKilled(t *testing.T, moment string) {
	d, h := newDevice(t, 0), newHandoffs(t, vfio.Config{})
	self := func(args ...string) *exec.Cmd {
		cmd := exec.Command("/proc/self/exe", args...)
		cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
		return cmd
	}
	// Only after a failure there is a MAC address to set back.
	outcome := "succeed"
	if strings.HasSuffix(moment, "set former MAC address back") {
		outcome = "fail"
	}
	killed := self(roleBorrow, h.journal, moment, d.pci, d.mac.String(), outcome)
	err := killed.Run()
	status, _ := killed.ProcessState.Sys().(syscall.WaitStatus)
	if !status.Signaled() || status.Signal() != unix.SIGKILL {
		t.Fatalf("the process was not killed: %v", err)
	}
	t.Logf("left behind: %s", d.status())
	if err := self(roleRecover, h.journal).Run(); err != nil {
		t.Fatalf("recover: %v", err)
	}
	// A hand-off that was over has succeeded: the MAC address stays.
	if moment == "after close record" {
		d.mustBeBack(h)
	} else {
		d.mustBeAsBefore(h)
	}
	d.mustOpen()
}
