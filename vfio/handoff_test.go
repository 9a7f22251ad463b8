// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package vfio

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

const vmMAC = "52:54:00:cc:00:01"

var guest = net.HardwareAddr{0x52, 0x54, 0, 0xcc, 0, 1}

func nothing(context.Context, string) error { return nil }

func TestBorrow(t *testing.T) {
	m := newMachine(t)
	h := m.handoffs()
	var used string
	err := h.Borrow(t.Context(), vf0, guest, func(_ context.Context, netdev string) error {
		used = netdev
		want := seen{Driver: nic, Override: nic, MAC: vmMAC, Records: []string{vf0 + ".json"}}
		if diff := cmp.Diff(want, m.see(vf0)); diff != "" {
			t.Errorf("device on loan (-want +got):\n%s", diff)
		}
		if v := m.read(m.proc, "sys/net/ipv6/conf", netdev, "disable_ipv6"); v != "1" {
			t.Errorf("disable_ipv6 is %s", v)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if used != "eth0" {
		t.Errorf("used %q", used)
	}
	if diff := cmp.Diff(home(vmMAC), m.see(vf0)); diff != "" {
		t.Errorf("device given back (-want +got):\n%s", diff)
	}
	want := []string{
		`ens1 vf 0 mac 52:54:00:cc:00:01`,
		`vfio-pci/unbind < "0000:01:10.0"`,
		`0000:01:10.0/driver_override < "igbvf\n"`,
		`drivers_probe < "0000:01:10.0"`,
		`eth0/disable_ipv6 < "1"`,
		`eth0 up`,
		`0000:01:10.0/driver_override < "vfio-pci\n"`,
		`igbvf/unbind < "0000:01:10.0"`,
		`drivers_probe < "0000:01:10.0"`,
	}
	if diff := cmp.Diff(want, m.acts); diff != "" {
		t.Errorf("what was done (-want +got):\n%s", diff)
	}
}

func TestInterfaceIsRenamed(t *testing.T) {
	m := newMachine(t)
	m.renames = true
	err := m.handoffs().Borrow(t.Context(), vf0, guest, func(_ context.Context, netdev string) error {
		if diff := cmp.Diff([]string{"enp1s16"}, m.up); diff != "" || netdev != m.up[0] {
			t.Errorf("lent %s; up (-want +got):\n%s", netdev, diff)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

var errNoLease = errors.New("no lease")

func failing(context.Context, string) error { return errNoLease }

// TestCrash ends the process after every single thing that has an effect, in a
// hand-off that fails, so that all steps come; and then the one that recovers,
// in the same way. What happens to the device between the two varies.
func TestCrash(t *testing.T) {
	for name, between := range map[string]func(*machine){
		"nothing":               func(*machine) {},
		"probe":                 func(m *machine) { m.probe(vf0) },
		"reboot":                (*machine).reboot,
		"no override":           func(m *machine) { m.override(vf0, "") },
		"no override and probe": func(m *machine) { m.override(vf0, ""); m.probe(vf0) },
	} {
		t.Run(name, func(t *testing.T) {
			first, crashed := 0, true
			for crashed {
				first++
				for second, again := 1, true; again; second++ {
					m := newMachine(t)
					h := m.handoffs()
					m.crashAt = first
					err := h.Borrow(t.Context(), vf0, guest, failing)
					if crashed = errors.Is(err, errDead); !crashed {
						break
					}
					between(m)
					h = m.handoffs()
					m.crashAt = second
					again = errors.Is(h.Recover(t.Context()), errDead)
					if err := m.handoffs().Recover(t.Context()); err != nil {
						t.Errorf("crash %d, and %d in Recover: %v", first, second, err)
					}
					if diff := cmp.Diff(home(none), m.see(vf0)); diff != "" {
						t.Errorf("crash %d, and %d in Recover (-want +got):\n%s", first, second, diff)
					}
				}
			}
			if want := 10; first-1 != want {
				t.Errorf("the process crashed at %d points, not at %d", first-1, want)
			}
		})
	}
}

// TestCrashAtSteps ends the process before and after each step. What it had on
// loan is given back by the next hand-off, too.
func TestCrashAtSteps(t *testing.T) {
	for _, step := range Steps() {
		use := nothing
		if step == string(stepResetMAC) {
			use = failing
		}
		for _, when := range []string{"before ", "after "} {
			t.Run(when+step, func(t *testing.T) {
				m := newMachine(t)
				h := m.handoffs()
				m.crashIn = when + step
				if err := h.Borrow(t.Context(), vf0, guest, use); !m.dead {
					t.Fatalf("this moment never came: %v", err)
				}
				if err := m.handoffs().Borrow(t.Context(), vf0, guest, nothing); err != nil {
					t.Error(err)
				}
				if diff := cmp.Diff(home(vmMAC), m.see(vf0)); diff != "" {
					t.Errorf("device (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestRefused has what is wrong with a device told before anything is touched.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		pci  string
		mac  net.HardwareAddr
		make func(*machine)
		want string
	}{
		"path":                     {pci: "../" + vf0, want: "this is not a PCI address"},
		"no such device":           {pci: "0000:7f:00.0", want: "no such file"},
		"physical function":        {pci: pf0, want: "not a virtual function"},
		"no IOMMU group":           {make: func(m *machine) { m.remove(m.device(vf0), "iommu_group") }, want: "no IOMMU group"},
		"no driver":                {make: func(m *machine) { m.must(m.unbind(vf0, DriverVFIO)) }, want: "has no driver"},
		"other driver":             {make: func(m *machine) { m.must(m.unbind(vf0, DriverVFIO)); m.probe(vf0) }, want: "its driver is igbvf"},
		"no PF interface":          {make: func(m *machine) { m.remove(m.device(pf0), "net") }, want: "has no interface"},
		"unknown to the PF":        {make: func(m *machine) { m.remove(m.device(pf0), "virtfn0") }, want: "doesn't know it"},
		"group open":               {make: func(m *machine) { m.openedBy(4711, "/dev/vfio/41") }, want: "open in process 4711 (qemu-kvm)"},
		"group open without IOMMU": {make: func(m *machine) { m.openedBy(4711, "/dev/vfio/noiommu-41") }, want: "open in process 4711"},
		"device open":              {make: func(m *machine) { m.openedBy(4711, "/dev/vfio/devices/vfio0") }, want: "open in process 4711"},
		"processes of a container": {make: (*machine).contain, want: "who has it open can't be seen"},
		"no processes":             {make: func(m *machine) { m.remove(m.proc, "1") }, want: "who has it open can't be seen"},
		"unknown NIC":              {make: func(m *machine) { m.put("0xffff", m.device(vf0), "device") }, want: "none is known for"},
		"driver not loaded":        {make: func(m *machine) { m.remove(m.sysfs, "bus/pci/drivers", nic) }, want: "igbvf is not loaded"},
		"group MAC":                {mac: net.HardwareAddr{1, 0, 0x5e, 0, 0, 1}, want: "not the MAC address"},
		"no MAC":                   {mac: net.HardwareAddr{}, want: "not the MAC address"},
		"zero MAC":                 {mac: make(net.HardwareAddr, 6), want: "not the MAC address"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			if c.make != nil {
				c.make(m)
			}
			if c.pci == "" {
				c.pci = vf0
			}
			if c.mac == nil {
				c.mac = guest
			}
			h := m.handoffs()
			before := m.see(vf0)
			err := h.Borrow(t.Context(), c.pci, c.mac, func(context.Context, string) error {
				t.Error("the device was lent")
				return nil
			})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, not %q", err, c.want)
			}
			if diff := cmp.Diff(before, m.see(vf0)); diff != "" || len(m.acts) != 0 {
				t.Errorf("done: %q; device (-before +after):\n%s", m.acts, diff)
			}
		})
	}
}

// TestAssign makes a device a guest's that was never borrowed.
func TestAssign(t *testing.T) {
	m := newMachine(t)
	h := m.handoffs()
	if err := h.Assign(t.Context(), vf0, guest); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(home(vmMAC), m.see(vf0)); diff != "" {
		t.Errorf("device (-want +got):\n%s", diff)
	}
	if d, err := h.Device(t.Context(), vf0); err != nil || d.Override != DriverVFIO {
		t.Errorf("override %q, %v", d.Override, err)
	}
	for want, do := range map[string]func(m *machine) error{
		"open in process 4711": func(m *machine) error {
			m.openedBy(4711, "/dev/vfio/41")
			return m.handoffs().Assign(t.Context(), vf0, guest)
		},
		"its driver is igbvf": func(m *machine) error { m.reboot(); return m.handoffs().Assign(t.Context(), vf0, guest) },
		"not the MAC address": func(m *machine) error { return m.handoffs().Assign(t.Context(), vf0, nil) },
		"set MAC address: not permitted": func(m *machine) error {
			m.setMAC = errors.New("not permitted")
			return m.handoffs().Assign(t.Context(), vf0, guest)
		},
		"not the host's, pid:[4026531836]": func(m *machine) error { m.contain(); return m.handoffs().Assign(t.Context(), vf0, guest) },
	} {
		m := newMachine(t)
		if err := do(m); err == nil || !strings.Contains(err.Error(), want) || len(m.acts) != 0 {
			t.Errorf("error is %v, not %q; done: %q", err, want, m.acts)
		}
	}
}

// TestUnused has a device open in a process, and in one that can't be seen.
func TestUnused(t *testing.T) {
	m := newMachine(t)
	h := m.handoffs()
	m.openedBy(4711, "/dev/vfio/41")
	for pci, want := range map[string]string{vf0: "open in process 4711 (qemu-kvm)", vf1: "", "0000:7f:00.0": "no such file"} {
		if err := h.Unused(pci); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", pci, err, want)
		}
	}
	m.contain()
	if err := h.Unused(vf1); err == nil || !strings.Contains(err.Error(), "can't be seen") {
		t.Errorf("in a container: error %v", err)
	}
}

// TestFailed has a hand-off fail on its way, and the device as it was.
func TestFailed(t *testing.T) {
	for name, c := range map[string]struct {
		make func(*machine)
		use  func(context.Context, string) error
		want string
	}{
		"use fails":           {use: failing, want: "no lease"},
		"driver doesn't bind": {make: func(m *machine) { m.refuses = nic }, want: "probe NIC driver: it had no effect"},
		"no interface":        {make: func(m *machine) { m.mute = true }, want: "igbvf has made no interface: not up within 10s"},
		"other MAC":           {make: func(m *machine) { m.address = "52:54:00:00:00:99" }, want: "has MAC address 52:54:00:00:00:99, not " + vmMAC},
		"no carrier":          {make: func(m *machine) { m.noLink = true }, want: "no carrier: not up within 10s"},
		"PF refuses MAC":      {make: func(m *machine) { m.setMAC = errors.New("operation not permitted") }, want: "set MAC address: operation not permitted"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t)
				m.macs[0] = "52:54:00:00:00:01"
				if c.make != nil {
					c.make(m)
				}
				if c.use == nil {
					c.use = nothing
				}
				err := m.handoffs().Borrow(t.Context(), vf0, guest, c.use)
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error is %v, not %q", err, c.want)
				}
				if diff := cmp.Diff(home("52:54:00:00:00:01"), m.see(vf0)); diff != "" {
					t.Errorf("device (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestCancelled(t *testing.T) {
	for _, step := range Steps() {
		t.Run(step, func(t *testing.T) {
			m := newMachine(t)
			ctx, cancel := context.WithCancel(t.Context())
			h := m.handoffs()
			h.cfg.Step = func(moment string) error {
				if moment == "before "+step {
					cancel()
				}
				return nil
			}
			at := slices.Index(Steps(), step)
			err := h.Borrow(ctx, vf0, guest, func(ctx context.Context, _ string) error {
				if at <= slices.Index(Steps(), string(stepBind)) {
					t.Error("the device was lent")
				}
				return ctx.Err()
			})
			want := home(vmMAC)
			if err != nil {
				want = home(none)
			}
			if diff := cmp.Diff(want, m.see(vf0)); diff != "" {
				t.Errorf("device after %v (-want +got):\n%s", err, diff)
			}
			if (err != nil) != (at <= slices.Index(Steps(), string(stepUse))) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestPanic(t *testing.T) {
	m := newMachine(t)
	h := m.handoffs()
	func() {
		defer func() {
			if got := recover(); got != "boom" {
				t.Errorf("recovered %v", got)
			}
		}()
		t.Error(h.Borrow(t.Context(), vf0, guest, func(context.Context, string) error { panic("boom") }))
	}()
	if diff := cmp.Diff(home(none), m.see(vf0)); diff != "" {
		t.Errorf("device (-want +got):\n%s", diff)
	}
	if err := h.Borrow(t.Context(), vf0, guest, nothing); err != nil {
		t.Errorf("next hand-off: %v", err)
	}
}

// TestOpenDespiteAll has a process open the device that no look at /proc shows:
// the unbind outlives its deadline, and the hand-off with it.
func TestOpenDespiteAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.released = make(chan struct{})
		h := m.handoffs()
		start := time.Now()
		err := h.Borrow(t.Context(), vf0, guest, nothing)
		if !errors.Is(err, errPending) || time.Since(start) != defaultTimeout || strings.Contains(err.Error(), "give PCI device") {
			t.Fatalf("error after %v: %v", time.Since(start), err)
		}
		if got := m.see(vf0); len(got.Records) != 1 {
			t.Errorf("hand-off is not open any more: %v", got)
		}
		if err := h.Recover(t.Context()); err != nil {
			t.Errorf("Recover meanwhile: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := h.Borrow(ctx, vf0, guest, nothing); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("another Borrow meanwhile: %v", err)
		}
		if err := h.Borrow(t.Context(), vf1, net.HardwareAddr{2, 0, 0, 0, 0, 1}, nothing); err != nil {
			t.Errorf("another device meanwhile: %v", err)
		}
		close(m.released)
		synctest.Wait()
		if diff := cmp.Diff(home(none), m.see(vf0)); diff != "" {
			t.Errorf("device after it was closed (-want +got):\n%s", diff)
		}
		if err := h.Borrow(t.Context(), vf0, guest, nothing); err != nil {
			t.Errorf("next hand-off: %v", err)
		}
	})
}

func TestOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		h := m.handoffs()
		var onLoan, most, lent int
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() {
				err := h.Borrow(t.Context(), vf0, guest, func(context.Context, string) error {
					lent++
					onLoan++
					most = max(most, onLoan)
					if err := h.Recover(t.Context()); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Second)
					onLoan--
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		if most != 1 || lent != 3 {
			t.Errorf("on loan %d times, %d at once", lent, most)
		}
		if diff := cmp.Diff(home(vmMAC), m.see(vf0)); diff != "" {
			t.Errorf("device (-want +got):\n%s", diff)
		}
	})
}

// TestNotTakenBack has vfio-pci refuse the device: the hand-off stays open until
// it doesn't any more.
func TestNotTakenBack(t *testing.T) {
	m := newMachine(t)
	h := m.handoffs()
	m.refuses = DriverVFIO
	err := h.Borrow(t.Context(), vf0, guest, nothing)
	if err == nil || !strings.Contains(err.Error(), `give PCI device "0000:01:10.0" back to vfio-pci: probe vfio-pci: it had no effect`) {
		t.Fatalf("error is %v", err)
	}
	want := seen{Override: DriverVFIO, MAC: vmMAC, Records: []string{vf0 + ".json"}}
	if diff := cmp.Diff(want, m.see(vf0)); diff != "" {
		t.Errorf("device (-want +got):\n%s", diff)
	}
	if err := h.Borrow(t.Context(), vf0, guest, nothing); err == nil {
		t.Error("device was borrowed before it was back")
	}
	m.refuses = ""
	if err := h.Recover(t.Context()); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(home(none), m.see(vf0)); diff != "" {
		t.Errorf("device (-want +got):\n%s", diff)
	}
}

// TestRecoverGone has a device on loan disappear, which stops no other one.
func TestRecoverGone(t *testing.T) {
	m := newMachine(t)
	for _, pci := range []string{vf0, vf1} {
		h := m.handoffs()
		m.crashIn = "before " + string(stepUse)
		if err := h.Borrow(t.Context(), pci, guest, nothing); !errors.Is(err, errDead) {
			t.Fatal(err)
		}
	}
	m.remove(m.device(vf0))
	if err := m.handoffs().Recover(t.Context()); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(home(none), m.see(vf1)); diff != "" {
		t.Errorf("the other device (-want +got):\n%s", diff)
	}
}

// TestRecoverForeign has somebody else's driver take a device on loan, which
// Recover leaves to it.
func TestRecoverForeign(t *testing.T) {
	m := newMachine(t)
	h := m.handoffs()
	m.crashIn = "after " + string(stepRelease)
	if err := h.Borrow(t.Context(), vf0, guest, nothing); !errors.Is(err, errDead) {
		t.Fatal(err)
	}
	m.mkdir(m.sysfs, "bus/pci/drivers/uio_pci_generic")
	m.override(vf0, "uio_pci_generic")
	m.probe(vf0)
	want := m.see(vf0)
	err := m.handoffs().Recover(t.Context())
	if err == nil || !strings.Contains(err.Error(), "driver uio_pci_generic has taken the device") {
		t.Errorf("error is %v", err)
	}
	if diff := cmp.Diff(want, m.see(vf0)); diff != "" {
		t.Errorf("device (-want +got):\n%s", diff)
	}
}

// TestBlind has the PF be of no more use while the device is on loan.
func TestBlind(t *testing.T) {
	for name, breaks := range map[string]func(*machine){
		"no MAC address":  func(m *machine) { m.blind = true },
		"no interface":    func(m *machine) { m.remove(m.device(pf0), "net") },
		"no virtual ones": func(m *machine) { m.remove(m.device(pf0), "virtfn0") },
	} {
		m := newMachine(t)
		err := m.handoffs().Borrow(t.Context(), vf0, guest, func(context.Context, string) error {
			breaks(m)
			return errNoLease
		})
		if !errors.Is(err, errNoLease) {
			t.Errorf("%s: error is %v", name, err)
		}
		if diff := cmp.Diff(home(vmMAC), m.see(vf0)); diff != "" {
			t.Errorf("%s: device (-want +got):\n%s", name, diff)
		}
	}
}

// TestNoSysfs keeps the journal when all devices seem to be gone.
func TestNoSysfs(t *testing.T) {
	m := newMachine(t)
	h := m.handoffs()
	m.crashIn = "before " + string(stepUse)
	if err := h.Borrow(t.Context(), vf0, guest, nothing); !errors.Is(err, errDead) {
		t.Fatal(err)
	}
	h = m.handoffs()
	h.cfg.Sysfs = t.TempDir()
	if err := h.Recover(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without sysfs: %v", err)
	}
	if err := m.handoffs().Recover(t.Context()); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(home(none), m.see(vf0)); diff != "" {
		t.Errorf("device (-want +got):\n%s", diff)
	}
}

func TestConfig(t *testing.T) {
	for name, c := range map[string]Config{
		"empty":            {},
		"negative timeout": {Dir: t.TempDir(), Log: newMachine(t).handoffs().cfg.Log, BindTimeout: -1},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestWriteFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := writeFile(path, "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that doesn't exist: %v", err)
	}
}
