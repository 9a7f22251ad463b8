// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

// Package vfio runs tests in an emulated machine with an IOMMU and an SR-IOV
// NIC, where a VF's hand-off between vfio-pci and its NIC driver is real.
package vfio

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/image"
)

// The machine takes two minutes on two slow cores that have nothing else to do.
const (
	testTimeout    = 6 * time.Minute // of each test binary in it
	machineTimeout = 8 * time.Minute // less than "go test" gives by itself
)

func TestEmulatedMachine(t *testing.T) {
	dir := t.TempDir()
	m := machine{
		qemu:  fetchQEMU(t),
		image: filepath.Join(dir, "image"),
		args:  "-- -test.v -test.timeout=" + testTimeout.String(),
	}
	writeImage(t, m.image, filepath.Join(m.qemu, "modules"))

	ctx, cancel := context.WithTimeoutCause(t.Context(), machineTimeout, errors.New("it did not end in time"))
	defer cancel()
	began := time.Now()
	log, err := m.run(ctx, filepath.Join(dir, "console"))
	if err != nil {
		t.Fatalf("%v; its console:\n%s", err, log)
	}
	t.Logf("the machine ran for %v; its console:\n%s", time.Since(began).Round(time.Millisecond), log)
	// A test binary without tests passes, too.
	for _, test := range []string{"TestHandoff", "TestAttach"} {
		if !strings.Contains(log, "\n--- PASS: "+test+" ") {
			t.Errorf("the guest did not run %s", test)
		}
	}
}

// fetchQEMU returns the folder with QEMU and a kernel.
func fetchQEMU(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "../qemu.sh")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	return strings.TrimSpace(string(out))
}

// writeImage writes the guest's initial RAM disk, with all that its tests need.
func writeImage(t *testing.T, file, modules string) {
	t.Helper()
	bin := t.TempDir()
	build(t, "build", bin+"/init", "./guest")
	build(t, "test", bin+"/handoff", "./handoff")
	build(t, "test", bin+"/attach", "./attach")
	build(t, "build", bin+"/product/", "../../cmd/...")
	m := image.New()
	// What dnsmasq looks up, and where ip-netns(8) puts its names.
	m.Add("/etc/passwd", []byte("root:x:0:0::/:/bin/false\n"))
	m.Add("/etc/group", []byte("root:x:0:\n"))
	m.Dir("/var/lib/misc")
	m.Link("/var/run", "/run")
	for _, err := range []error{
		m.Modules(modules, "igb", "igbvf", "pci_stub", "vfio_pci", "vfio_iommu_type1", "virtio_net", "veth", "bridge", "tun"),
		m.Programs("dnsmasq", "ethtool", "ip", "nsenter", "ping", "ovn-controller", "ovn-nbctl", "ovn-northd", "ovn-sbctl",
			"ovs-appctl", "ovs-vsctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool"),
		m.Same("/usr/share/ovn/ovn-nb.ovsschema", "/usr/share/ovn/ovn-sb.ovsschema", "/usr/share/openvswitch/vswitch.ovsschema"),
		m.File("/init", bin+"/init"),
		m.File("/tests/1-handoff", bin+"/handoff"),
		m.File("/tests/2-attach", bin+"/attach"),
		m.Folder("/product", bin+"/product"),
		m.Write(file),
	} {
		if err != nil {
			t.Fatalf("image of the guest: %v", err)
		}
	}
}

// build builds a package for the guest: "build" a program, "test" its tests.
func build(t *testing.T, what, output, pkg string) {
	t.Helper()
	args := []string{what, "-tags", "guest faultinjection", "-ldflags", "-s -w", "-o", output}
	if what == "test" {
		args = append(args, "-c")
	}
	cmd := exec.CommandContext(t.Context(), "go", append(args, pkg)...)
	// The guest's CPU is slow, and it has no C library of its own.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}
