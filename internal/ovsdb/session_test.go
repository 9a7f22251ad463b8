// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
)

// The field is one that libovsdb keeps to itself.
func TestGoroutinesOfLibovsdb(t *testing.T) {
	db, err := model.NewClientDBModel("Test", nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewOVSDBClient(db)
	if err != nil {
		t.Fatal(err)
	}
	field := reflect.ValueOf(c).Elem().FieldByName("handlerShutdown")
	if !field.IsValid() || field.Type() != reflect.TypeFor[*sync.WaitGroup]() || goroutines(c) == nil {
		t.Errorf("its field handlerShutdown is %v", field)
	}
}

func TestBackoff(t *testing.T) {
	const second = time.Second
	for _, tt := range []struct{ last, served, want time.Duration }{
		{0, 0, minBackoff},
		{minBackoff, 0, 2 * minBackoff},
		{8 * second, 0, maxBackoff},
		{maxBackoff, 0, maxBackoff},
		{second, second / 2, 2 * second}, // it will not be better the next time
		{second, 2 * second, minBackoff},
		{maxBackoff, time.Hour, minBackoff},
	} {
		if got := backoff(tt.last, tt.served); got != tt.want {
			t.Errorf("backoff(%v, %v) = %v, want %v", tt.last, tt.served, got, tt.want)
		}
	}
}
