//go:build unix

package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"syscall"
	"testing"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/auth"
	"codeberg.org/tinybroker/tinybroker/internal/auth/certtest"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// soakTLS is what a soak with TLS needs. Nil: without.
type soakTLS struct {
	issuer *certtest.Issuer
	pair   certtest.Pair
	client *auth.Material
}

// newSoakTLS decides by the seed, or as TINYBROKER_SOAK_TLS says.
func newSoakTLS(t *testing.T, seed uint64) *soakTLS {
	with := seed%2 == 1
	if text := os.Getenv("TINYBROKER_SOAK_TLS"); text != "" {
		with = text != "0"
	}
	t.Logf("TLS: %v", with)
	if !with {
		return nil
	}
	s := &soakTLS{issuer: certtest.New(t)}
	s.issue()
	var err error
	if s.client, err = auth.Load(auth.Files{CA: s.issuer.CA}); err != nil {
		t.Fatal(err)
	}
	return s
}

// issue writes a new certificate for the broker over the one before.
func (s *soakTLS) issue() {
	s.pair = s.issuer.Issue("broker", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(1000 * time.Hour) })
}

// serveArgs are the broker's.
func (s *soakTLS) serveArgs() []string {
	if s == nil {
		return nil
	}
	return []string{"--tls-cert", s.pair.Certificate, "--tls-key", s.pair.Key}
}

// process makes a process of the command line speak TLS.
func (s *soakTLS) process(p *process) {
	if s != nil {
		env("TINYBROKER_TLS_CA=" + s.issuer.CA)(p)
	}
}

// options makes a client speak TLS.
func (s *soakTLS) options(o rpc.ClientOptions) rpc.ClientOptions {
	if s != nil {
		config := auth.ClientTLS(s.client, "")
		o.TLS = func() *tls.Config { return config }
	}
	return o
}

// reload has the broker read its files again, now and then with another certificate.
func (s *soak) reload() {
	if s.tls != nil && s.rng.IntN(2) == 0 {
		s.tls.issue()
		s.count("certificate exchanged")
	}
	s.count("reload (SIGHUP)")
	s.b.signal(syscall.SIGHUP)
}
