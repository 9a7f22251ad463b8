// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Kea is another DHCP server for the physical network, in dnsmasq's place: it can
// have leases of a few seconds.
type Kea struct {
	lab    *Lab
	dir    string
	daemon *daemon
}

// StartKea stops the lab's dnsmasq and starts Kea, with addresses that dnsmasq
// doesn't have and leases that last for so long.
func (l *Lab) StartKea(ctx context.Context, lease time.Duration) (*Kea, error) {
	if err := l.DHCP.Stop(); err != nil {
		return nil, err
	}
	k := &Kea{lab: l, dir: filepath.Join(l.physDir(), "kea")}
	if err := os.Mkdir(k.dir, 0o755); err != nil {
		return nil, err
	}
	config, err := json.Marshal(map[string]any{"Dhcp4": map[string]any{
		"interfaces-config": map[string]any{
			"interfaces": []string{l.Phys.Bridge}, "dhcp-socket-type": "raw",
			// In a lab that has just started the bridge may not have a carrier yet.
			"service-sockets-max-retries": 200, "service-sockets-retry-wait-time": 20,
		},
		"lease-database": map[string]any{"type": "memfile", "name": k.leaseFile(), "lfc-interval": 0},
		"valid-lifetime": int(lease.Seconds()),
		"subnet4": []any{map[string]any{
			"id": 1, "subnet": l.Phys.Subnet.String(),
			"pools":       []any{map[string]any{"pool": fmt.Sprintf("%v - %v", l.Phys.Host(200), l.Phys.Host(250))}},
			"option-data": []any{map[string]any{"name": "routers", "data": l.Phys.Gateway.String()}},
		}},
		"loggers": []any{map[string]any{"name": "kea-dhcp4", "severity": "INFO", "output_options": []any{map[string]any{"output": k.logFile()}}}},
	}})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(k.configFile(), config, 0o644); err != nil {
		return nil, err
	}
	return k, k.Start(ctx)
}

// Start starts Kea again after Stop, with the leases that it had then.
func (k *Kea) Start(ctx context.Context) (err error) {
	const started = "DHCP4_STARTED"
	before := strings.Count(k.Log(), started)
	cmd := k.lab.phys.command(context.WithoutCancel(ctx), "kea-dhcp4", "-c", k.configFile())
	cmd.Env = append(os.Environ(), "KEA_PIDFILE_DIR="+k.dir, "KEA_LOCKFILE_DIR=none", "KEA_DHCP_DATA_DIR="+k.dir)
	if k.daemon, err = k.lab.spawn(k.dir, "console", cmd); err != nil {
		return err
	}
	ctx, cancel := k.lab.bounded(ctx)
	defer cancel()
	return await(ctx, "Kea", func() bool { return strings.Count(k.Log(), started) > before })
}

// Stop ends Kea.
func (k *Kea) Stop() error {
	k.daemon.signal(syscall.SIGTERM)
	return k.daemon.wait()
}

func (k *Kea) configFile() string { return filepath.Join(k.dir, "config.json") }
func (k *Kea) leaseFile() string  { return filepath.Join(k.dir, "leases.csv") }
func (k *Kea) logFile() string    { return filepath.Join(k.dir, "kea.log") }

// Log returns the server's log.
func (k *Kea) Log() string {
	log, err := os.ReadFile(k.logFile())
	if err != nil {
		return err.Error()
	}
	return string(log)
}

// Holder is the MAC address of the client that an address is leased to; "" if it isn't
// leased. A released lease has a lifetime of 0 in Kea's file, whose last line about an
// address counts.
func (k *Kea) Holder(addr netip.Addr) (mac string) {
	data, err := os.ReadFile(k.leaseFile())
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Split(line, ",")
		if len(f) < 4 || f[0] != addr.String() {
			continue
		}
		if mac = f[1]; f[3] == "0" {
			mac = ""
		}
	}
	return mac
}

// granted finds the transaction of a granted lease in Kea's log.
var granted = regexp.MustCompile(`DHCP4_LEASE_ALLOC .* tid=(0x[0-9a-f]+):`)

// Transactions are the ids of the transactions in which Kea has granted a lease, each
// once however often a frame was repeated. A client renews with the id that it got its
// lease with, if it is udhcpc.
func (k *Kea) Transactions() []string {
	var ids []string
	for _, match := range granted.FindAllStringSubmatch(k.Log(), -1) {
		if !slices.Contains(ids, match[1]) {
			ids = append(ids, match[1])
		}
	}
	return ids
}
