package rpc

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"
)

// errRenewed is why a connection is closed that was made with a certificate which is about to expire.
var errRenewed = errors.New("the client certificate was renewed")

// renewal closes a connection before the certificate that it was made with expires, if there is a newer one by then. To the client that is a lost
// connection, after which it comes back with the newer one; the broker would end every stream, and for good. It looks when a tenth of the time is
// left, and again when a tenth of that is.
type renewal struct {
	conn    net.Conn
	expires time.Time
	config  func() *tls.Config

	mu    sync.Mutex
	timer *time.Timer // nil: the connection is closed, or there is nothing to wait for
	done  bool        // it has closed the connection
}

// newRenewal watches a connection that was made with shown. It must be stopped.
func newRenewal(conn net.Conn, shown *tls.Config, config func() *tls.Config) *renewal {
	r := &renewal{conn: conn, expires: expiryOf(shown), config: config}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.expires.IsZero() {
		r.timer = time.AfterFunc(r.pause(), r.look)
	}
	return r
}

// expiryOf is when the certificate that a client shows expires; zero: it shows none.
func expiryOf(c *tls.Config) time.Time {
	if len(c.Certificates) == 0 || c.Certificates[0].Leaf == nil {
		return time.Time{}
	}
	return c.Certificates[0].Leaf.NotAfter
}

func (r *renewal) pause() time.Duration { return time.Until(r.expires) * 9 / 10 }

func (r *renewal) look() {
	newer := expiryOf(r.config()).After(r.expires)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.timer == nil:
	case newer:
		r.timer, r.done = nil, true
		_ = r.conn.Close() // whatever the other end does
	case time.Until(r.expires) > time.Second:
		r.timer.Reset(r.pause())
	}
}

// stop ends the watch.
func (r *renewal) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
}

// explain returns why an operation of the connection has failed.
func (r *renewal) explain(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return errRenewed
	}
	return err
}
