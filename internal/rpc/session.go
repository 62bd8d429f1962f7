package rpc

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"codeberg.org/tinybroker/tinybroker/internal/auth"
	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// session is a call that was let in. Its methods work on a nil one, which may do everything.
type session struct {
	access     *access
	conn       *serverConn // nil: it is not known
	rule       rule
	credential auth.Credential
	chain      []*x509.Certificate // of the client, if its credential is that
	leaf       *x509.Certificate   // chain[0]
	expiry     *time.Timer

	revoked  chan struct{}                 // closed when the call is to end
	identity atomic.Pointer[auth.Identity] // whose call it is; exchanged under access.mu

	// Guarded by access.mu.
	group string // that it has joined, or is about to
	err   error  // why it is revoked
}

// show takes note of the credential that a call came with. A token that is sent counts alone, whatever certificate there is.
func (s *session) show(ctx context.Context, chain []*x509.Certificate) error {
	token, sent, err := tokenOf(ctx)
	switch {
	case err != nil:
		return err
	case sent:
		s.credential = auth.TokenCredential(token)
	case chain != nil:
		s.showCertificate(chain)
	}
	return nil
}

// tokenOf returns the token that a call came with, if one was sent.
func tokenOf(ctx context.Context) (token string, sent bool, err error) {
	switch headers := metadata.ValueFromIncomingContext(ctx, "authorization"); len(headers) {
	case 0:
		return "", false, nil
	case 1:
		scheme, token, _ := strings.Cut(headers[0], " ")
		if !strings.EqualFold(scheme, "bearer") || auth.CheckToken(token) != nil {
			return "", true, fmt.Errorf("%w: the authorization header is not: Bearer TOKEN", core.ErrUnauthenticated)
		}
		return token, true, nil
	default:
		return "", true, fmt.Errorf("%w: %d authorization headers", core.ErrUnauthenticated, len(headers))
	}
}

// showCertificate takes note of the certificate of the connection that a call came on.
func (s *session) showCertificate(chain []*x509.Certificate) {
	s.chain, s.leaf = chain, chain[0]
	s.credential = auth.CertificateCredential(s.leaf)
}

// chainOf returns the verified certificate of the connection that a call came on, with those of its issuers; nil: it has none.
func chainOf(ctx context.Context) []*x509.Certificate {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.VerifiedChains) > 0 {
			return info.State.PeerCertificates
		}
	}
	return nil
}

// holder is whose call it is when no identities are known and a certificate alone lets in: nobody's in particular, who may do everything.
var holder = &auth.Identity{Admin: true}

// judgeLocked finds out whose call it is and whether that one may make it.
func (s *session) judgeLocked() error {
	if err := s.verifyLocked(); err != nil {
		return fmt.Errorf("%w: %w", core.ErrUnauthenticated, err)
	}
	ids := s.access.identities.Load()
	if ids == nil {
		s.identity.Store(holder)
		return nil
	}
	id, err := ids.Find(s.credential)
	if err != nil {
		return fmt.Errorf("%w: %w", core.ErrUnauthenticated, err)
	}
	s.identity.Store(id)
	return s.rule.judge(id)
}

// verifyLocked looks whether a certificate that was good at the handshake still is.
func (s *session) verifyLocked() error {
	if s.leaf == nil {
		return nil
	}
	if !time.Now().Before(s.leaf.NotAfter) {
		return errCertificateExpired
	}
	if !s.access.exchanged {
		return nil
	}
	if s.access.clientCAs == nil {
		return errCertificateIssuer
	}
	if s.conn == nil {
		return s.verifyIssuerLocked()
	}
	if k := &s.conn.issuer; k.among != s.access.clientCAs {
		*k = knownIssuer{s.access.clientCAs, s.verifyIssuerLocked()}
	}
	return s.conn.issuer.err
}

// knownIssuer is what was found out about the issuer of a connection's certificate, with which every call on it comes.
type knownIssuer struct {
	among *x509.CertPool // nil: it was not looked for
	err   error
}

func (s *session) verifyIssuerLocked() error {
	between := x509.NewCertPool()
	for _, c := range s.chain[1:] {
		between.AddCert(c)
	}
	_, err := s.leaf.Verify(x509.VerifyOptions{
		Roots: s.access.clientCAs, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return errCertificateIssuer
	}
	return nil
}

var (
	errCertificateExpired = errors.New("the client certificate has expired")
	errCertificateIssuer  = errors.New("the client certificate's issuer is not trusted any more")
	errChanged            = fmt.Errorf("%w: the permissions have changed", core.ErrNotAllowed)
)

// reviewLocked revokes the session if it would not be let in any more, or if what it receives may not be what it may receive
// now. Publishers are judged message by message, so what has changed for them holds at once.
func (s *session) reviewLocked() {
	before := s.identity.Load()
	err := s.judgeLocked()
	if err == nil && s.rule == subscribers {
		now := s.identity.Load()
		if now.Name != before.Name || !now.Subscribe.Same(before.Subscribe) || s.group != "" && !now.Group.Match(s.group) {
			err = errChanged
		}
	}
	if err != nil && s.err == nil {
		s.err = err
		close(s.revoked)
	}
}

// ended returns a channel that is closed when the call is to end; nil, from which nothing comes, for a nil session.
func (s *session) ended() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.revoked
}

// why is the reason for ended; nil while there is none.
func (s *session) why() error {
	if s == nil {
		return nil
	}
	s.access.mu.Lock()
	defer s.access.mu.Unlock()
	return s.err
}

// name is that of the identity; empty: everybody's.
func (s *session) name() string {
	if s == nil {
		return ""
	}
	return s.identity.Load().Name
}

// publishing says where the call may publish to now.
func (s *session) publishing() *core.Permission {
	if s == nil {
		return nil
	}
	return s.identity.Load().Publish
}

// receiving returns on whose behalf the call subscribes, as a member of a group unless that is empty.
func (s *session) receiving(group string) (core.Access, error) {
	if s == nil {
		return core.Access{}, nil
	}
	s.access.mu.Lock()
	defer s.access.mu.Unlock()
	// From here on a review knows the group, too.
	s.group = group
	if s.err != nil {
		return core.Access{}, s.err
	}
	id := s.identity.Load()
	if group != "" && !id.Group.Match(group) {
		return core.Access{}, fmt.Errorf("%w: to join group %s", core.ErrNotAllowed, boundText(group))
	}
	return core.Access{Identity: id.Name, Receive: id.Subscribe}, nil
}

// hold returns ctx as long as the call may go on: it ends with the right to the call, too. release must be called.
func (s *session) hold(ctx context.Context) (held context.Context, release func()) {
	if s == nil {
		return ctx, func() {}
	}
	held, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-s.revoked:
			cancel()
		case <-held.Done():
		}
	}()
	return held, cancel
}

// sessionKey is the key of a call's session in its context.
type sessionKey struct{}

// sessionOf returns the session of a call; nil: it may do everything.
func sessionOf(ctx context.Context) *session {
	s, _ := ctx.Value(sessionKey{}).(*session)
	return s
}
