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
		add, unlockAdd, err := l.lock(t.Context(), "a", false)
		if err != nil {
			t.Fatal(err)
		}
		if _, unlock, err := l.lock(t.Context(), "b", false); err != nil {
			t.Fatal(err)
		} else {
			unlock()
		}
		inDel := false
		go func() {
			_, unlock, err := l.lock(t.Context(), "a", true)
			if err != nil {
				t.Error(err)
				return
			}
			inDel = true
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
		first, unlock, err := l.lock(t.Context(), "a", false)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := l.lock(ctx, "a", false); err != context.Canceled {
			t.Errorf("got error %v", err)
		}
		if first.Err() != nil {
			t.Error("a call without preempt ended the one before it")
		}
		unlock()
	})
}
