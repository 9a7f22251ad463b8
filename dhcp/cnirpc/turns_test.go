// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cnirpc

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// TestTurns has an ADD ended by a DEL, while a second ADD waits, and all of them done
// one at a time.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := turns{taken: map[string]*turn{}}
		var ended, got []string
		add := func(name string) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			giveUp, err := turns.take(ctx, "a", cancel)
			if err != nil {
				t.Error(err)
				return
			}
			defer giveUp()
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), errDeleted) {
				t.Errorf("%s ended by %v", name, context.Cause(ctx))
			}
			ended = append(ended, name)
		}
		go add("first")
		synctest.Wait()
		go add("second")
		synctest.Wait()
		giveUp, err := turns.take(t.Context(), "a", nil)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, ended...)
		giveUp()
		synctest.Wait()
		// The second one may have come before the DEL, which then has ended it, too.
		if len(got) == 0 || got[0] != "first" {
			t.Errorf("ended before the DEL: %v", got)
		}
		if giveUp, err = turns.take(t.Context(), "a", nil); err != nil {
			t.Fatal(err)
		}
		if len(ended) != 2 {
			t.Errorf("ended: %v", ended)
		}
		// A DEL is not ended.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := turns.take(ctx, "a", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("the turn of a DEL was taken: %v", err)
		}
		if other, err := turns.take(ctx, "b", nil); err != nil {
			t.Errorf("another attachment had to wait: %v", err)
		} else {
			other()
		}
		giveUp()
		if len(turns.taken) != 0 {
			t.Errorf("%d turns are left", len(turns.taken))
		}
	})
}
