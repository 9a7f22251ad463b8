// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
)

// serve answers calls on a unix socket until the test ends.
func serve(t *testing.T, handler http.HandlerFunc) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	if err := server.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	return socket
}

func TestRequestAsOVNKubernetesHasIt(t *testing.T) {
	var body map[string]any
	socket := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.Host != "dummy" || r.URL.Path != "/" {
			t.Errorf("got %s %s%s", r.Method, r.Host, r.URL.Path)
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		if _, err := fmt.Fprint(w, `{"Result":{"cniVersion":"1.0.0"},"PodIFInfo":{"unknown":1}}`); err != nil {
			t.Error(err)
		}
	})
	result, err := Call(context.Background(), socket, Request{Env: map[string]string{"CNI_COMMAND": "ADD"}, Config: []byte(`{"a":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	if string(result) != `{"cniVersion":"1.0.0"}` {
		t.Errorf("result %s", result)
	}
	want := map[string]any{"env": map[string]any{"CNI_COMMAND": "ADD"}, "config": "eyJhIjoxfQ=="}
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

func TestErrorsComeThrough(t *testing.T) {
	for _, test := range []struct {
		name   string
		answer func(w http.ResponseWriter) error
		want   types.Error
	}{
		{"CNI error", func(w http.ResponseWriter) error {
			return WriteError(w, fmt.Errorf("wrapped: %w", types.NewError(7, "mtu is wrong", "details")))
		}, types.Error{Code: 7, Msg: "mtu is wrong", Details: "details"}},
		{"other error", func(w http.ResponseWriter) error { return WriteError(w, errors.New("oops")) },
			types.Error{Code: 999, Msg: "oops"}},
		{"no CNI error at all", func(w http.ResponseWriter) error {
			w.WriteHeader(http.StatusBadGateway)
			_, err := fmt.Fprint(w, "hello")
			return err
		}, types.Error{Code: 999, Msg: "the node daemon answered with HTTP status 502", Details: "hello"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			socket := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if err := test.answer(w); err != nil {
					t.Error(err)
				}
			})
			_, err := Call(context.Background(), socket, Request{})
			var got *types.Error
			if !errors.As(err, &got) {
				t.Fatalf("got %v", err)
			}
			if diff := cmp.Diff(&test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNobodyListens(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	_, err := Call(context.Background(), socket, Request{})
	var got *types.Error
	if !errors.As(err, &got) || got.Code != types.ErrTryAgainLater || !strings.Contains(got.Msg, socket) {
		t.Errorf("got %v", err)
	}
}

func TestCallerGivesUp(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	socket := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		var request Request
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			t.Error(err)
		}
		cancel()
		<-r.Context().Done()
		close(ended)
	})
	if _, err := Call(ctx, socket, Request{}); err == nil {
		t.Error("the call succeeded")
	}
	<-ended
}

// TestDeviceInfo has the device's information beside the other fields, as
// OVN-Kubernetes has it.
func TestDeviceInfo(t *testing.T) {
	const sent = `{"env":{"CNI_COMMAND":"ADD"},"config":"e30=","type":"pci","version":"1.1.0",` +
		`"pci":{"pci-address":"0000:3b:10.2","representor-device":"ens1f0_2"}}`
	var got Request
	if err := json.Unmarshal([]byte(sent), &got); err != nil {
		t.Fatal(err)
	}
	if got.PCI == nil || got.PCI.Address != "0000:3b:10.2" || got.PCI.Representor != "ens1f0_2" || string(got.Config) != "{}" {
		t.Errorf("got %+v", got)
	}
}
