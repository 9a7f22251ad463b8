// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/insomniacslk/dhcp/dhcpv4"
)

var (
	compareAddrs = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})
	testXID      = dhcpv4.TransactionID{1, 2, 3, 4}
	requestedAt  = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
)

func selecting() question {
	return question{client: Config{HardwareAddr: clientHW, HostName: "web-0"}.withDefaults(), xid: testXID}
}

func requesting() question {
	q := selecting()
	q.requested, q.server, q.sent = true, serverIP, requestedAt
	return q
}

func renewing() question {
	q := requesting()
	q.held, q.moves = netip.PrefixFrom(leasedIP, 24), true
	return q
}

// rebooting is the question of a client in INIT-REBOOT.
func rebooting() question {
	q := rebinding()
	q.moves = false
	return q
}

func rebinding() question {
	q := renewing()
	q.server = netip.Addr{}
	return q
}

// granted is the lease of an unedited ACK, with changes.
func granted(change func(*Lease)) Lease {
	l := Lease{
		Addr:         netip.PrefixFrom(leasedIP, 24),
		Server:       serverIP,
		ServerHW:     serverHW,
		HardwareAddr: clientHW,
		ClientID:     append([]byte{1}, clientHW...),
		HostName:     "web-0",
		Acquired:     requestedAt,
		Renew:        requestedAt.Add(30 * time.Minute),
		Rebind:       requestedAt.Add(52*time.Minute + 30*time.Second),
		Expires:      requestedAt.Add(time.Hour),
	}
	if change != nil {
		change(&l)
	}
	return l
}

func yiaddr(s string) edit {
	return func(m *dhcpv4.DHCPv4) { m.YourIPAddr = net.ParseIP(s) }
}

// TestJudgeDiscards holds a rule for each thing that can be wrong with an answer.
func TestJudgeDiscards(t *testing.T) {
	for name, test := range map[string]struct {
		edits []edit
		want  discard
	}{
		"op":           {[]edit{func(m *dhcpv4.DHCPv4) { m.OpCode = dhcpv4.OpcodeBootRequest }}, "not a reply"},
		"chaddr":       {[]edit{func(m *dhcpv4.DHCPv4) { m.ClientHWAddr = serverHW }}, "for another client"},
		"chaddr short": {[]edit{func(m *dhcpv4.DHCPv4) { m.ClientHWAddr = clientHW[:5] }}, "for another client"},
		"xid":          {[]edit{func(m *dhcpv4.DHCPv4) { m.TransactionID[3]++ }}, "of another transaction"},

		"server id missing":   {[]edit{option(dhcpv4.OptionServerIdentifier)}, "without server identifier"},
		"server id zero":      {[]edit{option(dhcpv4.OptionServerIdentifier, 0, 0, 0, 0)}, "without server identifier"},
		"server id broadcast": {[]edit{option(dhcpv4.OptionServerIdentifier, 255, 255, 255, 255)}, "without server identifier"},
		"server id long":      {[]edit{option(dhcpv4.OptionServerIdentifier, 192, 0, 2, 1, 192, 0, 2, 1)}, "without server identifier"},

		"unspecified":    {[]edit{yiaddr("0.0.0.0")}, "with an address that can't be a host's"},
		"this network":   {[]edit{yiaddr("0.1.2.3")}, "with an address that can't be a host's"},
		"multicast":      {[]edit{yiaddr("224.0.0.1")}, "with an address that can't be a host's"},
		"broadcast":      {[]edit{yiaddr("255.255.255.255")}, "with an address that can't be a host's"},
		"loopback":       {[]edit{yiaddr("127.0.0.53")}, "with an address that can't be a host's"},
		"net's own":      {[]edit{yiaddr("192.0.2.0")}, "with its subnet's own or broadcast address"},
		"net's bcast":    {[]edit{yiaddr("192.0.2.255")}, "with its subnet's own or broadcast address"},
		"mask odd":       {[]edit{option(dhcpv4.OptionSubnetMask, 255, 0, 255, 0)}, "with a malformed subnet mask"},
		"mask short":     {[]edit{option(dhcpv4.OptionSubnetMask, 255, 255)}, "with a malformed subnet mask"},
		"mask zero":      {[]edit{option(dhcpv4.OptionSubnetMask, 0, 0, 0, 0)}, "with a malformed subnet mask"},
		"mask /7":        {[]edit{option(dhcpv4.OptionSubnetMask, 254, 0, 0, 0)}, "with a malformed subnet mask"},
		"lease missing":  {[]edit{option(dhcpv4.OptionIPAddressLeaseTime)}, "without lease time"},
		"lease zero":     {[]edit{option(dhcpv4.OptionIPAddressLeaseTime, 0, 0, 0, 0)}, "without lease time"},
		"lease short":    {[]edit{option(dhcpv4.OptionIPAddressLeaseTime, 1, 0)}, "without lease time"},
		"overload short": {[]edit{option(dhcpv4.OptionOptionOverload, 1), func(m *dhcpv4.DHCPv4) { m.BootFileName = "\x06\xff" }}, "malformed message"},
	} {
		t.Run(name, func(t *testing.T) {
			for state, q := range map[string]question{"offer": selecting(), "ack": requesting()} {
				kind := dhcpv4.MessageTypeOffer
				if state == "ack" {
					kind = dhcpv4.MessageTypeAck
				}
				lease, err := q.judge(serverFrame(answer(testXID, kind, test.edits...)))
				if err != test.want {
					t.Errorf("%s: got lease %v, error %v, want %q", state, lease.Addr, err, test.want)
				}
			}
		})
	}
}

// TestJudgeTurn tells which message counts in which state.
func TestJudgeTurn(t *testing.T) {
	other := option(dhcpv4.OptionServerIdentifier, 192, 0, 2, 2)
	for name, test := range map[string]struct {
		q     question
		kind  dhcpv4.MessageType
		edits []edit
		want  error
	}{
		"offer":                           {q: selecting(), kind: dhcpv4.MessageTypeOffer},
		"offer of any server":             {q: selecting(), kind: dhcpv4.MessageTypeOffer, edits: []edit{other}},
		"ack unasked":                     {q: selecting(), kind: dhcpv4.MessageTypeAck, want: discard("of type ACK, out of turn")},
		"nak unasked":                     {q: selecting(), kind: dhcpv4.MessageTypeNak, want: discard("of type NAK, out of turn")},
		"bootp":                           {q: selecting(), edits: []edit{option(dhcpv4.OptionDHCPMessageType)}, want: discard("of type unknown (0), out of turn")},
		"ack":                             {q: requesting(), kind: dhcpv4.MessageTypeAck},
		"ack, another address":            {q: requesting(), kind: dhcpv4.MessageTypeAck, edits: []edit{yiaddr("192.0.2.78")}},
		"ack, another server":             {q: requesting(), kind: dhcpv4.MessageTypeAck, edits: []edit{other}, want: discard("of another server")},
		"offer repeated":                  {q: requesting(), kind: dhcpv4.MessageTypeOffer, want: discard("of type OFFER, out of turn")},
		"nak":                             {q: requesting(), kind: dhcpv4.MessageTypeNak, edits: []edit{yiaddr("0.0.0.0"), option(dhcpv4.OptionMessage, []byte("no\n")...)}, want: &refusal{serverIP, "no\n"}},
		"renewing, ack":                   {q: renewing(), kind: dhcpv4.MessageTypeAck},
		"renewing, ack without mask":      {q: renewing(), kind: dhcpv4.MessageTypeAck, edits: []edit{option(dhcpv4.OptionSubnetMask)}},
		"renewing, another server":        {q: renewing(), kind: dhcpv4.MessageTypeAck, edits: []edit{other}, want: discard("of another server")},
		"renewing, nak of another server": {q: renewing(), kind: dhcpv4.MessageTypeNak, edits: []edit{other}, want: discard("of another server")},
		"renewing, another address":       {q: renewing(), kind: dhcpv4.MessageTypeAck, edits: []edit{yiaddr("192.0.2.78")}},
		"rebinding, another server":       {q: rebinding(), kind: dhcpv4.MessageTypeAck, edits: []edit{other}},
		"rebinding, nak":                  {q: rebinding(), kind: dhcpv4.MessageTypeNak, want: &refusal{serverIP, ""}},
		"rebinding, offer":                {q: rebinding(), kind: dhcpv4.MessageTypeOffer, want: discard("of type OFFER, out of turn")},
		"rebooting, ack":                  {q: rebooting(), kind: dhcpv4.MessageTypeAck, edits: []edit{other}},
		"rebooting, another address":      {q: rebooting(), kind: dhcpv4.MessageTypeAck, edits: []edit{yiaddr("192.0.2.78")}, want: &refusal{serverIP, "granted 192.0.2.78 instead"}},
		"nak, another server":             {q: requesting(), kind: dhcpv4.MessageTypeNak, edits: []edit{other}, want: discard("of another server")},
	} {
		t.Run(name, func(t *testing.T) {
			lease, err := test.q.judge(serverFrame(answer(testXID, test.kind, test.edits...)))
			if diff := cmp.Diff(test.want, err, cmp.AllowUnexported(refusal{}), compareAddrs); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if got := lease.Addr.IsValid(); got != (test.want == nil) {
				t.Errorf("lease %v, want error %v", lease.Addr, test.want)
			}
		})
	}
	if got, want := (&refusal{serverIP, "no\n"}).Error(), `NAK from 192.0.2.1: "no\n"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestJudgeTruncated cuts a good ACK everywhere: whatever is missing, it is no lease.
func TestJudgeTruncated(t *testing.T) {
	m := answer(testXID, dhcpv4.MessageTypeAck, option(dhcpv4.OptionHostName, []byte(strings.Repeat("x", 200))...))
	payload := m.ToBytes()
	payload = payload[:1+strings.LastIndexByte(string(payload), dhcpv4.OptionEnd.Code())]
	if _, err := requesting().judge(payloadFrame(payload)); err != nil {
		t.Fatalf("whole message: %v", err)
	}
	for n := range payload {
		if _, err := requesting().judge(payloadFrame(payload[:n])); err == nil {
			t.Errorf("message of %d bytes cut to %d is a lease", len(payload), n)
		}
	}
	frame := serverFrame(m)
	for n := range frame {
		if _, err := requesting().judge(frame[:n]); !errors.Is(err, notDHCP) {
			t.Errorf("frame of %d bytes cut to %d: %v", len(frame), n, err)
		}
	}
}

func TestJudgeLease(t *testing.T) {
	routes121 := []byte{24, 198, 51, 100, 192, 0, 2, 9, 0, 192, 0, 2, 254}
	for name, test := range map[string]struct {
		edits []edit
		want  func(*Lease)
	}{
		"plain": {},
		"all options": {
			[]edit{
				option(dhcpv4.OptionRouter, 192, 0, 2, 1), option(dhcpv4.OptionDomainNameServer, 192, 0, 2, 5, 0, 0, 0, 0, 9, 9, 9, 9),
				option(dhcpv4.OptionDomainName, []byte("example.org.\x00")...), option(dhcpv4.OptionInterfaceMTU, 0x05, 0x78),
				option(dhcpv4.OptionDNSDomainSearchList, []byte("\x01a\x07example\x03org\x00\x01b\xc0\x02\x03bad\x02\nx\x00")...),
			},
			func(l *Lease) {
				l.Gateway, l.MTU, l.Domain = netip.MustParseAddr("192.0.2.1"), 1400, "example.org"
				l.DNS = []netip.Addr{netip.MustParseAddr("192.0.2.5"), netip.MustParseAddr("9.9.9.9")}
				l.Search = []string{"a.example.org", "b.example.org"}
			},
		},
		"no mask": {
			[]edit{option(dhcpv4.OptionSubnetMask)},
			func(l *Lease) { l.Addr = netip.PrefixFrom(leasedIP, 32) },
		},
		"host mask, gateway off link": {
			[]edit{option(dhcpv4.OptionSubnetMask, 255, 255, 255, 255), option(dhcpv4.OptionRouter, 198, 51, 100, 1)},
			func(l *Lease) {
				l.Addr, l.Gateway = netip.PrefixFrom(leasedIP, 32), netip.MustParseAddr("198.51.100.1")
			},
		},
		"point to point": {
			[]edit{option(dhcpv4.OptionSubnetMask, 255, 255, 255, 254), yiaddr("192.0.2.76")},
			func(l *Lease) { l.Addr = netip.MustParsePrefix("192.0.2.76/31") },
		},
		"for ever": {
			[]edit{option(dhcpv4.OptionIPAddressLeaseTime, 255, 255, 255, 255), option(dhcpv4.OptionRenewTimeValue, 0, 0, 0, 9)},
			func(l *Lease) { l.Renew, l.Rebind, l.Expires = time.Time{}, time.Time{}, time.Time{} },
		},
		"names that are none": {
			[]edit{option(dhcpv4.OptionDomainName, []byte("a b;reboot")...), option(dhcpv4.OptionDNSDomainSearchList, 0x3f, 'x')},
			nil,
		},
		"MTU too small":           {[]edit{option(dhcpv4.OptionInterfaceMTU, 0, 68)}, nil},
		"classless before router": {[]edit{option(dhcpv4.OptionRouter, 192, 0, 2, 1), option(dhcpv4.OptionClasslessStaticRoute, routes121...)}, withRoutes121},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := requesting().judge(serverFrame(answer(testXID, dhcpv4.MessageTypeAck, test.edits...)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(granted(test.want), got, compareAddrs); diff != "" {
				t.Errorf("lease (-want +got):\n%s", diff)
			}
		})
	}
}

func withRoutes121(l *Lease) {
	l.Gateway = netip.MustParseAddr("192.0.2.254")
	l.Routes = []Route{{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParseAddr("192.0.2.9")}}
}

func TestTimers(t *testing.T) {
	const s = time.Second
	for name, test := range map[string]struct {
		period      uint32
		t1, t2      []byte
		want1, want time.Duration
	}{
		"absent":      {period: 800, want1: 400 * s, want: 700 * s},
		"given":       {period: 800, t1: []byte{0, 0, 0, 100}, t2: []byte{0, 0, 0, 200}, want1: 100 * s, want: 200 * s},
		"t1 only":     {period: 800, t1: []byte{0, 0, 0, 100}, want1: 100 * s, want: 700 * s},
		"t2 only":     {period: 800, t2: []byte{0, 0, 2, 0}, want1: 400 * s, want: 512 * s},
		"t1 after t2": {period: 800, t1: []byte{0, 0, 0, 200}, t2: []byte{0, 0, 0, 100}, want1: 400 * s, want: 700 * s},
		"t1 zero":     {period: 800, t1: []byte{0, 0, 0, 0}, want1: 400 * s, want: 700 * s},
		"t2 at end":   {period: 200, t1: []byte{0, 0, 0, 100}, t2: []byte{0, 0, 0, 200}, want1: 100 * s, want: 175 * s},
		"malformed":   {period: 800, t1: []byte{1}, want1: 400 * s, want: 700 * s},
		"one second":  {period: 1, want1: s / 2, want: s / 8 * 7},
		"longest":     {period: 0xfffffffe, want1: 0xfffffffe * s / 2, want: 0xfffffffe * s / 8 * 7},
	} {
		t.Run(name, func(t *testing.T) {
			o := dhcpv4.Options{}
			if test.t1 != nil {
				o[dhcpv4.OptionRenewTimeValue.Code()] = test.t1
			}
			if test.t2 != nil {
				o[dhcpv4.OptionRebindingTimeValue.Code()] = test.t2
			}
			t1, t2, end := timers(test.period, o)
			if t1 != test.want1 || t2 != test.want || end != time.Duration(test.period)*s {
				t.Errorf("got %v, %v, %v, want %v, %v", t1, t2, end, test.want1, test.want)
			}
		})
	}
}

// TestDecodeOverload reads options from the fields file and sname.
func TestDecodeOverload(t *testing.T) {
	payload := answer(testXID, dhcpv4.MessageTypeAck, option(dhcpv4.OptionOptionOverload, 3)).ToBytes()
	copy(payload[108:], "\x79\x0d\x18\xc6\x33\x64\xc0\x00\x02\x09\x00\xc0\x00\x02\xfe\xff")
	copy(payload[44:], "\x0f\x0bexample.org\xff")
	got, err := requesting().judge(payloadFrame(payload))
	if err != nil {
		t.Fatal(err)
	}
	want := granted(func(l *Lease) { withRoutes121(l); l.Domain = "example.org" })
	if diff := cmp.Diff(want, got, compareAddrs); diff != "" {
		t.Errorf("lease (-want +got):\n%s", diff)
	}
}

// FuzzJudge holds that no message, whatever its bytes, panics or makes a lease
// that the rules forbid.
func FuzzJudge(f *testing.F) {
	for _, edits := range [][]edit{
		nil,
		{option(dhcpv4.OptionClasslessStaticRoute, 24, 198, 51, 100, 192, 0, 2, 9, 0, 192, 0, 2, 254)},
		{option(optionClasslessRoutesMS, 32, 198, 51, 100, 7, 0, 0, 0, 0)},
		{option(dhcpv4.OptionRouter, 192, 0, 2, 1), option(dhcpv4.OptionStaticRoutingTable, 10, 0, 0, 0, 192, 0, 2, 1)},
		{option(dhcpv4.OptionDNSDomainSearchList, []byte("\x01a\x00\x01b\xc0\x00")...), option(dhcpv4.OptionDomainName, 'x')},
		{option(dhcpv4.OptionInterfaceMTU, 2, 64), option(dhcpv4.OptionRenewTimeValue, 0, 0, 0, 9), option(dhcpv4.OptionDomainNameServer, 9, 9, 9, 9)},
		{option(dhcpv4.OptionOptionOverload, 3), option(dhcpv4.OptionSubnetMask)},
		// What breaks a rule each.
		{yiaddr("192.0.2.0")},
		{yiaddr("192.0.2.255")},
		{yiaddr("192.0.2.78")},
		{option(dhcpv4.OptionSubnetMask, 254, 0, 0, 0)},
		{option(dhcpv4.OptionRouter, leasedIP.AsSlice()...)},
		{option(dhcpv4.OptionClasslessStaticRoute, 24, 198, 51, 100, 192, 0, 2, 77)},
		{option(dhcpv4.OptionDomainName, []byte("a..b")...), option(dhcpv4.OptionDNSDomainSearchList, []byte("\x02a-\x00")...)},
	} {
		f.Add(answer(testXID, dhcpv4.MessageTypeAck, edits...).ToBytes())
		f.Add(answer(testXID, dhcpv4.MessageTypeOffer, edits...).ToBytes())
	}
	f.Add(serverFrame(answer(testXID, dhcpv4.MessageTypeAck)))
	nak, _ := hex.DecodeString("020106000102030400000000")
	f.Add(nak)
	f.Fuzz(func(t *testing.T, input []byte) {
		if len(input) > 1400 {
			return
		}
		for _, frame := range [][]byte{input, payloadFrame(input)} {
			for _, q := range []question{selecting(), requesting(), renewing(), rebinding(), rebooting()} {
				lease, err := q.judge(frame)
				if err != nil {
					continue
				}
				checkLease(t, lease)
				if q.held.IsValid() && !q.moves && lease.Addr.Addr() != q.held.Addr() {
					t.Errorf("confirmed %v as %v", q.held, lease.Addr)
				}
			}
		}
		_, _ = arpAnswer(input, leasedIP, serverIP)
	})
}

// domainName1123 is a name by RFC 1123, 2.1, with the underscores of RFC 8552.
var domainName1123 = regexp.MustCompile(`^\w([\w-]{0,61}\w)?(\.\w([\w-]{0,61}\w)?)*$`)

// checkLease checks what Lease promises, in other words than the code's.
func checkLease(t *testing.T, l Lease) {
	t.Helper()
	host := func(what string, a netip.Addr) {
		if !a.Is4() || a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.String() == "255.255.255.255" || strings.HasPrefix(a.String(), "0.") {
			t.Errorf("%s is %v", what, a)
		}
	}
	router := func(what string, a netip.Addr) {
		if host(what, a); a == l.Addr.Addr() {
			t.Errorf("%s is the client itself", what)
		}
	}
	host("address", l.Addr.Addr())
	host("server", l.Server)
	if bits := l.Addr.Bits(); bits < 8 || bits > 32 {
		t.Errorf("prefix %v", l.Addr)
	} else if all := uint32(1)<<(32-bits) - 1; bits < 31 {
		if number := binary.BigEndian.Uint32(l.Addr.Addr().AsSlice()) & all; number == 0 || number == all {
			t.Errorf("%v is its subnet's own or broadcast address", l.Addr)
		}
	}
	if l.Gateway.IsValid() {
		router("gateway", l.Gateway)
	}
	for _, a := range l.DNS {
		host("DNS server", a)
	}
	for _, r := range l.Routes {
		if !r.Dst.IsValid() || r.Dst.Bits() == 0 || r.Dst != r.Dst.Masked() {
			t.Errorf("route to %v", r.Dst)
		}
		if r.Gateway.IsValid() {
			router("route's gateway", r.Gateway)
		}
	}
	names := l.Search
	if l.Domain != "" {
		names = append(names, l.Domain)
	}
	for _, name := range names {
		if len(name) > 253 || !domainName1123.MatchString(name) {
			t.Errorf("name %q", name)
		}
	}
	if l.MTU != 0 && (l.MTU < 576 || l.MTU > 65535) {
		t.Errorf("MTU %d", l.MTU)
	}
	ordered := l.Acquired.Before(l.Renew) && l.Renew.Before(l.Rebind) && l.Rebind.Before(l.Expires)
	if !ordered && !(l.Renew.IsZero() && l.Rebind.IsZero() && l.Expires.IsZero()) {
		t.Errorf("times %v %v %v %v", l.Acquired, l.Renew, l.Rebind, l.Expires)
	}
}
