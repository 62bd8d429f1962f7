package rpc

import (
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// TestQuietConnections: who says nothing at all is closed though gRPC does not ask, as after the clock was set back; who says anything stays.
func TestQuietConnections(t *testing.T) {
	s := newStation(t, func(_ *core.Options, so *ServerOptions) {
		so.times.ping, so.times.pongTimeout = time.Hour, time.Hour
	})
	dialHTTP2(t, s)
	alive := dialHTTP2(t, s)
	silence(t, s, http2.ClientPreface[:5]) // has its own time
	eventually(t, "both are clients", func() bool { return s.server.Connections() == 2 })
	const looks = 3
	for look := range 3 * looks {
		s.server.connections.closeQuiet(looks)
		if look == looks-1 && s.server.Connections() != 2 {
			t.Error("closed too early")
		}
		heard := s.server.connections.heard(alive)
		if err := alive.WritePing(false, [8]byte{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the ping has come", func() bool { return s.server.connections.heard(alive) > heard })
	}
	eventually(t, "the quiet one is gone", func() bool { return s.server.Connections() == 1 && s.server.connections.all() == 2 })
}

// heard returns how many bytes have come from client.
func (c *connections) heard(client net.Conn) (n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		if conn.Conn.RemoteAddr().String() == client.LocalAddr().String() {
			n += conn.received.Load()
		}
	}
	return n
}
