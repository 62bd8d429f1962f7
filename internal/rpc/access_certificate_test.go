//go:build unix

package rpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"codeberg.org/tinybroker/tinybroker/internal/auth/certtest"
	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// connectedWith is the context of a call on a connection of a client with this certificate.
func connectedWith(t *testing.T, leaf *x509.Certificate) context.Context {
	t.Helper()
	chain := []*x509.Certificate{leaf}
	return peer.NewContext(t.Context(), &peer.Peer{
		Addr:     connAddr{&net.TCPAddr{}, &serverConn{}},
		AuthInfo: credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: chain, VerifiedChains: [][]*x509.Certificate{chain}}},
	})
}

// An exchange of the issuers makes the first call of a connection dearer, and not each.
func TestIssuersAreLookedForOnce(t *testing.T) {
	issuer := certtest.New(t)
	pair, err := tls.LoadX509KeyPair(filesOf(issuer.Issue("a", nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx := connectedWith(t, pair.Leaf)
	a := newAccess(nil)
	admit := func() error {
		s, err := a.admit(ctx, tinybrokerv1.BrokerService_Publish_FullMethodName)
		a.dismiss(s)
		return err
	}
	before := testing.AllocsPerRun(100, func() { _ = admit() })
	a.useClientCAs(material(t, certtest.Pair{}, issuer.CA).Pool())
	if err := admit(); err != nil {
		t.Error(err)
	}
	if after := testing.AllocsPerRun(100, func() { _ = admit() }); after > before {
		t.Errorf("%g allocations for each call, %g before the exchange", after, before)
	}
	for range 2 {
		a.useClientCAs(material(t, certtest.Pair{}, certtest.New(t).CA).Pool())
		for range 2 {
			if err := admit(); !errors.Is(err, core.ErrUnauthenticated) {
				t.Errorf("with an issuer who is not trusted any more: %v", err)
			}
		}
		a.useClientCAs(material(t, certtest.Pair{}, issuer.CA).Pool())
		if err := admit(); err != nil {
			t.Error(err)
		}
	}
}

func filesOf(p certtest.Pair) (certificate, key string) { return p.Certificate, p.Key }

// A timer that comes early, as when the clock was set back, does not come for nothing.
func TestExpiryComesEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leaf := &x509.Certificate{NotAfter: time.Now().Add(time.Hour)}
		a := newAccess(nil)
		s, err := a.admit(connectedWith(t, leaf), tinybrokerv1.BrokerService_Subscribe_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		defer a.dismiss(s)
		s.expiry.Reset(time.Minute)
		time.Sleep(time.Hour - time.Second)
		synctest.Wait()
		if err := s.why(); err != nil {
			t.Errorf("before it has expired: %v", err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if err := s.why(); !errors.Is(err, errCertificateExpired) {
			t.Errorf("after it has expired: %v", err)
		}
	})
}
