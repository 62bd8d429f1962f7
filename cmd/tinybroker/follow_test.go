//go:build unix

package main

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/auth/certtest"
)

// guardedBroker starts a broker that lets in who has a certificate of the issuer's.
func guardedBroker(t *testing.T, i *certtest.Issuer, args ...string) *broker {
	t.Helper()
	pair := i.Issue("broker", nil)
	return startBroker(t, append([]string{"--tls-cert", pair.Certificate, "--tls-key", pair.Key, "--tls-client-ca", i.CA}, args...)...)
}

func copyFile(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestClientFollowsItsFiles: everybody's certificates are exchanged, the broker's first. A client that was connected with the old ones says what
// is wrong while it has no others, once, and comes back with the new ones.
func TestClientFollowsItsFiles(t *testing.T) {
	t.Parallel()
	before, after := certtest.New(t), certtest.New(t)
	b := guardedBroker(t, before)
	dir := t.TempDir()
	ca, cert, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "client.pem"), filepath.Join(dir, "client.key")
	flags := []string{"-s", b.address, "--tls-ca", ca, "--tls-cert", cert, "--tls-key", key}
	give := func(i *certtest.Issuer) {
		pair := i.Issue("client", nil)
		copyFile(t, i.CA, ca, 0o644)
		copyFile(t, pair.Certificate, cert, 0o644)
		copyFile(t, pair.Key, key, 0o600)
	}
	give(before)
	sub := b.sub(append([]string{"x"}, flags[2:]...))
	b.signal(syscall.SIGKILL)
	<-b.done
	again := guardedBroker(t, after, "--listen", b.address)
	sub.says("waiting for broker at " + b.address + ": TLS: failed to verify certificate: x509: certificate signed by unknown authority")
	time.Sleep(6 * time.Second) // in which it tries again, and has nothing new to say
	if got := strings.Count(sub.stderr.String(), "\n"); got != 2 {
		t.Errorf("%d lines: %s", got, sub.stderr.String())
	}
	give(after)
	sub.says("reconnected after ")
	start(t, append([]string{"pub", "x", "y"}, flags...)).ended(0)
	sub.printed("y\n")
	again.signal(syscall.SIGTERM)
	again.ended(0)
}

// TestExpiredWhileConnected: who is sent away since the certificate has expired says so.
func TestExpiredWhileConnected(t *testing.T) {
	t.Parallel()
	i := certtest.New(t)
	b := guardedBroker(t, i)
	pair := i.Issue("client", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(8 * time.Second) })
	flags := []string{"--tls-ca", i.CA, "--tls-cert", pair.Certificate, "--tls-key", pair.Key}
	sub := b.sub(append([]string{"x"}, flags...))
	pub := start(t, append([]string{"pub", "x", "-s", b.address}, flags...), withStdin)
	for _, p := range []*process{sub, pub} {
		p.ended(exitAuth)
		if got := p.stderr.String(); !strings.Contains(got, "not authenticated: the client certificate has expired") {
			t.Errorf("%q", got)
		}
	}
}

// TestRenewedWhileConnected: a certificate that is renewed in time keeps a subscriber on, beyond the end of the one that it came with.
func TestRenewedWhileConnected(t *testing.T) {
	t.Parallel()
	i := certtest.New(t)
	b := guardedBroker(t, i)
	expires := time.Now().Add(8 * time.Second)
	pair := i.Issue("client", func(c *x509.Certificate) { c.NotAfter = expires })
	sub := b.sub([]string{"x", "--tls-ca", i.CA, "--tls-cert", pair.Certificate, "--tls-key", pair.Key})
	i.Issue("client", nil)
	sub.says("connection lost (the client certificate was renewed); retrying\nreconnected after ")
	time.Sleep(time.Until(expires) + time.Second)
	start(t, []string{"pub", "x", "y", "-s", b.address, "--tls-ca", i.CA, "--tls-cert", pair.Certificate, "--tls-key", pair.Key}).ended(0)
	sub.printed("y\n")
}

// TestWaitSaysForWhat: who waits for a broker says why there is none, once for each reason, and nothing when told to be quiet.
func TestWaitSaysForWhat(t *testing.T) {
	t.Parallel()
	i := certtest.New(t)
	b := guardedBroker(t, i)
	b.signal(syscall.SIGKILL)
	<-b.done
	pair := i.Issue("client", nil)
	args := []string{"pub", "x", "y", "--wait", "-s", b.address, "--tls-ca", i.CA}
	waits := start(t, args)
	quiet := start(t, append(args, "-q"))
	good := start(t, append(args, "--tls-cert", pair.Certificate, "--tls-key", pair.Key))
	waits.says("waiting for broker at " + b.address + ": connection refused\n")
	good.says("waiting for broker at " + b.address + ": connection refused\n")
	guardedBroker(t, i, "--listen", b.address)
	waits.says("waiting for broker at " + b.address + ": TLS: the broker wants a client certificate; give one with --tls-cert and --tls-key\n")
	good.ended(0)
	time.Sleep(6 * time.Second)
	if got := waits.stderr.String(); strings.Count(got, "\n") != 2 {
		t.Errorf("%q", got)
	}
	if got := quiet.stderr.String(); got != "" {
		t.Errorf("quiet: %q", got)
	}
}
