// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/cniserver/wire"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/internal/store"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/vfio"
)

func TestFindInterfaceOfDevice(t *testing.T) {
	const parent = "0000:3b:10.2"
	link := func(name, parent string) netlink.Link {
		return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: name, ParentDev: parent}}
	}
	for _, test := range []struct {
		name   string
		parent string
		links  []netlink.Link
		want   string
	}{
		{"by its device, whatever its name", parent, []netlink.Link{link("net1", ""), link("dev7", parent)}, "dev7"},
		{"another device's of the name", parent, []netlink.Link{link("net1", "0000:3b:10.3")}, ""},
		{"no device's of the name", parent, []netlink.Link{link("net1", "")}, ""},
		{"by its name, where the kernel does not say more", "", []netlink.Link{link("eth0", ""), link("net1", "")}, "net1"},
		{"a device's of the name, where it had none", "", []netlink.Link{link("net1", parent)}, ""},
		{"not there", "", []netlink.Link{link("eth0", "")}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			interrupted := true
			got, err := (&device{Parent: test.parent}).find(func() ([]netlink.Link, error) {
				if interrupted {
					interrupted = false
					return nil, netlink.ErrDumpInterrupted
				}
				return test.links, nil
			}, "net1")
			if err != nil {
				t.Fatal(err)
			}
			name := ""
			if got != nil {
				name = got.Attrs().Name
			}
			if name != test.want {
				t.Errorf("got %q, want %q", name, test.want)
			}
		})
	}
}

// TestDeviceInfoDisagrees has a device plugin's information name another device than
// the configuration.
func TestDeviceInfoDisagrees(t *testing.T) {
	info := wire.DeviceInfo{PCI: &wire.PCIDevice{Address: "0000:3b:10.3"}}
	for _, deviceID := range []string{"0000:3b:10.2", ""} {
		var f *failure
		if d, err := (&Server{}).findDevice(t.Context(), deviceID, info); d != nil || !errors.As(err, &f) || f.code != 7 {
			t.Errorf("%q: got %v, error %v", deviceID, d, err)
		}
	}
}

func TestTransitNames(t *testing.T) {
	a, b := transitName("0000:3b:10.2"), transitName("0000:3b:10.3")
	if a == b || len(a) > maxIfName {
		t.Errorf("%s and %s", a, b)
	}
}

// TestDeviceOfAnother asks for a device that an attachment has which is older.
func TestDeviceOfAnother(t *testing.T) {
	const pci = "0000:3b:10.2"
	running, ended := launcher("running", 0, ""), completed(launcher("ended", 0, ""))
	leaving := launcher("leaving", 0, "")
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	for _, test := range []struct {
		name  string
		older attachment
		want  string
	}{
		{"of a running pod", attachment{State: stateLive, Pod: "running", UID: running.UID}, "pod ns/running has it"},
		{"being given to a running pod", attachment{State: stateAdding, Pod: "running", UID: running.UID}, "pod ns/running has it"},
		{"detached from a running pod", attachment{State: stateLeaving, Pod: "running", UID: running.UID}, ""},
		{"of an earlier sandbox", attachment{State: stateLive, Pod: "pod", UID: "uid", ContainerID: "earlier"}, ""},
		{"of the same sandbox", attachment{State: stateLive, Pod: "pod", UID: "uid", ContainerID: "new"}, "pod ns/pod has it"},
		{"of a completed pod", attachment{State: stateLive, Pod: "ended", UID: ended.UID}, ""},
		{"of a pod on its way out", attachment{State: stateLive, Pod: "leaving", UID: leaving.UID}, ""},
		{"of a pod that is gone", attachment{State: stateLive, Pod: "gone", UID: "gone"}, ""},
		{"of an earlier pod of the name", attachment{State: stateLive, Pod: "running", UID: "earlier"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			records, err := store.Open[attachment](t.TempDir(), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			s := &Server{cfg: Config{Pods: podList{pods: []*corev1.Pod{running, ended, leaving}}}, records: records, locks: locks{held: map[string]*holder{}}}
			older := test.older
			older.Namespace, older.ContainerID, older.Sequence = "ns", cmp.Or(older.ContainerID, "old"), 1
			older.IfName, older.Device = "net1", &device{PCI: pci, Passed: true}
			a := attachment{State: stateAdding, Namespace: "ns", Pod: "pod", UID: "uid", ContainerID: "new", IfName: "net2", Sequence: 2, Device: &device{PCI: pci}}
			for _, a := range []attachment{older, a} {
				if err := records.Put(a.key(), a); err != nil {
					t.Fatal(err)
				}
			}
			// A call works on the older one, until it is ended.
			working, end := context.WithCancel(t.Context())
			defer end()
			unlock, err := s.locks.lock(t.Context(), end, older.key())
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				<-working.Done()
				unlock()
			}()
			err = s.evict(t.Context(), a)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
			if over := working.Err() != nil; over != (test.want == "") {
				t.Errorf("the older call was ended: %v", over)
			}
		})
	}
}

// TestDeviceTaken has the DEL of an attachment whose device a newer one is to have: it
// gives back what that one has not taken yet.
func TestDeviceTaken(t *testing.T) {
	for _, test := range []struct {
		name  string
		other attachment
		want  bool
	}{
		{"taken", attachment{Sequence: 2, State: stateLive, Device: &device{MAC: "02:00:00:00:00:01"}}, true},
		{"passed to a guest", attachment{Sequence: 2, State: stateLive, Device: &device{Passed: true}}, true},
		{"to be taken", attachment{Sequence: 2, State: stateAdding, Device: &device{}}, false},
		{"to be given back", attachment{Sequence: 2, State: stateLeaving, Device: &device{MAC: "02:00:00:00:00:01"}}, false},
		{"an older one", attachment{Sequence: 0, State: stateLive, Device: &device{MAC: "02:00:00:00:00:01"}}, false},
	} {
		records, err := store.Open[attachment](t.TempDir(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		test.other.Device.PCI = "0000:3b:10.2"
		if err := records.Put("other", test.other); err != nil {
			t.Fatal(err)
		}
		s := &Server{records: records}
		if got := s.deviceTaken(attachment{Sequence: 1, Device: &device{PCI: "0000:3b:10.2"}}); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

// passedVF is the hand-offs of a node whose only device is a virtual function on
// vfio-pci that is pinned to it, and the device's folder in sysfs.
func passedVF(t *testing.T, pci string) (devices *vfio.Handoffs, folder string) {
	t.Helper()
	sysfs := t.TempDir()
	folder = filepath.Join(sysfs, "bus/pci/devices", pci)
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(folder, 0o700))
	for file, text := range map[string]string{"vendor": "0x8086", "device": "0x1889", "modalias": "pci:v00008086d00001889", "driver_override": "vfio-pci"} {
		must(os.WriteFile(filepath.Join(folder, file), []byte(text+"\n"), 0o600))
	}
	must(os.Symlink("../../drivers/vfio-pci", filepath.Join(folder, "driver")))
	must(os.Symlink("../../../kernel/iommu_groups/7", filepath.Join(folder, "iommu_group")))
	must(os.MkdirAll(filepath.Join(sysfs, "proc/1/ns"), 0o700))
	must(os.Symlink("pid:[4026531836]", filepath.Join(sysfs, "proc/1/ns/pid")))
	devices, err := vfio.New(vfio.Config{Sysfs: sysfs, Proc: filepath.Join(sysfs, "proc"), Modules: sysfs, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	must(err)
	return devices, folder
}

// TestPassed checks devices that are for guests no more, or not for good.
func TestPassed(t *testing.T) {
	const pci = "0000:3b:10.2"
	for _, test := range []struct {
		name, file string
		change     func(path string) error
		want       string
	}{
		{"as it was left", "driver", func(string) error { return nil }, ""},
		{"without a driver", "driver", os.Remove, `has driver ""`},
		{"with a NIC driver", "driver", func(path string) error {
			return errors.Join(os.Remove(path), os.Symlink("../../drivers/iavf", path))
		}, `has driver "iavf"`},
		{"pinned to none", "driver_override", func(path string) error { return os.WriteFile(path, []byte("(null)\n"), 0) }, `pinned to ""`},
		{"pinned to another", "driver_override", func(path string) error { return os.WriteFile(path, []byte("iavf\n"), 0) }, `pinned to "iavf"`},
		{"gone", "", os.RemoveAll, "no such file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			devices, folder := passedVF(t, pci)
			if err := test.change(filepath.Join(folder, test.file)); err != nil {
				t.Fatal(err)
			}
			err := (&Server{devices: devices}).isPassed(t.Context(), pci)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
		})
	}
}

// TestIsDue has attachments of virtual machines whose network namespace is gone: what
// is undone is what the node shows to be gone, too.
func TestIsDue(t *testing.T) {
	const pci = "0000:3b:10.2"
	devices, folder := passedVF(t, pci)
	proc := filepath.Join(folder, "../../../../proc")
	gone := filepath.Join(t.TempDir(), "netns")
	passed := func(state, vm string) attachment {
		return attachment{State: state, VM: vm, Netns: gone, ContainerID: "c1", IfName: "net1", HostIfName: "rep0", Device: &device{PCI: pci, Passed: true}}
	}
	there := passed(stateLive, "vm1")
	there.Netns = "/proc/self/ns/net"
	pair := passed(stateLive, "vm1")
	pair.Device, pair.HostIfName = nil, "no-such-link"
	for _, test := range []struct {
		name string
		a    attachment
		open bool
		want bool
	}{
		{"cut off", passed(stateAdding, "vm1"), true, true},
		{"to be undone", passed(stateLeaving, ""), true, true},
		{"of a pod", passed(stateLive, ""), false, false},
		{"in place", there, false, false},
		{"gone", passed(stateLive, "vm1"), false, true},
		{"gone, but its guest runs", passed(stateLive, "vm1"), true, false},
		{"gone with its pair", pair, true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			records, err := store.Open[attachment](t.TempDir(), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			if test.open {
				fd := filepath.Join(proc, "4711/fd")
				if err := errors.Join(os.MkdirAll(fd, 0o700), os.Symlink("/dev/vfio/7", filepath.Join(fd, "3"))); err != nil {
					t.Fatal(err)
				}
				defer os.RemoveAll(filepath.Join(proc, "4711"))
			}
			if got := (&Server{devices: devices, records: records}).isDue(test.a); got != test.want {
				t.Errorf("due: %v", got)
			}
		})
	}
}
