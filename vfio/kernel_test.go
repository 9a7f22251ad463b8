// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package vfio

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	pf0  = "0000:01:00.0"
	vf0  = "0000:01:10.0"
	vf1  = "0000:01:10.2"
	nic  = "igbvf"
	none = "00:00:00:00:00:00"
)

// errDead is what everything fails with after the process has "crashed".
var errDead = errors.New("the process has ended")

// machine is a node with a NIC that has two virtual functions, as far as a
// hand-off sees one: folders that look like sysfs and procfs, and act on writes
// as the kernel does.
type machine struct {
	t                    *testing.T
	sysfs, proc, journal string

	mu       sync.Mutex
	macs     map[int]string
	released chan struct{} // unless nil, an unbind of vf0 from vfio-pci blocks until it is closed
	refuses  string        // a driver whose probe fails
	mute     bool          // the NIC driver makes no interface
	address  string        // what an interface has, instead of what was set through the PF
	setMAC   error         // what setting a MAC address fails with
	blind    bool          // the MAC addresses of VFs can't be read
	noLink   bool          // interfaces get no carrier
	renames  bool          // udev gives interfaces another name while they are set up
	netdevs  int
	up       []string
	acts     []string // all that has had an effect
	crashAt  int      // the process ends right after so many of them; never if 0
	crashIn  string   // the process ends at this moment of a step
	dead     bool
}

func newMachine(t *testing.T) *machine {
	// Each record's write waits for the disk, and TestCrash has hundreds.
	dir, err := os.MkdirTemp("/dev/shm", "vfio")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	m := &machine{
		t: t, sysfs: filepath.Join(dir, "sys"), proc: filepath.Join(dir, "proc"), journal: filepath.Join(dir, "journal"),
		macs: map[int]string{0: none, 1: none},
	}
	for _, d := range []string{"bus/pci/drivers/igb", "bus/pci/drivers/" + nic, "bus/pci/drivers/" + DriverVFIO, "bus/pci/devices", "class/net"} {
		m.mkdir(m.sysfs, d)
	}
	m.mkdir(m.proc, "1/ns")
	m.link(hostPIDs, m.proc, "1/ns/pid")
	m.put("", m.sysfs, "bus/pci/drivers_probe")
	for i, pci := range []string{pf0, vf0, vf1} {
		m.mkdir(m.sysfs, "devices/pci0000:00", pci)
		m.link("../../../devices/pci0000:00/"+pci, m.sysfs, "bus/pci/devices", pci)
		m.put("0x8086\n", m.device(pci), "vendor")
		m.put("0x10ca\n", m.device(pci), "device")
		m.put("pci:v00008086d000010CAsv00008086sd000010CAbc02sc00i00\n", m.device(pci), "modalias")
		m.put("(null)\n", m.device(pci), "driver_override")
		m.link(fmt.Sprintf("../../../kernel/iommu_groups/%d", 40+i), m.device(pci), "iommu_group")
	}
	m.link("../../../bus/pci/drivers/igb", m.device(pf0), "driver")
	m.addNetdev(pf0, "ens1", "52:54:00:aa:00:01")
	for i, pci := range []string{vf0, vf1} {
		m.link("../"+pf0, m.device(pci), "physfn")
		m.link("../"+pci, m.device(pf0), fmt.Sprintf("virtfn%d", i))
		m.bind(pci, DriverVFIO)
	}
	return m
}

// handoffs are those of a process that has just started on the machine.
func (m *machine) handoffs() *Handoffs {
	m.t.Helper()
	m.mu.Lock()
	m.dead, m.crashAt, m.crashIn, m.acts = false, 0, "", nil
	m.mu.Unlock()
	h, err := New(Config{
		Sysfs: m.sysfs, Proc: m.proc, Modules: filepath.Dir(m.proc), Dir: m.journal, Netlink: m, Log: slog.New(slog.DiscardHandler),
		Step: m.step,
	})
	if err != nil {
		m.t.Fatal(err)
	}
	h.write = m.write
	return h
}

func (m *machine) step(moment string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead = m.dead || moment == m.crashIn; m.dead {
		return errDead
	}
	return nil
}

// act notes something that has had an effect, and ends the process if it was
// the last.
func (m *machine) act(what string) error {
	m.acts = append(m.acts, what)
	if len(m.acts) == m.crashAt {
		m.dead = true
		return errDead
	}
	return nil
}

// write does what the kernel does when this is written to that file.
func (m *machine) write(path, value string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return errDead
	}
	rel, ok := strings.CutPrefix(path, m.sysfs+"/bus/pci/")
	parts := strings.Split(rel, "/")
	var err error
	switch {
	case !ok:
		err = os.WriteFile(path, []byte(value), 0)
	case rel == "drivers_probe":
		m.probe(value)
	case len(parts) == 3 && parts[2] == "driver_override":
		m.override(parts[1], strings.TrimSuffix(value, "\n"))
	case len(parts) == 3 && parts[2] == "unbind":
		err = m.unbind(value, parts[1])
	default:
		err = fs.ErrNotExist
	}
	if err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return m.act(fmt.Sprintf("%s < %q", filepath.Join(parts[max(0, len(parts)-2):]...), value))
}

func (m *machine) override(pci, driver string) {
	if driver == "" {
		driver = "(null)"
	}
	m.put(driver+"\n", m.device(pci), "driver_override")
}

// probe binds a device that has no driver to the one in its override, else to
// the one that knows it. A failed probe is no error.
func (m *machine) probe(pci string) {
	driver := m.read(m.device(pci), "driver_override")
	if driver == "(null)" {
		driver = nic
	}
	if m.driver(pci) == "" && driver != m.refuses {
		m.bind(pci, driver)
	}
}

func (m *machine) bind(pci, driver string) {
	m.link("../../../bus/pci/drivers/"+driver, m.device(pci), "driver")
	switch {
	case driver == DriverVFIO:
		m.mkdir(m.device(pci), "vfio-dev/vfio"+pci[len(pci)-1:])
	case !m.mute:
		mac := m.address
		if mac == "" {
			mac = m.macs[slices.Index([]string{vf0, vf1}, pci)]
		}
		m.addNetdev(pci, fmt.Sprintf("eth%d", m.netdevs), mac)
		m.netdevs++
	}
}

// unbind is called with m.mu held, which it gives up while the device is open.
func (m *machine) unbind(pci, driver string) error {
	if m.driver(pci) != driver {
		return unix.ENODEV
	}
	m.remove(m.device(pci), "driver")
	if released := m.released; pci == vf0 && driver == DriverVFIO && released != nil {
		m.mu.Unlock()
		<-released
		m.mu.Lock()
	}
	m.remove(m.device(pci), "vfio-dev")
	entries, err := os.ReadDir(filepath.Join(m.device(pci), "net"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.t.Error(err)
	}
	for _, e := range entries {
		m.remove(m.sysfs, "class/net", e.Name())
	}
	m.remove(m.device(pci), "net")
	return nil
}

func (m *machine) addNetdev(pci, name, mac string) {
	m.mkdir(m.device(pci), "net", name)
	m.put(mac+"\n", m.device(pci), "net", name, "address")
	m.link(filepath.Join("../../bus/pci/devices", pci, "net", name), m.sysfs, "class/net", name)
	m.mkdir(m.proc, "sys/net/ipv6/conf", name)
	m.put("0\n", m.proc, "sys/net/ipv6/conf", name, "disable_ipv6")
}

// rename does what udev does, and returns what a call that still uses the old
// name gets.
func (m *machine) rename(netdev, name string) error {
	m.must(os.Rename(filepath.Join(m.device(vf0), "net", netdev), filepath.Join(m.device(vf0), "net", name)))
	m.remove(m.sysfs, "class/net", netdev)
	m.link(filepath.Join("../../bus/pci/devices", vf0, "net", name), m.sysfs, "class/net", name)
	return fmt.Errorf("no interface %s", netdev)
}

// openedBy adds a process that has a file open.
func (m *machine) openedBy(pid int, file string) {
	dir := fmt.Sprint(pid)
	m.mkdir(m.proc, dir, "fd")
	m.put("qemu-kvm\n", m.proc, dir, "comm")
	m.link(file, m.proc, dir, "fd/7")
}

// contain has procfs show the processes of a container.
func (m *machine) contain() {
	m.remove(m.proc, "1/ns/pid")
	m.link("pid:[4026532177]", m.proc, "1/ns/pid")
}

// reboot starts the machine anew: overrides and MAC addresses are lost, and
// every device is with the driver that knows it.
func (m *machine) reboot() {
	for _, pci := range []string{vf0, vf1} {
		m.override(pci, "")
		if d := m.driver(pci); d != "" {
			if err := m.unbind(pci, d); err != nil {
				m.t.Fatal(err)
			}
		}
	}
	m.macs = map[int]string{0: none, 1: none}
	m.probe(vf0)
	m.probe(vf1)
}

func (m *machine) VFMAC(pf string, vf int) (net.HardwareAddr, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.blind || pf != "ens1" {
		return nil, fmt.Errorf("no interface %s", pf)
	}
	return net.ParseMAC(m.macs[vf])
}

func (m *machine) SetVFMAC(pf string, vf int, mac net.HardwareAddr) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.dead:
		return errDead
	case m.setMAC != nil:
		return m.setMAC
	case pf != "ens1":
		return fmt.Errorf("no interface %s", pf)
	}
	m.macs[vf] = mac.String()
	return m.act(fmt.Sprintf("%s vf %d mac %s", pf, vf, mac))
}

func (m *machine) SetUp(ctx context.Context, netdev string) error {
	if m.noLink {
		<-ctx.Done()
		return fmt.Errorf("no carrier: %w", context.Cause(ctx))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.renames {
		m.renames = false
		return m.rename(netdev, "enp1s16")
	}
	m.up = append(m.up, netdev)
	return m.act(netdev + " up")
}

// seen is what a test compares of the machine.
type seen struct {
	Driver, Override, MAC string
	Records               []string
}

// home is how a device is when it is not on loan.
func home(mac string) seen { return seen{Driver: DriverVFIO, Override: DriverVFIO, MAC: mac} }

func (m *machine) see(pci string) seen {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	s := seen{Driver: m.driver(pci), Override: m.read(m.device(pci), "driver_override"), MAC: m.macs[slices.Index([]string{vf0, vf1}, pci)]}
	files, err := os.ReadDir(m.journal)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, f := range files {
		s.Records = append(s.Records, f.Name())
	}
	return s
}

func (m *machine) device(pci string) string { return filepath.Join(m.sysfs, "bus/pci/devices", pci) }

func (m *machine) driver(pci string) string {
	var driver string
	m.must(readLink(filepath.Join(m.device(pci), "driver"), &driver))
	return driver
}

func (m *machine) read(path ...string) string {
	var value string
	m.must(readFile(filepath.Join(path...), &value))
	return value
}

func (m *machine) put(value string, path ...string) {
	m.must(os.WriteFile(filepath.Join(path...), []byte(value), 0o600))
}
func (m *machine) link(target string, path ...string) {
	m.must(os.Symlink(target, filepath.Join(path...)))
}
func (m *machine) mkdir(path ...string)  { m.must(os.MkdirAll(filepath.Join(path...), 0o700)) }
func (m *machine) remove(path ...string) { m.must(os.RemoveAll(filepath.Join(path...))) }

func (m *machine) must(err error) {
	if err != nil {
		m.t.Error(err)
	}
}
