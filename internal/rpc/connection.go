package rpc

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/peer"
)

// connections knows every connection the server has accepted. Safe for concurrent use.
type connections struct {
	limit   atomic.Int64 // of all listeners together
	waiting atomic.Int64 // listeners at which connections wait for room

	mu      sync.Mutex
	conns   map[*serverConn]struct{}
	closing bool          // connections are closed when they come
	changed chan struct{} // closed when there is one less; nil: nobody waits for that

	// onClose is told of every connection that is closed, and its client's name.
	onClose func(c *serverConn, client string)
}

func newConnections() *connections {
	return &connections{conns: make(map[*serverConn]struct{})}
}

// count returns how many connections have completed their handshake; those that never speak are no clients.
func (c *connections) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for conn := range c.conns {
		if conn.established {
			n++
		}
	}
	return n
}

// closeSilent closes the connections that have not completed their handshake, and from now on every new one. grpc.Server
// waits for those, also when it is told to stop at once.
func (c *connections) closeSilent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = true
	for conn := range c.conns {
		if !conn.established {
			_ = conn.Conn.Close()
		}
	}
}

// closeQuiet looks at all connections, and closes those on which more looks than these have found nothing new.
func (c *connections) closeQuiet(looks int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		if conn.quiet.look(conn.received.Load()) > looks && conn.established {
			_ = conn.Conn.Close() // gRPC notices, and closes the rest
		}
	}
}

// serverConn is one accepted connection. That it wraps the TCP connection keeps gRPC from setting TCP_USER_TIMEOUT on it, to the
// five seconds of a ping's answer. That is on purpose: Linux also ends connections by it whose peer is there and has a
// full receive buffer, and a subscriber may pause for longer. Who has gone does not answer pings, which is noticed as soon.
type serverConn struct {
	net.Conn
	connections    *connections
	listener       *trackingListener
	inflow         *inflow // set by the handshake, before the first call; by others read only when established
	accepted       time.Time
	received, sent atomic.Int64 // bytes
	used           atomic.Bool  // for a call of BrokerService
	issuer         knownIssuer  // guarded by access.mu

	// Guarded by connections.mu.
	established bool
	quiet       quiet
	client      string                      // name of the first subscription that has one
	lingering   map[*pendingFrames]struct{} // of ended streams that may not have been read to their end
}

// SetDeadline implements net.Conn. grpc.Server limits the handshake by a deadline and removes it when it is complete, which
// is the only sign of that it gives.
func (c *serverConn) SetDeadline(t time.Time) error {
	if t.IsZero() {
		c.connections.mu.Lock()
		c.established = true
		c.connections.mu.Unlock()
	}
	return c.Conn.SetDeadline(t)
}

// Close implements net.Conn.
func (c *serverConn) Close() error {
	c.connections.mu.Lock()
	_, first := c.connections.conns[c]
	if first {
		delete(c.connections.conns, c)
		c.listener.open--
		if c.connections.changed != nil {
			close(c.connections.changed)
			c.connections.changed = nil
		}
	}
	lingering := c.lingering
	c.lingering = nil
	client := c.client
	c.connections.mu.Unlock()
	for p := range lingering {
		p.letGo()
	}
	err := c.Conn.Close()
	if first && c.connections.onClose != nil {
		c.connections.onClose(c, client)
	}
	return err
}

// Read implements net.Conn.
func (c *serverConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(n))
	return n, err
}

// Write implements net.Conn.
func (c *serverConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent.Add(int64(n))
	return n, err
}

// use notes that somebody publishes or subscribes. c may be nil.
func (c *serverConn) use() {
	if c != nil && !c.used.Load() {
		c.used.Store(true)
	}
}

// named notes what a client calls itself. c may be nil.
func (c *serverConn) named(client string) {
	if c == nil || client == "" {
		return
	}
	c.connections.mu.Lock()
	if c.client == "" {
		c.client = client
	}
	c.connections.mu.Unlock()
}

// keep makes the connection let go of p when it is closed. False: it is closed already.
func (c *serverConn) keep(p *pendingFrames) bool {
	c.connections.mu.Lock()
	defer c.connections.mu.Unlock()
	if _, open := c.connections.conns[c]; !open {
		return false
	}
	if c.lingering == nil {
		c.lingering = make(map[*pendingFrames]struct{})
	}
	c.lingering[p] = struct{}{}
	return true
}

// forget takes keep back.
func (c *serverConn) forget(p *pendingFrames) {
	c.connections.mu.Lock()
	defer c.connections.mu.Unlock()
	delete(c.lingering, p)
}

// open reports whether nobody has closed the connection yet.
func (c *serverConn) open() bool {
	c.connections.mu.Lock()
	defer c.connections.mu.Unlock()
	_, open := c.connections.conns[c]
	return open
}

// RemoteAddr implements net.Conn. The address leads back to the connection: it is all that a call knows of the one it
// came on.
func (c *serverConn) RemoteAddr() net.Addr { return connAddr{c.Conn.RemoteAddr(), c} }

type connAddr struct {
	net.Addr
	conn *serverConn
}

// connOf returns the connection of a call; nil: it came on none of the server's listeners.
func connOf(ctx context.Context) *serverConn {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	address, _ := p.Addr.(connAddr)
	return address.conn
}

func peerOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}
