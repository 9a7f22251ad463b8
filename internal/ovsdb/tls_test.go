// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	good := newAuthority(t, "ca").issue(t, t.TempDir())
	other := newAuthority(t, "other").issue(t, t.TempDir())
	noPEM := filepath.Join(t.TempDir(), "no.pem")
	if err := os.WriteFile(noPEM, []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := noPEM + ".missing"
	with := func(change func(*TLS)) TLS {
		t := good
		change(&t)
		return t
	}
	for name, tt := range map[string]struct {
		endpoint string
		tls      TLS
		want     []string // in the error
	}{
		"no ssl":                  {"unix:/nb,tcp:10.0.0.1:6641", TLS{}, nil},
		"ssl":                     {"ssl:10.0.0.1:6641", good, nil},
		"files that are not used": {"unix:/nb", good, nil},
		"no files":                {"unix:/nb,ssl:10.0.0.1:6641", TLS{}, []string{"no private key is given"}},
		"no key":                  {"unix:/nb", with(func(t *TLS) { t.PrivateKey = "" }), []string{"no private key is given"}},
		"no certificate":          {"unix:/nb", with(func(t *TLS) { t.Certificate = "" }), []string{"no certificate is given"}},
		"no CA certificate":       {"ssl:10.0.0.1:6641", with(func(t *TLS) { t.CACert = "" }), []string{"no CA certificate is given"}},
		"key is missing":          {"ssl:10.0.0.1:6641", with(func(t *TLS) { t.PrivateKey = missing }), []string{"private key", missing}},
		"certificate is missing":  {"ssl:10.0.0.1:6641", with(func(t *TLS) { t.Certificate = missing }), []string{"certificate", missing}},
		"CA is missing":           {"ssl:10.0.0.1:6641", with(func(t *TLS) { t.CACert = missing }), []string{"CA certificate", missing}},
		"key is no PEM":           {"ssl:10.0.0.1:6641", with(func(t *TLS) { t.PrivateKey = noPEM }), []string{"private key " + noPEM, "PEM"}},
		"certificate is no PEM":   {"ssl:10.0.0.1:6641", with(func(t *TLS) { t.Certificate = noPEM }), []string{"certificate " + noPEM, "PEM"}},
		"CA is no PEM":            {"ssl:10.0.0.1:6641", with(func(t *TLS) { t.CACert = noPEM }), []string{"CA certificate " + noPEM, "PEM"}},
		"key of another":          {"ssl:10.0.0.1:6641", with(func(t *TLS) { t.PrivateKey = other.PrivateKey }), []string{good.Certificate, other.PrivateKey, "match"}},
		"bad endpoint":            {"nb", TLS{}, []string{"endpoint"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := Config{Endpoint: tt.endpoint, TLS: tt.tls}.Check()
			if (err != nil) != (tt.want != nil) {
				t.Fatalf("error %v", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}
