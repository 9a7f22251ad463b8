// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// SilenceError tells that no server gave a lease in the time that there was, and
// all that is known about why.
type SilenceError struct {
	Interface string
	// Elapsed is the time since the first DISCOVER.
	Elapsed time.Duration
	// Discovers and Requests count the messages sent.
	Discovers, Requests int
	// Received is the number of frames, of any kind, that the interface has
	// received since the first wait for an answer was in vain.
	Received uint64
	// Discarded counts, by reason, the DHCP messages that came but were no
	// answer.
	Discarded map[string]int
	// NAKs counts refusals; NAK is the last one's server and text.
	NAKs int
	NAK  string
	// Conflict tells of the last address that had to be declined since somebody
	// else uses it.
	Conflict string
	// SendErr is what the last send failed with, if it did.
	SendErr error
	// Err is the context's error.
	Err error
}

// Unwrap returns the context's error.
func (e *SilenceError) Unwrap() error { return e.Err }

// Error says all of it in one line.
func (e *SilenceError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "no lease on %s in %s: sent %d DISCOVER and %d REQUEST", e.Interface, e.Elapsed.Round(time.Millisecond), e.Discovers, e.Requests)
	switch {
	case e.NAKs > 0:
		fmt.Fprintf(&b, ", refused by %d NAK, last: %s", e.NAKs, e.NAK)
	case len(e.Discarded) > 0:
	case e.Received == 0:
		b.WriteString(", received nothing at all")
	default:
		fmt.Fprintf(&b, ", no DHCP reply among %d frames received", e.Received)
	}
	separator := ", discarded "
	for _, reason := range slices.Sorted(maps.Keys(e.Discarded)) {
		fmt.Fprintf(&b, "%s%d %s", separator, e.Discarded[reason], reason)
		separator = ", "
	}
	if e.Conflict != "" {
		fmt.Fprintf(&b, ", declined: %s", e.Conflict)
	}
	if e.SendErr != nil {
		fmt.Fprintf(&b, ", sending failed: %v", e.SendErr)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	return b.String()
}
