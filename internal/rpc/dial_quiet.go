package rpc

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
)

// quietCredentials closes connections on which the broker says nothing at all, which gRPC does not when the clock was set back.
type quietCredentials struct {
	credentials.TransportCredentials
}

// ClientHandshake implements credentials.TransportCredentials.
func (c quietCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, info, err
	}
	return newQuietConn(conn), info, nil
}

// Clone implements credentials.TransportCredentials.
func (c quietCredentials) Clone() credentials.TransportCredentials {
	return quietCredentials{c.TransportCredentials.Clone()}
}

// quietConn is a connection that closes itself when nothing has come for quietLooks looks.
type quietConn struct {
	net.Conn
	received atomic.Int64 // bytes

	mu    sync.Mutex
	timer *time.Timer // nil: closed
	quiet quiet
}

func newQuietConn(conn net.Conn) *quietConn {
	c := &quietConn{Conn: conn}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = time.AfterFunc(pingTimeout, c.look)
	return c
}

// look closes the connection, or sees to it that there is another look.
func (c *quietConn) look() {
	if c.gone() {
		_ = c.Close() // gRPC learns of it as it reads
	}
}

func (c *quietConn) gone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer == nil {
		return false
	}
	if c.quiet.look(c.received.Load()) > quietLooks(pingInterval, pingTimeout) {
		return true
	}
	c.timer.Reset(pingTimeout)
	return false
}

// Read implements net.Conn.
func (c *quietConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(n))
	return n, err
}

// Close implements net.Conn.
func (c *quietConn) Close() error {
	c.mu.Lock()
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	c.mu.Unlock()
	return c.Conn.Close()
}
