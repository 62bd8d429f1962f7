package rpc

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestQuietBroker: a connection on which nothing comes closes itself, whatever gRPC does about it, and one on which something comes stays.
func TestQuietBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, theirs := net.Pipe()
		c := newQuietConn(mine)
		began := time.Now()
		for range 20 {
			go func() { _, _ = theirs.Write([]byte("x")) }()
			if _, err := c.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(pingInterval + pingTimeout)
		}
		last := time.Now()
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("something came")
		}
		// The last byte came a ping before that.
		if waited := time.Since(last) + pingInterval + pingTimeout; waited < 25*time.Second || waited > 30*time.Second {
			t.Errorf("closed after %v, altogether %v", waited, time.Since(began))
		}
		closed := newQuietConn(mine)
		_ = closed.Close()
		time.Sleep(time.Minute) // nothing looks any more
	})
}
