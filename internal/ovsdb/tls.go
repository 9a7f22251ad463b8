// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLS are the PEM files for ssl endpoints, which need all three. They are read
// anew for each session, so a session that begins after a renewal uses the
// renewed ones; one that is under way goes on as it began.
type TLS struct {
	PrivateKey  string
	Certificate string
	// CACert has the certificates of the authorities that a server's
	// certificate must come from.
	CACert string
}

// config reads the files.
func (t TLS) config() (*tls.Config, error) {
	var pem [3][]byte
	for i, file := range []struct{ what, path string }{
		{"private key", t.PrivateKey}, {"certificate", t.Certificate}, {"CA certificate", t.CACert},
	} {
		if file.path == "" {
			return nil, fmt.Errorf("ssl needs a private key, a certificate and a CA certificate: no %s is given", file.what)
		}
		var err error
		if pem[i], err = os.ReadFile(file.path); err != nil {
			return nil, fmt.Errorf("%s for ssl: %w", file.what, err)
		}
	}
	own, err := tls.X509KeyPair(pem[1], pem[0])
	if err != nil {
		return nil, fmt.Errorf("certificate %s with private key %s: %w", t.Certificate, t.PrivateKey, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem[2]) {
		return nil, fmt.Errorf("CA certificate %s: no PEM certificate in it", t.CACert)
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{own},
		// The certificates of OVSDB servers don't name hosts, those that
		// ovs-pki makes for example, and OVN's own clients check only that the
		// authority is the right one. So does VerifyConnection: what this
		// switches off, it does, but for the name.
		InsecureSkipVerify: true,
		VerifyConnection:   func(state tls.ConnectionState) error { return verify(state.PeerCertificates, roots) },
	}, nil
}

func verify(chain []*x509.Certificate, roots *x509.CertPool) error {
	if len(chain) == 0 {
		return errors.New("the server has no certificate")
	}
	intermediates := x509.NewCertPool()
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates})
	return err
}
