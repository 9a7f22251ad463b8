// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/cniserver/watcher"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// leaseAt is a lease of an hour from now.
func leaseAt(addr string) dhcp.Lease {
	now := time.Now().Round(0).UTC()
	return dhcp.Lease{
		Addr: netip.MustParsePrefix(addr + "/24"), Gateway: netip.MustParseAddr("192.0.2.1"), Server: netip.MustParseAddr("192.0.2.2"),
		HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 7}, ClientID: []byte{1, 2}, Acquired: now, Expires: now.Add(time.Hour),
	}
}

// followed tests a security whose errands are noted, and fail as often as is said.
type followed struct {
	*security
	began time.Time

	noting   sync.Mutex // of what follows
	did      []string
	failures int
	learned  *dhcp.Lease
}

// runSecurity runs one in a bubble, with one port that had a lease discovered.
func runSecurity(t *testing.T, change func(*guestPort), test func(*followed)) {
	synctest.Test(t, func(t *testing.T) {
		f := &followed{began: time.Now()}
		var err error
		if f.security, err = newSecurity(slog.New(slog.DiscardHandler), f.note); err != nil {
			t.Fatal(err)
		}
		state, _ := watcher.NewState(time.Now()).Next(time.Now(), watcher.Probed{Lease: leaseAt("192.0.2.10")})
		port := &guestPort{state: state}
		change(port)
		f.ports["vm"] = port
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.run(ctx) }()
		synctest.Wait()
		test(f)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// note notes an errand. It takes a while, as a real one does.
func (f *followed) note(ctx context.Context, _ string, e errand) (errand, *dhcp.Lease, error) {
	said := time.Since(f.began).String()
	for _, event := range e.events {
		said += " " + event.Reason
	}
	if e.publish {
		said += fmt.Sprintf(" %s %s", e.state.Published.State, e.state.Published.Addr.Addr())
	}
	if e.unused != nil {
		said += " release " + e.unused.Addr.Addr().String()
	}
	if e.look {
		said += " look"
	}
	f.noting.Lock()
	f.did = append(f.did, said)
	f.noting.Unlock()
	select {
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
		return e, nil, ctx.Err()
	}
	f.noting.Lock()
	defer f.noting.Unlock()
	if f.failures > 0 {
		f.failures--
		return errand{publish: e.publish, unused: e.unused}, nil, errors.New("no answer")
	}
	return errand{}, f.learned, nil
}

func (f *followed) see(seen ...watcher.Sighting) {
	for _, e := range seen {
		f.observe(watcher.Observation{Key: "vm", At: time.Now(), Seen: e})
	}
}

func (f *followed) want(t *testing.T, after time.Duration, want ...string) {
	t.Helper()
	time.Sleep(after)
	synctest.Wait()
	f.noting.Lock()
	defer f.noting.Unlock()
	if diff := cmp.Diff(want, f.did); diff != "" {
		t.Errorf("errands (-want +got):\n%s", diff)
	}
	f.did = nil
}

// set sets how often the next errands fail, and what is learned by the others.
func (f *followed) set(failures int, learned *dhcp.Lease) {
	f.noting.Lock()
	defer f.noting.Unlock()
	f.failures, f.learned = failures, learned
}

func arpOf(addr string) watcher.ARP { return watcher.ARP{Sender: netip.MustParseAddr(addr)} }

// TestSecurityFollows: what comes up during an errand is one more, with the latest
// state.
func TestSecurityFollows(t *testing.T) {
	runSecurity(t, func(*guestPort) {}, func(f *followed) {
		f.see(watcher.Ack{Lease: leaseAt("192.0.2.20")})
		synctest.Wait()
		f.see(watcher.Discover{}, watcher.Ack{Lease: leaseAt("192.0.2.30")}, watcher.Discover{})
		f.want(t, time.Second,
			"0s DHCPAddressChanged bound 192.0.2.20 release 192.0.2.10",
			"100ms DHCPAddressChanged open 192.0.2.30")
		f.see(watcher.Request{}, arpOf("192.0.2.30"), watcher.RARP{})
		f.want(t, 5*time.Second)
	})
}

// TestSecurityTriesAgain: what fails is done again, ever less often, and at once when
// there is news.
func TestSecurityTriesAgain(t *testing.T) {
	runSecurity(t, func(*guestPort) {}, func(f *followed) {
		f.set(4, nil)
		f.see(watcher.Ack{Lease: leaseAt("192.0.2.20")})
		f.want(t, 5*time.Second,
			"0s DHCPAddressChanged bound 192.0.2.20 release 192.0.2.10",
			"1.1s bound 192.0.2.20 release 192.0.2.10",
			"3.2s bound 192.0.2.20 release 192.0.2.10")
		f.see(watcher.Discover{})
		f.want(t, 50*time.Second, "5s open 192.0.2.20 release 192.0.2.10", "6.1s open 192.0.2.20 release 192.0.2.10")
	})
}

// TestSecurityResumes: what a former daemon had not done is done.
func TestSecurityResumes(t *testing.T) {
	unused := leaseAt("192.0.2.99")
	runSecurity(t, func(p *guestPort) { p.todo = errand{publish: true, unused: &unused} }, func(f *followed) {
		f.want(t, time.Second, "0s open 192.0.2.10 release 192.0.2.99")
	})
}

// TestSecurityDeadline: a port that is open for long, and a lease that ends, are seen
// without anything happening.
func TestSecurityDeadline(t *testing.T) {
	runSecurity(t, func(*guestPort) {}, func(f *followed) {
		f.want(t, 2*time.Hour, "1m0s PortSecurityOpen", "1h0m0s DHCPProbeExpired open invalid IP")
	})
}

// TestSecurityServes: a guest that may be a DHCP server is not reported.
func TestSecurityServes(t *testing.T) {
	for _, serves := range []bool{false, true} {
		runSecurity(t, func(p *guestPort) { p.serves = serves }, func(f *followed) {
			f.see(watcher.ServerTraffic{})
			if serves {
				f.want(t, time.Second)
			} else {
				f.want(t, time.Second, "0s DHCPServerBlocked")
			}
		})
	}
}

// TestSecurityLooks: the annotation is read only while a guest that may choose its
// address claims an unknown one, and not more often than once a second.
func TestSecurityLooks(t *testing.T) {
	runSecurity(t, func(*guestPort) {}, func(f *followed) {
		f.see(arpOf("192.0.2.20"))
		f.want(t, time.Second)
	})
	runSecurity(t, func(p *guestPort) { p.state.Chooses = true }, func(f *followed) {
		f.see(arpOf("192.0.2.20"), arpOf("0.0.0.0"), arpOf("192.0.2.21"))
		f.want(t, 3*time.Second, "200ms look", "1.3s look", "2.4s look")
		own := leaseAt("192.0.2.10")
		f.set(0, &own) // of before
		f.want(t, time.Second, "3.5s look")
		f.set(0, &dhcp.Lease{Addr: netip.MustParsePrefix("192.0.2.21/24"), HardwareAddr: own.HardwareAddr})
		f.want(t, time.Minute, "4.6s look", "4.7s DHCPAddressChanged bound 192.0.2.21 release 192.0.2.10")
		f.set(0, nil)
		f.see(arpOf("192.0.2.22"))
		f.want(t, 2*time.Second, "1m4s open 192.0.2.21", "1m4.2s look", "1m5.3s look")
		f.want(t, time.Minute,
			"1m6.4s look", "1m7.5s look", "1m8.6s look", "1m9.7s look", "1m10.8s look", "1m11.9s look", "1m13s look", "2m4s PortSecurityOpen")
	})
}

// TestSecurityForgets: when a port is forgotten, its errand ends.
func TestSecurityForgets(t *testing.T) {
	runSecurity(t, func(*guestPort) {}, func(f *followed) {
		f.set(100, nil)
		f.see(watcher.Ack{Lease: leaseAt("192.0.2.20")})
		synctest.Wait()
		f.forget("vm")
		f.see(watcher.Discover{})
		f.want(t, time.Hour, "0s DHCPAddressChanged bound 192.0.2.20 release 192.0.2.10")
	})
}

// TestSecurityGone: nothing is done for an interface that is gone.
func TestSecurityGone(t *testing.T) {
	runSecurity(t, func(*guestPort) {}, func(f *followed) {
		f.see(watcher.Gone{}, watcher.Ack{Lease: leaseAt("192.0.2.20")})
		f.want(t, 2*time.Hour)
	})
}

// TestSecurityBounded: a guest that starts over all the time has its state recorded
// once a second.
func TestSecurityBounded(t *testing.T) {
	runSecurity(t, func(*guestPort) {}, func(f *followed) {
		for range 1000 {
			f.see(watcher.Discover{}, watcher.Ack{Lease: leaseAt("192.0.2.10")})
			time.Sleep(50 * time.Millisecond)
		}
		f.noting.Lock()
		defer f.noting.Unlock()
		if n := len(f.did); n < 12 || n > 65 {
			t.Errorf("%d errands in 50 s", n)
		}
	})
}

func TestOurs(t *testing.T) {
	now := time.Now()
	probe := leaseAt("192.0.2.10")
	with := func(addr string, change func(*dhcp.Lease)) dhcp.Lease {
		l := leaseAt(addr)
		change(&l)
		return l
	}
	duid := func(l *dhcp.Lease) { l.ClientID = []byte{255, 1} }
	for _, c := range []struct {
		name  string
		guest dhcp.Lease
		at    time.Time
		want  bool
	}{
		{"the guest's client has another identifier", with("192.0.2.20", duid), now, true},
		{"another server has granted it", with("192.0.2.20", func(l *dhcp.Lease) { l.Server = netip.MustParseAddr("192.0.2.3") }), now, true},
		{"it is static", dhcp.Lease{Addr: netip.MustParsePrefix("192.0.2.20/24")}, now, true},
		{"it has none", dhcp.Lease{}, now, true},
		{"it has come to have the address", with("192.0.2.10", duid), now, false},
		{"the server has moved the client", leaseAt("192.0.2.20"), now, false},
		{"it has ended", with("192.0.2.20", duid), now.Add(2 * time.Hour), false},
	} {
		if got := ours(probe, c.guest, c.at); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestPublicationEntry goes from what is published to what the controller learns, and
// back.
func TestPublicationEntry(t *testing.T) {
	lease := leaseAt("192.0.2.10")
	p := watcher.Publication{State: podnet.StateOpen, Addr: lease.Addr, Gateway: lease.Gateway, Server: lease.Server, Expires: lease.Expires}
	chosen := watcher.Publication{State: podnet.StateBound, Addr: lease.Addr, Gateway: lease.Gateway, Server: lease.Server}
	for _, c := range []struct {
		publication watcher.Publication
		want        string
		learned     bool
	}{
		{p, `"ip_addresses":["192.0.2.10/24"],"mac_address":"02:00:00:00:00:07","gateway_ips":["192.0.2.1"],"ip_address":"192.0.2.10/24","gateway_ip":"192.0.2.1","role":"secondary","ipam_mode":"dhcp","dhcp":{"state":"open","expires":"` +
			lease.Expires.Truncate(time.Second).Format(time.RFC3339) + `","server":"192.0.2.2"}`, false},
		{chosen, `"ip_addresses":["192.0.2.10/24"],"mac_address":"02:00:00:00:00:07","gateway_ips":["192.0.2.1"],"ip_address":"192.0.2.10/24","gateway_ip":"192.0.2.1","role":"secondary","ipam_mode":"dhcp","dhcp":{"state":"bound","server":"192.0.2.2"}`, true},
		{watcher.Publication{State: podnet.StateOpen}, `"ip_addresses":null,"mac_address":"02:00:00:00:00:07","role":"secondary","ipam_mode":"dhcp","dhcp":{"state":"open"}`, false},
		{watcher.Publication{State: podnet.StateLost}, `"ip_addresses":null,"mac_address":"02:00:00:00:00:07","role":"secondary","ipam_mode":"dhcp","dhcp":{"state":"lost"}`, false},
	} {
		e := publicationEntry(lease.HardwareAddr, c.publication)
		networks, err := podnet.Networks{}.With("ns/nad", e)
		if err != nil {
			t.Fatal(err)
		}
		want, err := podnet.ParseNetworks(`{"ns/nad":{` + c.want + `}}`)
		if err != nil {
			t.Fatal(err)
		}
		wantEntry, _, err := want.Entry("ns/nad")
		if err != nil {
			t.Fatal(err)
		}
		if want, err = (podnet.Networks{}).With("ns/nad", wantEntry); err != nil || want.String() != networks.String() {
			t.Errorf("%v: %s, want %s (%v)", c.publication, networks, want, err)
		}
		if learned := learnedLease(e, lease.HardwareAddr); (learned != nil) != c.learned || c.learned && (learned.Addr != lease.Addr || learned.Gateway != lease.Gateway || learned.Server != lease.Server) {
			t.Errorf("%v: learned %v", c.publication, learned)
		}
	}
}
