// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"
	"golang.org/x/sys/unix"
)

// How long to wait for an answer before sending again: little at first, since
// just after a link has come up the far side may not forward yet; then twice as
// long each time. A NAK is an answer, so the next attempt can wait.
const (
	firstWait    = 50 * time.Millisecond
	longestWait  = 4 * time.Second
	firstBackoff = 500 * time.Millisecond
	// A REQUEST is sent this often, within six seconds, then the client starts over.
	requestTries = 7
	// In INIT-REBOOT this often, within one and a half: silence is likely there.
	rebootTries = 5
)

// maxMessage is the message size that servers are allowed (option 57), in bytes.
// 576 without it, too little for many routes or search domains; this fits into one
// frame on any network that pods are on, so no reply comes in fragments.
const maxMessage = 1400

// conn is what the client speaks through; a Link, but for tests.
type conn interface {
	send(frame []byte) error
	// receive blocks until a frame has come or ctx is done.
	receive(ctx context.Context) ([]byte, error)
}

// port is a conn and what else a Link is.
type port interface {
	conn
	awaitCarrier(ctx context.Context) error
	receivedInVain() uint64
	Close() error
}

// errUnanswered ends a wait, or a number of tries, in which no answer came.
var errUnanswered = errors.New("no answer")

// Acquire gets a lease for the client cfg: INIT to BOUND of RFC 2131, 4.4.1. It
// goes on until it has a lease or ctx ends. In the latter case the error wraps
// ctx's, and says that the interface had no carrier or was down, or else is a
// *SilenceError that says what was sent and seen.
//
// All replies are asked for as broadcasts, but for cfg.Unicast: OVN's port security
// drops a unicast OFFER of another address than the port's.
func Acquire(ctx context.Context, link *Link, cfg Config) (Lease, error) {
	return acquireOn(ctx, link, link.name, cfg)
}

func acquireOn(ctx context.Context, p port, ifname string, cfg Config) (Lease, error) {
	if err := cfg.Check(); err != nil {
		return Lease{}, fmt.Errorf("checking DHCP client for %s: %w", ifname, err)
	}
	if err := p.awaitCarrier(ctx); err != nil {
		return Lease{}, fmt.Errorf("waiting for carrier on %s: %w", ifname, err)
	}
	lease, err := acquire(ctx, p, cfg)
	if silence, ok := errors.AsType[*SilenceError](err); ok {
		silence.Interface = ifname
		silence.Received = p.receivedInVain()
		return Lease{}, silence
	}
	if err != nil {
		return Lease{}, fmt.Errorf("acquiring lease on %s: %w", ifname, err)
	}
	return lease, nil
}

// exchange is one Acquire, or one try to prolong a lease, under way.
type exchange struct {
	conn  conn
	cfg   Config // with defaults
	began time.Time
	xid   dhcpv4.TransactionID
	// secs is what the last DISCOVER said; the REQUEST has to repeat it (RFC 2131, 3.1).
	secs uint16
	seen SilenceError
}

func newExchange(c conn, cfg Config) *exchange {
	x := &exchange{conn: c, cfg: cfg.withDefaults(), began: time.Now()}
	x.seen.Discarded = make(map[string]int)
	binary.NativeEndian.PutUint32(x.xid[:], rand.Uint32())
	return x
}

func acquire(ctx context.Context, c conn, cfg Config) (Lease, error) {
	x := newExchange(c, cfg)
	if former := x.cfg.former; former.IsValid() {
		x.cfg.RequestedAddr = former.Addr()
	}
	for {
		lease, err := x.attempt(ctx)
		refused, isRefusal := errors.AsType[*refusal](err)
		taken, isTaken := errors.AsType[*conflict](err)
		if (isRefusal || isTaken) && x.cfg.Denied != nil {
			if err := x.cfg.Denied(); err != nil {
				return Lease{}, fmt.Errorf("forgetting what is not the client's: %w", err)
			}
		}
		switch {
		case err == nil:
			return lease, nil
		case isTaken:
			x.cfg.RequestedAddr = netip.Addr{}
			x.seen.Conflict = taken.Error()
			pause(ctx, declineWait)
		case isRefusal:
			x.cfg.RequestedAddr = netip.Addr{} // it may be what the server does not want
			x.seen.NAK = refused.Error()
			pause(ctx, backoff(firstBackoff, x.seen.NAKs))
			x.seen.NAKs++
		case ctx.Err() == nil && !errors.Is(err, errUnanswered):
			return Lease{}, err
		}
		if ctx.Err() != nil {
			x.seen.Elapsed, x.seen.Err = time.Since(x.began), ctx.Err()
			return Lease{}, &x.seen
		}
	}
}

// attempt goes once from INIT, or the first time from INIT-REBOOT if there is a
// former lease, to BOUND.
func (x *exchange) attempt(ctx context.Context) (Lease, error) {
	lease, err := Lease{}, errUnanswered
	if former := x.cfg.former; former.IsValid() {
		x.cfg.former = netip.Prefix{}
		lease, err = x.reboot(ctx, former)
	}
	if errors.Is(err, errUnanswered) && ctx.Err() == nil {
		lease, err = x.discover(ctx)
	}
	if err == nil && x.cfg.Probe {
		err = x.probe(ctx, lease)
	}
	return lease, err
}

// reboot goes from INIT-REBOOT to BOUND: any server that knows the former lease
// may confirm it. A server that does not know it has to stay silent (RFC 2131,
// 4.3.2), so silence leads on to INIT.
func (x *exchange) reboot(ctx context.Context, former netip.Prefix) (Lease, error) {
	q := question{client: x.cfg, xid: x.xid, requested: true, held: former, sent: time.Now()}
	return x.ask(ctx, q, rebootTries, func() *dhcpv4.DHCPv4 {
		x.seen.Requests++
		m := x.message(dhcpv4.MessageTypeRequest)
		m.Options[dhcpv4.OptionRequestedIPAddress.Code()] = former.Addr().AsSlice()
		return m
	})
}

// discover goes from INIT to BOUND: the first useful OFFER is taken.
func (x *exchange) discover(ctx context.Context) (Lease, error) {
	binary.NativeEndian.PutUint32(x.xid[:], rand.Uint32())
	q := question{client: x.cfg, xid: x.xid, sent: time.Now()}
	offer, err := x.ask(ctx, q, 0, func() *dhcpv4.DHCPv4 {
		x.seen.Discovers++
		x.secs = uint16(min(time.Since(x.began)/time.Second, 0xffff))
		m := x.message(dhcpv4.MessageTypeDiscover)
		if x.cfg.RequestedAddr.IsValid() {
			m.Options[dhcpv4.OptionRequestedIPAddress.Code()] = x.cfg.RequestedAddr.AsSlice()
		}
		return m
	})
	if err != nil {
		return Lease{}, err
	}
	if x.cfg.Selected != nil {
		if err := x.cfg.Selected(offer.since(time.Now())); err != nil {
			return Lease{}, fmt.Errorf("selecting %s: %w", offer.Addr, err)
		}
	}
	// The lease may count from the first REQUEST, if that is the one that the
	// server answers.
	q.requested, q.server, q.sent = true, offer.Server, time.Now()
	return x.ask(ctx, q, requestTries, func() *dhcpv4.DHCPv4 {
		x.seen.Requests++
		m := x.message(dhcpv4.MessageTypeRequest)
		m.Options[dhcpv4.OptionRequestedIPAddress.Code()] = offer.Addr.Addr().AsSlice()
		m.Options[dhcpv4.OptionServerIdentifier.Code()] = offer.Server.AsSlice()
		return m
	})
}

// message returns what DISCOVER and REQUEST have in common.
func (x *exchange) message(kind dhcpv4.MessageType) *dhcpv4.DHCPv4 {
	m := clientMessage(kind, x.xid, x.cfg.HardwareAddr, x.cfg.ClientID)
	m.NumSeconds = x.secs
	m.Options[dhcpv4.OptionMaximumDHCPMessageSize.Code()] = binary.BigEndian.AppendUint16(nil, maxMessage)
	for code, value := range x.cfg.Options {
		m.Options[code] = value
	}
	if len(x.cfg.Request) > 0 {
		m.Options[dhcpv4.OptionParameterRequestList.Code()] = x.cfg.Request
	}
	if x.cfg.HostName != "" {
		m.Options[dhcpv4.OptionHostName.Code()] = []byte(x.cfg.HostName)
	}
	return m
}

// clientMessage returns what all messages of a client have in common.
func clientMessage(kind dhcpv4.MessageType, xid dhcpv4.TransactionID, hw net.HardwareAddr, clientID []byte) *dhcpv4.DHCPv4 {
	return &dhcpv4.DHCPv4{
		OpCode:        dhcpv4.OpcodeBootRequest,
		HWType:        iana.HWTypeEthernet,
		TransactionID: xid,
		ClientHWAddr:  hw,
		Options: dhcpv4.Options{
			dhcpv4.OptionDHCPMessageType.Code():  {byte(kind)},
			dhcpv4.OptionClientIdentifier.Code(): clientID,
		},
	}
}

// ask broadcasts a message, as often as tries says (0: until ctx ends), and
// returns the first answer to q.
func (x *exchange) ask(ctx context.Context, q question, tries int, message func() *dhcpv4.DHCPv4) (Lease, error) {
	from := netip.AddrPortFrom(netip.IPv4Unspecified(), dhcpv4.ClientPort)
	for try := 0; tries == 0 || try < tries; try++ {
		m := message()
		if try > 0 || !x.cfg.Unicast {
			m.SetBroadcast()
		}
		frame := udpFrame(x.cfg.HardwareAddr, etherBroadcast(), from, allServers(), m.ToBytes())
		if lease, err := x.try(ctx, q, frame, backoff(firstWait, try)); !errors.Is(err, errUnanswered) {
			return lease, err
		}
	}
	return Lease{}, errUnanswered
}

// allServers is where a client broadcasts to.
func allServers() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{255, 255, 255, 255}), dhcpv4.ServerPort)
}

// try sends a frame and returns the answer to q that comes within wait.
func (x *exchange) try(ctx context.Context, q question, frame []byte, wait time.Duration) (Lease, error) {
	err := x.conn.send(frame)
	if linkGone(err) {
		return Lease{}, fmt.Errorf("sending: %w", err)
	}
	x.seen.SendErr = err // any other is as good as a lost frame
	lease, answer := Lease{}, error(nil)
	err = await(ctx, x.conn, wait, func(frame []byte) bool {
		lease, answer = q.judge(frame)
		reason, discarded := errors.AsType[discard](answer)
		if discarded && reason != notDHCP {
			x.seen.Discarded[string(reason)]++
		}
		return !discarded
	})
	if err != nil {
		return Lease{}, err
	}
	return lease, answer
}

// linkGone reports whether a frame could not be sent because the interface, or the Link, is
// no more.
func linkGone(err error) bool { return errors.Is(err, unix.ENXIO) || errors.Is(err, net.ErrClosed) }

// await receives frames until take says that one was the answer. Its error is
// errUnanswered if that was not within wait.
func await(ctx context.Context, c conn, wait time.Duration, take func(frame []byte) bool) error {
	waiting, cancel := context.WithTimeoutCause(ctx, wait, errUnanswered)
	defer cancel()
	for {
		frame, err := c.receive(waiting)
		switch {
		case err != nil && waiting.Err() != nil:
			return context.Cause(waiting)
		case err != nil:
			return fmt.Errorf("receiving: %w", err)
		case take(frame):
			return nil
		}
	}
}

// backoff is how long to wait after the n-th try, n from 0: first, doubled each
// time, but not above longestWait; a quarter less or more at random, so that
// clients that started together do not stay together.
func backoff(first time.Duration, n int) time.Duration {
	d := longestWait
	if n < 10 {
		d = min(first<<n, longestWait)
	}
	return d*3/4 + rand.N(d/2)
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
