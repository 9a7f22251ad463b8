// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/image"
)

// qemuScript is the script, in the checkout, that fetches QEMU and a kernel.
const qemuScript = "test/qemu.sh"

// machineApplets are what an emulated machine has of busybox.
var machineApplets = [...]string{"cat", "insmod", "ip", "mkdir", "mount", "sh", "udhcpc", "usleep"}

// machineInit brings the machine up and then is its DHCP client. There is no
// device manager: the NIC's driver is loaded by name.
const machineInit = `#!/bin/sh
export PATH=/bin
mkdir -p /proc /sys /dev
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
for module in $(cat /modules/order); do insmod /modules/$module; done
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
	disk := filepath.Join(l.Dir, g.name+".cpio")
	machine, err := machineImage(qemu, hostName)
	if err == nil {
		err = machine.Write(disk)
	}
	if err != nil {
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
			"-kernel", filepath.Join(qemu, "vmlinuz"), "-initrd", disk, "-append", "console=ttyS0 quiet panic=-1 no_timer_check")
	}
	tap := []string{"tuntap", "add", "dev", guestTap, "mode", "tap"}
	return g, l.bridgeGuest(ctx, pod, ifname, mac, tap...)
}

// machineImage is the initial RAM disk of an emulated machine, which is all it has.
func machineImage(qemu, hostName string) (*image.Image, error) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return nil, err
	}
	m := image.New()
	for _, applet := range machineApplets {
		m.Link("/bin/"+applet, busybox)
	}
	m.Add("/init", fmt.Appendf(nil, machineInit, hostName))
	m.Add("/script", []byte(guestScript))
	return m, errors.Join(m.Programs(busybox), m.Modules(filepath.Join(qemu, "modules"), "virtio_net"))
}
