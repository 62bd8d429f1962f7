package rpc

import (
	"context"
	"crypto/x509"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/auth"
	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// access decides who may call, and takes care that a decision which is changed holds for the streams that are open, too. It is safe for
// concurrent use.
type access struct {
	identities atomic.Pointer[auth.Identities] // nil: whoever is let in may do everything, and that will not change

	mu        sync.Mutex
	clientCAs *x509.CertPool // once exchanged: those who may have issued a client's certificate
	exchanged bool
	sessions  map[*session]struct{} // of the calls under way
}

func newAccess(ids *auth.Identities) *access {
	a := &access{sessions: make(map[*session]struct{})}
	a.identities.Store(ids)
	return a
}

// admit returns the session of a call, or why there is none. A nil session may do everything. It must be dismissed.
func (a *access) admit(ctx context.Context, method string) (*session, error) {
	r := rules[method]
	if r == nobody {
		return nil, errNoRule
	}
	if r == anyone {
		return nil, nil
	}
	open := a.identities.Load() == nil
	chain := chainOf(ctx)
	if open && chain == nil {
		return nil, nil
	}
	s := &session{access: a, conn: connOf(ctx), rule: r, revoked: make(chan struct{})}
	if open {
		s.showCertificate(chain)
	} else if err := s.show(ctx, chain); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := s.judgeLocked(); err != nil {
		return nil, err
	}
	a.sessions[s] = struct{}{}
	if s.leaf != nil {
		s.expiry = time.AfterFunc(time.Until(s.leaf.NotAfter), func() { a.expire(s) })
	}
	return s, nil
}

// strange returns why a call comes from nobody who is known, where callers have to be; nil: it does not, or they need not be. Whether it
// is let in is for admit to say.
func (a *access) strange(ctx context.Context) error {
	ids := a.identities.Load()
	if ids == nil {
		return nil
	}
	var s session
	if err := s.show(ctx, chainOf(ctx)); err != nil {
		return err
	}
	if _, err := ids.Find(s.credential); err != nil {
		return fmt.Errorf("%w: %w", core.ErrUnauthenticated, err)
	}
	return nil
}

// dismiss forgets a session whose call is over.
func (a *access) dismiss(s *session) {
	if s == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.sessions, s)
	if s.expiry != nil {
		s.expiry.Stop()
	}
}

// use exchanges the identities.
func (a *access) use(ids *auth.Identities) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.identities.Store(ids)
	a.reviewLocked()
}

// useClientCAs exchanges those who may have issued a client's certificate.
func (a *access) useClientCAs(pool *x509.CertPool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clientCAs, a.exchanged = pool, true
	a.reviewLocked()
}

// reviewLocked judges every call under way anew.
func (a *access) reviewLocked() {
	for s := range a.sessions {
		s.reviewLocked()
	}
}

// expire judges a call whose certificate is to have expired. When the clock was set back meanwhile, it has not yet.
func (a *access) expire(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, open := a.sessions[s]; !open {
		return
	}
	if s.reviewLocked(); s.err == nil {
		s.expiry.Reset(time.Until(s.leaf.NotAfter))
	}
}

// checkPublish returns why a message on topic is refused; nil: it is not.
func checkPublish(may *core.Permission, topic []byte) error {
	if may.Allows(topic) {
		return nil
	}
	return fmt.Errorf("%w: to publish to %s", core.ErrNotAllowed, boundText(string(topic)))
}
