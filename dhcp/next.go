// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import "time"

// action is what is to be done for a record.
type action int

const (
	idle      action = iota // nothing, until a caller wants something
	renew                   // RENEWING: ask the lease's server for more time
	rebind                  // REBINDING: ask all servers
	expire                  // the address must no longer be used
	startOver               // INIT, or INIT-REBOOT
	giveBack                // RELEASE
	drop                    // forget a lease that has ended
	tell                    // have the caller follow a change
)

// progress is what a Keeper remembers of a record beside what is on disk.
type progress struct {
	// asked is when the last exchange began, and failures how many in a row have
	// failed.
	asked    time.Time
	failures int
	// told is when the caller was last told in vain, and refusals how often in a
	// row.
	told     time.Time
	refusals int
	// spread is drawn anew after each exchange, from [0, 1): what happens at one
	// time to many leases is not to happen to all at one time again.
	spread float64
}

const (
	// RFC 2131, 4.4.5: half of the time that is left, but not less than a minute. A
	// minute is meant for leases of many minutes. For a shorter one it is an eighth
	// of the time that the state lasts, so that a lost frame or two don't cost the
	// lease: at least four tries in each state.
	longestFloor = time.Minute
	floorPart    = 8
	// fuzzPart of the time that a state lasts, or of that until then if it is shorter, is
	// how much later than T1 or T2 it may begin (RFC 2131, 4.4.5: "some random fuzz").
	fuzzPart = 32

	firstRestart, longestRestart   = time.Second, 5 * time.Minute
	firstReplay, longestReplay     = 10 * time.Second, 10 * time.Minute
	firstReminder, longestReminder = time.Second, time.Minute
)

// next decides what to do for a record, and when. A time that has passed means now;
// idle has no time. Nothing but now, the record and its progress decide.
func next(now time.Time, r record, p progress) (action, time.Time) {
	what, at := r.State.next(now, r.Lease, p)
	if r.told() {
		return what, at
	}
	remind := wait(p.told, p.refusals, firstReminder, longestReminder, p.spread)
	if what == idle || !remind.After(at) {
		return tell, remind
	}
	return what, at
}

func (s state) next(now time.Time, lease *Lease, p progress) (action, time.Time) {
	switch {
	case s == lost:
		return startOver, wait(p.asked, p.failures, firstRestart, longestRestart, p.spread)
	case lease == nil:
		return drop, now
	case s == bound:
		return lease.next(now, p)
	case lease.expired(now):
		return drop, lease.Expires
	case s == releasing:
		return giveBack, wait(p.asked, p.failures, firstReplay, longestReplay, p.spread)
	case lease.Expires.IsZero():
		return idle, time.Time{}
	default: // held
		return drop, lease.Expires
	}
}

// next is RFC 2131, 4.4.5: BOUND, RENEWING from T1, REBINDING from T2, and the end.
// A lease for ever stays BOUND.
func (l Lease) next(now time.Time, p progress) (action, time.Time) {
	switch {
	case l.Expires.IsZero():
		return idle, time.Time{}
	case l.expired(now):
		return expire, l.Expires
	case !now.Before(l.Rebind):
		return rebind, retransmission(p, l.Acquired, l.Rebind, l.Expires)
	default:
		return renew, retransmission(p, l.Acquired, l.Renew, l.Rebind)
	}
}

func (l Lease) expired(now time.Time) bool {
	return !l.Expires.IsZero() && !now.Before(l.Expires)
}

// retransmission is when to ask next in a state that lasts from start to end, of a lease
// that was acquired before; end if no more in that state.
func retransmission(p progress, acquired, start, end time.Time) time.Time {
	span := end.Sub(start)
	if p.asked.Before(start) {
		return start.Add(time.Duration(p.spread * float64(min(span, start.Sub(acquired))) / fuzzPart))
	}
	left := max(end.Sub(p.asked)/2, min(longestFloor, span/floorPart))
	at := p.asked.Add(jittered(left, p.spread))
	if at.After(end) {
		return end
	}
	return at
}

// wait is when to do again what was done at last and has failed n times in a row:
// first after that, doubled each time, but not above longest. What has not failed
// yet is to be done at once.
func wait(last time.Time, n int, first, longest time.Duration, spread float64) time.Time {
	if n == 0 {
		return last
	}
	d := longest
	if n < 20 {
		d = min(first<<(n-1), longest)
	}
	return last.Add(jittered(d, spread))
}

// jittered is d, up to a tenth more or less.
func jittered(d time.Duration, spread float64) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*spread))
}
