// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// qemuScript is the script, in the checkout, that fetches QEMU and a kernel.
const qemuScript = "test/qemu.sh"

// machineModules are the kernel modules of the machine's NIC, in the order to load.
var machineModules = [...]string{"failover", "net_failover", "virtio_net"}

// machineApplets are what an emulated machine has of busybox.
var machineApplets = [...]string{"insmod", "ip", "mkdir", "mount", "sh", "udhcpc", "usleep"}

// machineInit brings the machine up and then is its DHCP client. There is no
// device manager: the NIC's driver is loaded by name.
const machineInit = `#!/bin/sh
export PATH=/bin
mkdir -p /proc /sys /dev
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
for module in %s; do insmod /modules/$module.ko; done
until test -e /sys/class/net/eth0; do usleep 10000; done
ip link set lo up; ip link set eth0 up
exec udhcpc -f -i eth0 -s /script -x hostname:%s
`

// AddMachine is AddGuest for an emulated machine: a PC with Debian's kernel and a NIC
// on a tap. It takes some seconds to start. test/qemu.sh must have been run, since
// there is no network inside a lab; the error says so if it was not.
func (l *Lab) AddMachine(ctx context.Context, pod, ifname string, mac net.HardwareAddr, hostName string) (*Guest, error) {
	qemu, err := cached(qemuScript, "qemu")
	if err != nil {
		return nil, err
	}
	g := &Guest{MAC: mac, lab: l, name: "machine-" + pod}
	image := filepath.Join(l.Dir, g.name+".cpio")
	if err := writeMachine(ctx, image, qemu, hostName); err != nil {
		return nil, fmt.Errorf("image of an emulated machine: %w", err)
	}
	share := filepath.Join(qemu, "root/usr/share")
	g.command = func() *exec.Cmd {
		// It computes all checksums itself: Open vSwitch's userspace datapath
		// forwards frames as they are.
		return l.InNetns(context.Background(), pod, filepath.Join(qemu, "bin/qemu-system-x86_64"),
			"-L", share+"/qemu", "-L", share+"/seabios",
			"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio",
			"-machine", "q35", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "256",
			"-netdev", "tap,id=tap,ifname="+guestTap+",script=no,downscript=no",
			"-device", "virtio-net-pci,netdev=tap,csum=off,romfile=,mac="+mac.String(),
			"-kernel", filepath.Join(qemu, "vmlinuz"), "-initrd", image, "-append", "console=ttyS0 quiet panic=-1 no_timer_check")
	}
	tap := []string{"tuntap", "add", "dev", guestTap, "mode", "tap"}
	return g, l.bridgeGuest(ctx, pod, ifname, mac, tap...)
}

// libraries finds the paths in the output of ldd(1).
var libraries = regexp.MustCompile(`(?m)(?:^\s*|=> )(/\S+)`)

// writeMachine writes the initial RAM disk of an emulated machine, which is all it has.
func writeMachine(ctx context.Context, image, qemu, hostName string) error {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	linked, err := exec.CommandContext(ctx, "ldd", busybox).CombinedOutput()
	if err != nil && !strings.Contains(string(linked), "not a dynamic executable") {
		return fmt.Errorf("libraries of %s: %w: %s", busybox, err, linked)
	}
	files := map[string]string{"bin/busybox": busybox} // by what is there to what is here
	for _, library := range libraries.FindAllStringSubmatch(string(linked), -1) {
		files[library[1]] = library[1]
	}
	for _, module := range machineModules {
		files["modules/"+module+".ko"] = filepath.Join(qemu, "modules", module+".ko")
	}
	root := image + ".root"
	for there, here := range files {
		data, err := os.ReadFile(here)
		if err == nil {
			err = writeBelow(root, there, data)
		}
		if err != nil {
			return err
		}
	}
	for _, applet := range machineApplets {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", applet)); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{"init": fmt.Sprintf(machineInit, strings.Join(machineModules[:], " "), hostName), "script": guestScript} {
		if err := writeBelow(root, name, []byte(text)); err != nil {
			return err
		}
	}
	return pack(ctx, root, image)
}

func writeBelow(root, name string, data []byte) error {
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o755)
}

// pack makes a cpio archive, as the kernel unpacks it, of a folder, and removes that.
func pack(ctx context.Context, root, archive string) error {
	var names bytes.Buffer
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		name, relErr := filepath.Rel(root, path)
		fmt.Fprintln(&names, name)
		if err == nil {
			err = relErr
		}
		return err
	})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "busybox", "cpio", "-o", "-H", "newc")
	cmd.Dir, cmd.Stdin = root, &names
	data, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", cmd, err)
	}
	if err := os.WriteFile(archive, data, 0o644); err != nil {
		return err
	}
	return os.RemoveAll(root)
}
