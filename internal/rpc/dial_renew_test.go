package rpc

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestRenewal: a connection is closed before its certificate expires, if there is another one; and at no other time.
func TestRenewal(t *testing.T) {
	const life = 24 * time.Hour
	for _, test := range []struct {
		name    string
		renewed time.Duration // when there is a newer certificate; 0: never
		stopped bool
		closed  time.Duration // 0: it is not
	}{
		{"in time", 16 * time.Hour, false, life * 9 / 10},
		{"late", life * 95 / 100, false, life * 99 / 100},
		{"very late", life - 10*time.Minute, false, life * 999 / 1000},
		{"never", 0, false, 0},
		{"closed before that", 16 * time.Hour, true, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				with := func(expires time.Time) *tls.Config {
					return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Leaf: &x509.Certificate{NotAfter: expires}}}}
				}
				first := with(began.Add(life))
				conn, far := net.Pipe()
				defer conn.Close()
				r := newRenewal(conn, first, func() *tls.Config {
					if test.renewed > 0 && time.Since(began) >= test.renewed {
						return with(began.Add(2 * life))
					}
					return first
				})
				if test.stopped {
					r.stop()
				}
				if err := far.SetReadDeadline(began.Add(2 * life)); err != nil {
					t.Fatal(err)
				}
				_, err := far.Read(make([]byte, 1))
				took := time.Since(began)
				if closed := errors.Is(err, io.EOF); closed != (test.closed > 0) || closed && took != test.closed {
					t.Errorf("closed: %v, after %v; want %v", closed, took, test.closed)
				}
				if got := r.explain(io.EOF); errors.Is(got, errRenewed) != (test.closed > 0) {
					t.Errorf("told as %v", got)
				}
			})
		})
	}
	if r := newRenewal(nil, &tls.Config{MinVersion: tls.VersionTLS12}, nil); r.timer != nil {
		t.Error("waits for the end of no certificate")
	}
}
