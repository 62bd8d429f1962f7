package rpc

import (
	"cmp"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"
)

// trackingListener makes its connections known, and has no more than max of them; 0: any number. One more is accepted and waits for room, and
// others behind it, but not for ones that do nothing: those make room, see room.
type trackingListener struct {
	net.Listener
	connections *connections
	max         int
	times       serverTimes
	log         *slog.Logger

	closed func()
	done   chan struct{}
	failed time.Time // when it was last logged that accepting fails
	full   time.Time // and that connections wait for room

	// Guarded by connections.mu.
	open int
}

func newTrackingListener(l net.Listener, s *Server) *trackingListener {
	done := make(chan struct{})
	s.connections.limit.Add(int64(s.options.MaxConnections))
	return &trackingListener{
		Listener:    l,
		connections: s.connections,
		max:         s.options.MaxConnections,
		times:       s.options.times,
		log:         s.log,
		closed:      sync.OnceFunc(func() { close(done) }),
		done:        done,
	}
}

// Close implements net.Listener.
func (l *trackingListener) Close() error {
	l.closed()
	return l.Listener.Close()
}

// Accept implements net.Listener.
func (l *trackingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		l.acceptFailed(err)
		return nil, err
	}
	if !l.awaitRoom() {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	k := l.connections
	c := &serverConn{Conn: conn, connections: k, listener: l, accepted: time.Now()}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.conns[c] = struct{}{}
	l.open++
	if k.closing {
		_ = conn.Close()
	}
	return c, nil
}

// awaitRoom waits until there may be one more connection. False: the listener was closed before.
func (l *trackingListener) awaitRoom() bool {
	waits := false
	defer func() {
		if waits {
			l.connections.waiting.Add(-1)
		}
	}()
	for {
		idle, wait, changed := l.room()
		if changed == nil {
			return true
		}
		if idle != nil {
			_ = idle.Close()
			continue
		}
		if !waits {
			waits = true
			l.connections.waiting.Add(1)
		}
		l.warnFull()
		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
		case <-l.done:
			timer.Stop()
			return false
		}
		timer.Stop()
	}
}

// warnFull says so once a minute: whoever waits knows only that nobody answers.
func (l *trackingListener) warnFull() {
	if now := time.Now(); now.Sub(l.full) >= time.Minute {
		l.full = now
		l.log.Warn("max_connections is reached, and connections wait", "listen", l.Addr().String(), "max_connections", l.max)
	}
}

// room looks for room for one more connection. changed is nil when there is. Else idle is a connection to close, if there is one that may be:
// one that has not completed its handshake for a second, or has had no call for ten. When there is none, it is worth another look
// after wait, or when changed is closed.
func (l *trackingListener) room() (idle *serverConn, wait time.Duration, changed <-chan struct{}) {
	k := l.connections
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.max <= 0 || l.open < l.max {
		return nil, 0, nil
	}
	if k.changed == nil {
		k.changed = make(chan struct{})
	}
	idle, wait = l.idlestLocked()
	return idle, wait, k.changed
}

// idlestLocked returns the connection that does nothing and has done so for longest: first those that have not completed their handshake. Nil: there
// is none, but may be after wait.
func (l *trackingListener) idlestLocked() (idlest *serverConn, wait time.Duration) {
	type candidate struct {
		conn *serverConn
		left time.Duration // until it may be closed
	}
	var all []candidate
	for c := range l.connections.conns {
		if c.listener != l {
			continue
		}
		if left, is := c.idleLocked(l.times); is {
			all = append(all, candidate{c, left})
		}
	}
	if len(all) == 0 {
		return nil, l.times.idle
	}
	least := slices.MinFunc(all, func(a, b candidate) int {
		if a.left <= 0 && b.left <= 0 && a.conn.established != b.conn.established {
			if b.conn.established {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.left, b.left)
	})
	if least.left <= 0 {
		return least.conn, 0
	}
	return nil, least.left
}

// idleLocked reports whether nothing is going on at the connection, and how much longer that may be so when others need room.
func (c *serverConn) idleLocked(t serverTimes) (left time.Duration, is bool) {
	if !c.established {
		return t.silence - time.Since(c.accepted), true
	}
	if c.inflow == nil {
		return 0, false
	}
	since, idle := c.inflow.idleSince()
	return t.idle - time.Since(since), idle
}

// acceptFailed says so once a second, and makes room: mostly the process has run out of descriptors. grpc.Server tries again.
func (l *trackingListener) acceptFailed(err error) {
	if temporary, ok := err.(interface{ Temporary() bool }); !ok || !temporary.Temporary() {
		return
	}
	if now := time.Now(); now.Sub(l.failed) >= time.Second {
		l.failed = now
		l.log.Warn("cannot accept connections", "error", err)
	}
	k := l.connections
	k.mu.Lock()
	idle, _ := l.idlestLocked()
	k.mu.Unlock()
	if idle != nil {
		_ = idle.Close()
	}
}
