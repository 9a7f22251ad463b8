// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A DHCPServer is the physical network's dnsmasq. It listens at the gateway's
// address.
type DHCPServer struct {
	lab       *Lab
	dir       string
	args      []string
	leaseFile string
	pidFile   string
	logFile   string

	mu     sync.Mutex
	daemon *daemon // nil while it is stopped
}

// A DHCPLease is a line of the server's lease file.
type DHCPLease struct {
	Expiry   time.Time // zero for a lease that does not expire
	MAC      net.HardwareAddr
	Addr     netip.Addr
	Hostname string // "" if the client gave none
	ClientID []byte // option 61, nil if the client gave none
}

func (l *Lab) newDHCPServer(o Options) error {
	dir := l.physDir()
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	s := &DHCPServer{
		lab:       l,
		dir:       dir,
		leaseFile: filepath.Join(dir, "leases"),
		pidFile:   filepath.Join(dir, "dnsmasq.pid"),
		logFile:   filepath.Join(dir, "dnsmasq.log"),
	}
	s.args = append([]string{
		"--keep-in-foreground", "--conf-file=/dev/null", "--user=root", "--port=0",
		"--interface=" + l.Phys.Bridge, "--bind-dynamic",
		fmt.Sprintf("--dhcp-range=%v,%v,%v,%d", o.RangeFirst, o.RangeLast,
			net.IP(net.CIDRMask(l.Phys.Subnet.Bits(), 32)), int(o.LeaseTime.Seconds())),
		"--dhcp-authoritative",
		"--no-ping", // else an offer waits for three seconds
		"--log-dhcp", "--log-facility=" + s.logFile,
		"--dhcp-leasefile=" + s.leaseFile, "--pid-file=" + s.pidFile,
	}, o.DNSMasqArgs...)
	l.DHCP = s
	return nil
}

// Start starts the server, with the leases it had when it was stopped, and
// returns when it listens. The lab has done so at first.
func (s *DHCPServer) Start(ctx context.Context) error {
	ctx, cancel := s.lab.bounded(ctx)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.daemon != nil {
		return errors.New("start dnsmasq: it is running")
	}
	d, err := s.lab.spawn(s.dir, "dnsmasq", s.lab.phys.command(context.Background(), "dnsmasq", s.args...))
	if err != nil {
		return err
	}
	s.daemon = d
	// It writes the file when its sockets are open.
	return await(ctx, "dnsmasq", func() bool {
		pid, err := os.ReadFile(s.pidFile)
		return err == nil && string(bytes.TrimSpace(pid)) == strconv.Itoa(d.process.Pid)
	})
}

// Stop makes the server silent: nothing answers until Start.
func (s *DHCPServer) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.daemon == nil {
		return nil
	}
	s.daemon.signal(syscall.SIGTERM)
	if err := s.daemon.wait(); err != nil {
		return err
	}
	s.daemon = nil
	return nil
}

// Log returns the server's log, with the options of each message.
func (s *DHCPServer) Log() string {
	log, err := os.ReadFile(s.logFile)
	if err != nil {
		return err.Error()
	}
	return string(log)
}

// Leases returns the leases in the server's lease file.
func (s *DHCPServer) Leases() ([]DHCPLease, error) {
	// The server truncates the file and writes it anew at each change. What
	// was read in between differs from what is read a moment later.
	before, err := s.readLeases()
	for err == nil {
		time.Sleep(time.Millisecond)
		var after string
		if after, err = s.readLeases(); after == before {
			break
		}
		before = after
	}
	if err != nil {
		return nil, err
	}
	return parseLeases(before)
}

func (s *DHCPServer) readLeases() (string, error) {
	data, err := os.ReadFile(s.leaseFile)
	if errors.Is(err, os.ErrNotExist) { // no lease yet
		err = nil
	}
	return string(data), err
}

// parseLeases reads dnsmasq's lease file: expiry, MAC, address, host name and
// client identifier, with "*" for what is not known.
func parseLeases(file string) ([]DHCPLease, error) {
	var leases []DHCPLease
	for line := range strings.Lines(file) {
		l, err := parseLease(strings.Fields(line))
		if err != nil {
			return nil, fmt.Errorf("lease %q: %w", strings.TrimSpace(line), err)
		}
		leases = append(leases, l)
	}
	return leases, nil
}

func parseLease(fields []string) (l DHCPLease, err error) {
	if len(fields) != 5 {
		return l, fmt.Errorf("%d fields, not 5", len(fields))
	}
	seconds, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		return l, err
	}
	if seconds != 0 {
		l.Expiry = time.Unix(seconds, 0)
	}
	if l.MAC, err = net.ParseMAC(fields[1]); err != nil {
		return l, err
	}
	if l.Addr, err = netip.ParseAddr(fields[2]); err != nil {
		return l, err
	}
	if fields[3] != "*" {
		l.Hostname = fields[3]
	}
	if fields[4] != "*" {
		if l.ClientID, err = parseHexColons(fields[4]); err != nil {
			return l, err
		}
	}
	return l, nil
}

func parseHexColons(s string) ([]byte, error) {
	b, err := hex.DecodeString(strings.ReplaceAll(s, ":", ""))
	if err != nil {
		return nil, fmt.Errorf("client identifier: %w", err)
	}
	return b, nil
}
