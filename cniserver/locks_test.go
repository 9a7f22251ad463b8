// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"testing"
	"testing/synctest"
)

func TestDelEndsAddOfTheSameAttachment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locks{held: map[string]*holder{}}
		add, cancel := context.WithCancel(t.Context())
		defer cancel()
		unlockAdd, err := l.lock(add, cancel, "a")
		if err != nil {
			t.Fatal(err)
		}
		unlockOther, err := l.lock(t.Context(), nil, "b")
		if err != nil {
			t.Fatal(err)
		}
		unlockOther()
		inDel := false
		go func() {
			l.end("a")
			unlock, err := l.lock(t.Context(), nil, "a")
			if err != nil {
				t.Error(err)
				return
			}
			inDel = true
			l.end("a") // a second DEL does not end the first
			unlock()
		}()
		synctest.Wait()
		if add.Err() == nil {
			t.Error("the ADD was not ended")
		}
		if inDel {
			t.Error("the DEL did not wait for the ADD")
		}
		unlockAdd()
		synctest.Wait()
		if !inDel {
			t.Error("the DEL did not get its turn")
		}
	})
}

func TestWaitingForALockEndsWithTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locks{held: map[string]*holder{}}
		unlock, err := l.lock(t.Context(), nil, "a")
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := l.lock(ctx, cancel, "a"); err != context.Canceled {
			t.Errorf("got error %v", err)
		}
	})
}
