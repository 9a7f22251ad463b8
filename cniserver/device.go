// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/cniserver/wire"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/vfio"
)

// device is the virtual function of an attachment, with what is to be known to
// give it back as it was.
type device struct {
	PCI string `json:"pci"`
	// PF is the interface of its physical function, and Index its number there.
	PF    string `json:"pf,omitempty"`
	Index int    `json:"index"`
	// Passed says that a guest has it, by vfio-pci; else the pod has its interface.
	Passed bool `json:"passed,omitempty"`
	// Netdev is the name of its interface on the node.
	Netdev string `json:"netdev,omitempty"`
	// Parent is what the kernel calls the device that the interface is of; empty
	// while that is not known, and for a kernel that doesn't say.
	Parent string `json:"parent,omitempty"`
	// MAC and MTU are those of its interface, and AdminMAC is the one that was set
	// for it by way of its physical function.
	MAC      string `json:"mac,omitempty"`
	AdminMAC string `json:"admin_mac,omitempty"`
	MTU      int    `json:"mtu,omitempty"`
}

func newDevice(vf *vfio.Device) *device {
	return &device{PCI: vf.Address, PF: vf.PFNetdev, Index: vf.VFIndex, Passed: vf.Driver == vfio.DriverVFIO, Netdev: vf.Netdev}
}

// findDevice reads what the node knows of a call's device; nil if it has none.
func (s *Server) findDevice(ctx context.Context, deviceID string, info wire.DeviceInfo) (*vfio.Device, error) {
	if info.PCI != nil && info.PCI.Address != "" && info.PCI.Address != deviceID {
		return nil, fail(types.ErrInvalidNetworkConfig, fmt.Errorf("deviceID: Invalid value: %q: the device's information says %q", deviceID, info.PCI.Address))
	}
	if deviceID == "" {
		return nil, nil
	}
	d, err := s.devices.Device(ctx, deviceID)
	switch {
	case ctx.Err() != nil:
		return nil, err
	case err != nil:
		return nil, fail(types.ErrInvalidNetworkConfig, fmt.Errorf("deviceID: Invalid value: %q: %w", deviceID, err))
	}
	if d.Netdev == "" {
		// It can still be in a pod that the runtime has yet to delete.
		for _, a := range s.holders(deviceID) {
			d.Netdev = cmp.Or(a.Device.Netdev, d.Netdev)
		}
	}
	return &d, nil
}

// representor is the interface on the node that stands for a virtual function.
func (s *Server) representor(pci string, info wire.DeviceInfo) (string, error) {
	name, ok := s.cfg.Representors[pci]
	if !ok && info.PCI != nil {
		name = info.PCI.Representor
	}
	var err error
	if name == "" {
		name, err = s.devices.Representor(pci)
	}
	if err == nil {
		_, err = netlink.LinkByName(name)
	}
	if err != nil {
		return "", fail(types.ErrInvalidNetworkConfig, fmt.Errorf("deviceID: Invalid value: %q: its representor %q: %w", pci, name, err))
	}
	return name, nil
}

// holders are the attachments that have or had a device, by their records.
func (s *Server) holders(pci string) []attachment {
	var holders []attachment
	for _, a := range s.records.All() {
		if a.Device != nil && a.Device.PCI == pci {
			holders = append(holders, a)
		}
	}
	return holders
}

// deviceTaken reports whether a newer attachment has taken an attachment's device.
func (s *Server) deviceTaken(a attachment) bool {
	return slices.ContainsFunc(s.holders(a.Device.PCI), func(other attachment) bool {
		return other.Sequence > a.Sequence && other.State != stateLeaving && (other.Device.Passed || other.Device.MAC != "")
	})
}

// evict has the older attachments of a device let go of it. A configuration can name
// any device of the node: one that another pod has in use is not given away.
func (s *Server) evict(ctx context.Context, a attachment) error {
	for _, older := range s.holders(a.Device.PCI) {
		if older.Sequence >= a.Sequence {
			continue
		}
		over, err := s.isOver(ctx, older, a)
		switch {
		case err != nil:
			return err
		case !over:
			return fail(types.ErrInvalidNetworkConfig, fmt.Errorf("deviceID: Invalid value: %q: pod %s/%s has it", a.Device.PCI, older.Namespace, older.Pod))
		}
		// A call that still works on that one has to end first.
		s.locks.end(older.key())
		unlock, err := s.locks.lock(ctx, nil, older.key())
		if err == nil {
			err = s.reclaim(older)
			unlock()
		}
		if err != nil {
			return fmt.Errorf("device %s, from the pod that had it: %w", a.Device.PCI, err)
		}
	}
	return nil
}

// isOver reports whether an attachment has no use for its device any more, if only its
// DEL is still to come: it is of an earlier sandbox of a's pod, or of a pod that has ended.
func (s *Server) isOver(ctx context.Context, older, a attachment) (bool, error) {
	switch {
	case older.State == stateLeaving:
		return true, nil
	case older.UID == a.UID:
		return older.ContainerID != a.ContainerID, nil
	}
	pod, err := s.cfg.Pods.GetPod(ctx, older.Namespace, older.Pod)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("pod %s/%s, which had device %s: %w", older.Namespace, older.Pod, a.Device.PCI, err)
	}
	return pod.UID != older.UID || !podnet.Live(pod), nil
}

// plugDevice puts a virtual function's interface into the pod, if it is to have it,
// and sets up the representor.
func (s *Server) plugDevice(ctx context.Context, a *adding) error {
	if err := s.evict(ctx, a.attachment); err != nil {
		return err
	}
	if err := setUp(&netlink.Handle{}, a.HostIfName); err != nil {
		return err
	}
	if !a.Device.Passed {
		return s.plugNetdev(a)
	}
	// Its MAC address is set when OVN has taken the port.
	if err := a.Device.rememberAdminMAC(); err != nil {
		return fmt.Errorf("device %s: %w", a.Device.PCI, err)
	}
	return s.records.Put(a.key(), a.attachment)
}

func (s *Server) plugNetdev(a *adding) error {
	link, err := netlink.LinkByName(a.Device.Netdev)
	if err == nil {
		err = a.Device.remember(link)
	}
	if err == nil {
		err = s.records.Put(a.key(), a.attachment)
	}
	if err == nil {
		err = moveIn(link, a)
	}
	if err != nil {
		return fmt.Errorf("interface %s of device %s: %w", a.Device.Netdev, a.Device.PCI, err)
	}
	return nil
}

// remember notes how an interface of the device is before it is changed.
func (d *device) remember(link netlink.Link) error {
	attrs := link.Attrs()
	d.Parent, d.MAC, d.MTU = attrs.ParentDev, attrs.HardwareAddr.String(), attrs.MTU
	return d.rememberAdminMAC()
}

// rememberAdminMAC notes the MAC address that was set by way of the physical function,
// if that is on the node.
func (d *device) rememberAdminMAC() error {
	if d.PF == "" {
		return nil
	}
	mac, err := vfio.Kernel{}.VFMAC(d.PF, d.Index)
	if err == nil {
		d.AdminMAC = mac.String()
	}
	return err
}

// setAdminMAC sets the device's MAC address by way of its physical function, if that is
// on the node. Most allow no other one on the interface then.
func (d *device) setAdminMAC(mac net.HardwareAddr) error {
	if d.PF == "" {
		return nil
	}
	return vfio.Kernel{}.SetVFMAC(d.PF, d.Index, mac)
}

// setMAC sets the MAC address of a device's interface.
func setMAC(link netlink.Link, mac net.HardwareAddr) error {
	err := netlink.LinkSetHardwareAddr(link, mac)
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		// Physical functions of igb let their virtual ones set no address at all
		// then, not even that one.
		err = learnMAC(link, mac)
	}
	return err
}

// learnMAC has an interface that is down take the MAC address that it has by way of
// its physical function: it asks for it when it is reset, as by going down.
func learnMAC(link netlink.Link, mac net.HardwareAddr) error {
	err := inOrder(
		func() error { return netlink.LinkSetUp(link) },
		func() error { return netlink.LinkSetDown(link) },
	)
	if err != nil {
		return err
	}
	now, err := netlink.LinkByIndex(link.Attrs().Index)
	if err == nil && now.Attrs().HardwareAddr.String() != mac.String() {
		err = fmt.Errorf("MAC address %s can't be set to %s", now.Attrs().HardwareAddr, mac)
	}
	return err
}

// transitName is what a device's interface is called while it is changed: no other
// one has that name, on the node or in the pod.
func transitName(pci string) string {
	h := fnv.New32a()
	h.Write([]byte(pci))
	return fmt.Sprintf("vf%08x", h.Sum32())
}

// inOrder does one thing after another until one fails.
func inOrder(things ...func() error) error {
	for _, do := range things {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// moveIn moves an interface into the pod, with the attachment's name, MAC address
// and MTU.
func moveIn(link netlink.Link, a *adding) error {
	name := transitName(a.Device.PCI)
	return inOrder(
		func() error { return netlink.LinkSetDown(link) },
		func() error { return netlink.LinkSetName(link, name) },
		func() error { return a.Device.setAdminMAC(a.mac) },
		func() error { return setMAC(link, a.mac) },
		func() error { return netlink.LinkSetMTU(link, a.MTU) },
		func() error { return netlink.LinkSetNsFd(link, int(a.netns.Fd())) },
		func() (err error) {
			if link, err = a.netns.LinkByName(name); err != nil {
				return err
			}
			return a.netns.LinkSetName(link, a.IfName)
		},
		func() error { return a.setUpInPod() },
	)
}

// unplugDevice gives a virtual function's interface back to the node, unless a
// newer attachment has the device.
func (s *Server) unplugDevice(a attachment) error {
	if s.deviceTaken(a) {
		return nil
	}
	return s.reclaim(a)
}

// reclaim brings the interface of an attachment's device back to the node, with the
// name, MAC address and MTU that it had there. One that has its name is back.
func (s *Server) reclaim(a attachment) error {
	if a.Device.Passed {
		if err := a.resetAdminMAC(); err != nil {
			// Not every driver lets it, and who has the device next sets its own.
			s.log.Warn("device keeps the MAC address of its guest", "pci", a.Device.PCI, "mac", a.MAC, "err", err)
		}
		return nil
	}
	if a.Device.MAC == "" {
		return nil // nothing has been changed
	}
	if err := moveOut(a); err != nil {
		return fmt.Errorf("interface %s of device %s: %w", a.IfName, a.Device.PCI, err)
	}
	link, err := a.Device.find(netlink.LinkList, transitName(a.Device.PCI))
	if err != nil || link == nil || link.Attrs().Name == a.Device.Netdev {
		return err
	}
	if err := a.restore(link, s.log); err != nil {
		return fmt.Errorf("interface %s of device %s: %w", a.Device.Netdev, a.Device.PCI, err)
	}
	return nil
}

// resetAdminMAC sets the MAC address of before on a device that has the attachment's:
// it would be on the network twice when the guest runs elsewhere.
func (a attachment) resetAdminMAC() error {
	if a.Device.AdminMAC == "" || a.Device.AdminMAC == a.MAC {
		return nil
	}
	former, err := net.ParseMAC(a.Device.AdminMAC)
	if err != nil {
		return err
	}
	now, err := vfio.Kernel{}.VFMAC(a.Device.PF, a.Device.Index)
	if err != nil || now.String() != a.MAC {
		return err
	}
	return a.Device.setAdminMAC(former)
}

// moveOut moves the device's interface from the pod to the node. With a pod that
// is gone the kernel has done so.
func moveOut(a attachment) error {
	pod, err := openNetns(a.Netns)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer pod.Close()
	link, err := a.Device.find(pod.LinkList, a.IfName, transitName(a.Device.PCI))
	if err != nil || link == nil {
		return err
	}
	node, err := ns.GetCurrentNS()
	if err != nil {
		return err
	}
	defer node.Close()
	return inOrder(
		func() error { return pod.LinkSetDown(link) },
		func() error { return pod.LinkSetName(link, transitName(a.Device.PCI)) },
		func() error { return pod.LinkSetNsFd(link, int(node.Fd())) },
	)
}

// find finds the device's interface in a list: the one that the kernel says is its,
// or if the kernel doesn't say, one of the names. nil if it isn't there.
func (d *device) find(list func() ([]netlink.Link, error), names ...string) (netlink.Link, error) {
	links, err := list()
	for range dumpTries {
		// The kernel tells when something changed while it listed.
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
		links, err = list()
	}
	if err != nil {
		return nil, err
	}
	for _, link := range links {
		attrs := link.Attrs()
		named := d.Parent == "" && slices.Contains(names, attrs.Name)
		if attrs.ParentDev == d.Parent && (d.Parent != "" || named) {
			return link, nil
		}
	}
	return nil, nil
}

// restore makes an interface of the attachment's device what it was, as far as its
// drivers let it; its name is the last.
func (a attachment) restore(link netlink.Link, log *slog.Logger) error {
	d := a.Device
	mac, err := net.ParseMAC(d.MAC)
	if err != nil {
		return err
	}
	return inOrder(
		func() error { return netlink.LinkSetDown(link) },
		func() error {
			// Many take no address of zeros back, and who has the device next sets its own.
			if err := errors.Join(a.resetAdminMAC(), setMAC(link, mac)); err != nil {
				log.Warn("device doesn't have its former MAC address again", "pci", d.PCI, "mac", mac, "err", err)
			}
			return nil
		},
		func() error { return netlink.LinkSetMTU(link, d.MTU) },
		func() error { return netlink.LinkSetName(link, d.Netdev) },
	)
}
