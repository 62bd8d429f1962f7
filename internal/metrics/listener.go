package metrics

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// pageListener has no more than max connections. One more makes room for itself: of those with no request under way, the one for which that has
// been so for longest is closed. So whoever opens connections and says nothing, or says it slowly, keeps nobody from asking whether the broker is
// well. Only while all are being answered does another wait.
type pageListener struct {
	net.Listener
	max int

	closed func()
	done   chan struct{}
	freed  chan struct{} // capacity 1: a connection is idle, or gone

	mu    sync.Mutex
	conns map[*pageConn]struct{}
}

func newPageListener(l net.Listener, most int) *pageListener {
	done := make(chan struct{})
	return &pageListener{
		Listener: l,
		max:      most,
		closed:   sync.OnceFunc(func() { close(done) }),
		done:     done,
		freed:    make(chan struct{}, 1),
		conns:    make(map[*pageConn]struct{}),
	}
}

// Close implements net.Listener.
func (l *pageListener) Close() error {
	l.closed()
	return l.Listener.Close()
}

// Accept implements net.Listener. It is for one goroutine.
func (l *pageListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	for {
		idle, full := l.room()
		switch {
		case !full:
			c := &pageConn{Conn: conn, listener: l, idleSince: time.Now()}
			l.mu.Lock()
			l.conns[c] = struct{}{}
			l.mu.Unlock()
			return c, nil
		case idle != nil:
			_ = idle.Close()
			continue
		}
		select {
		case <-l.freed:
		case <-l.done:
			_ = conn.Close()
			return nil, net.ErrClosed
		}
	}
}

// room reports whether there are as many connections as there may be, and then which of them has been idle for longest; nil: none is.
func (l *pageListener) room() (idlest *pageConn, full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) < l.max {
		return nil, false
	}
	for c := range l.conns {
		if !c.busy && (idlest == nil || c.idleSince.Before(idlest.idleSince)) {
			idlest = c
		}
	}
	return idlest, true
}

func (l *pageListener) free() {
	select {
	case l.freed <- struct{}{}:
	default:
	}
}

// pageConn is a connection of a pageListener.
type pageConn struct {
	net.Conn
	listener *pageListener

	// Guarded by the listener's mu.
	busy      bool // a request is being answered
	idleSince time.Time
}

// Close implements net.Conn.
func (c *pageConn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.conns, c)
	c.listener.mu.Unlock()
	c.listener.free()
	return c.Conn.Close()
}

func (c *pageConn) setBusy(busy bool) {
	c.listener.mu.Lock()
	c.busy, c.idleSince = busy, time.Now()
	c.listener.mu.Unlock()
	if !busy {
		c.listener.free()
	}
}

type pageConnKey struct{}

func withPageConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, pageConnKey{}, conn)
}

// whileBusy keeps the connection of a request that next answers.
func whileBusy(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(pageConnKey{}).(*pageConn); ok {
			c.setBusy(true)
			defer c.setBusy(false)
		}
		next.ServeHTTP(w, r)
	})
}
