// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"testing"
	"time"
)

func TestNext(t *testing.T) {
	l := granted(nil)                // an hour: T1 at 30:00, T2 at 52:30
	at := func(s string) time.Time { // after the lease was acquired
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal(err)
		}
		return requestedAt.Add(d)
	}
	forever := granted(func(l *Lease) { l.Renew, l.Rebind, l.Expires = time.Time{}, time.Time{}, time.Time{} })
	early := granted(func(l *Lease) { l.Renew, l.Rebind = at("8s"), at("16s") })
	kept := record{State: bound, Lease: &l, Told: &l}
	newer := granted(func(l *Lease) { l.Acquired = at("1s") })
	for name, test := range map[string]struct {
		now    string
		record record
		p      progress
		what   action
		at     time.Time
	}{
		"bound":                    {"1m", kept, progress{}, renew, at("30m")},
		"bound, spread":            {"1m", kept, progress{spread: 0.5}, renew, at("30m21.09375s")},
		"T1":                       {"30m", kept, progress{}, renew, at("30m")},
		"renewing, half":           {"30m1s", kept, progress{asked: at("30m"), spread: 0.5}, renew, at("41m15s")},
		"renewing, a minute":       {"51m", kept, progress{asked: at("51m"), spread: 0.5}, renew, at("52m")},
		"renewing, not beyond":     {"52m", kept, progress{asked: at("52m"), spread: 0.5}, renew, at("52m30s")},
		"T2":                       {"52m30s", kept, progress{asked: at("52m")}, rebind, at("52m30s")},
		"T2, spread":               {"52m30s", kept, progress{spread: 0.5}, rebind, at("52m37.03125s")},
		"early T2, spread":         {"16s", record{State: bound, Lease: &early, Told: &early}, progress{spread: 0.5}, rebind, at("16.25s")},
		"rebinding, half":          {"53m", kept, progress{asked: at("52m30s"), spread: 0.5}, rebind, at("56m15s")},
		"rebinding, an eighth":     {"59m", kept, progress{asked: at("58m"), spread: 0.5}, rebind, at("59m")},
		"asleep past T2":           {"55m", kept, progress{}, rebind, at("52m30s")},
		"expired":                  {"1h", kept, progress{asked: at("59m")}, expire, at("1h")},
		"clock set back":           {"-5h", kept, progress{}, renew, at("30m")},
		"for ever":                 {"99999h", record{State: bound, Lease: &forever, Told: &forever}, progress{}, idle, time.Time{}},
		"change untold":            {"1m", record{State: bound, Lease: &newer, Told: &l}, progress{}, tell, time.Time{}},
		"change refused":           {"1m", record{State: bound, Lease: &newer, Told: &l}, progress{told: at("1m"), refusals: 3, spread: 0.5}, tell, at("1m4s")},
		"refused, T1 comes first":  {"30m", record{State: bound, Lease: &newer, Told: &l}, progress{told: at("29m50s"), refusals: 9}, renew, at("30m")},
		"for ever, untold":         {"1m", record{State: bound, Lease: &forever}, progress{}, tell, time.Time{}},
		"loss untold":              {"2h", record{State: lost, Lease: &l, Told: &l}, progress{}, tell, time.Time{}},
		"lost":                     {"2h", record{State: lost, Lease: &l}, progress{}, startOver, time.Time{}},
		"lost, once in vain":       {"2h", record{State: lost}, progress{asked: at("2h"), failures: 1, spread: 0.5}, startOver, at("2h1s")},
		"lost, often in vain":      {"9h", record{State: lost}, progress{asked: at("9h"), failures: 999, spread: 0.5}, startOver, at("9h5m")},
		"held":                     {"1m", record{State: held, Lease: &l}, progress{}, drop, at("1h")},
		"held for ever":            {"1m", record{State: held, Lease: &forever}, progress{}, idle, time.Time{}},
		"releasing":                {"1m", record{State: releasing, Lease: &l, Told: &l}, progress{}, giveBack, time.Time{}},
		"releasing, once in vain":  {"1m", record{State: releasing, Lease: &l}, progress{asked: at("1m"), failures: 1, spread: 0.5}, giveBack, at("1m10s")},
		"releasing, often in vain": {"1m", record{State: releasing, Lease: &forever}, progress{asked: at("1m"), failures: 99, spread: 0.5}, giveBack, at("11m")},
		"releasing, expired":       {"2h", record{State: releasing, Lease: &l}, progress{}, drop, at("1h")},
		"a record of nothing":      {"2h", record{State: held}, progress{}, drop, at("2h")},
	} {
		t.Run(name, func(t *testing.T) {
			what, when := next(at(test.now), test.record, test.p)
			if what != test.what || !when.Equal(test.at) {
				t.Errorf("got %v at %v (%v), want %v at %v", what, when, when.Sub(requestedAt), test.what, test.at)
			}
		})
	}
}

// TestRetransmissions: whatever a lease's length, a client that is never answered asks at
// least four times in each state, not endlessly often, and always gets to the end.
func TestRetransmissions(t *testing.T) {
	for _, seconds := range []uint32{1, 2, 10, 60, 120, 600, 3600, 86400, 0xfffffffe} {
		for _, spread := range []float64{0, 0.5, 0.999999} {
			t1, t2, end := timers(seconds, nil)
			l := granted(func(l *Lease) {
				l.Renew, l.Rebind, l.Expires = l.Acquired.Add(t1), l.Acquired.Add(t2), l.Acquired.Add(end)
			})
			r, p, now := record{State: bound, Lease: &l, Told: &l}, progress{spread: spread}, l.Acquired
			count := map[action]int{}
			for range 1000 {
				what, at := next(now, r, p)
				if at.After(now) {
					now = at
					continue
				}
				count[what]++
				if what == expire {
					break
				}
				p.asked = now
				now = now.Add(time.Millisecond)
			}
			if n := count[renew]; n < 4 || n > 40 || count[rebind] < 4 || count[rebind] > 40 || count[expire] != 1 {
				t.Errorf("lease of %d s, spread %v: %v", seconds, spread, count)
			}
		}
	}
}
