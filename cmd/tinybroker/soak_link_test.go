//go:build unix

package main

import (
	"net"
	"sync"
	"testing"
	"time"
)

// soakMode is what a link does with the bytes of one direction.
type soakMode int

const (
	linkPass    soakMode = iota
	linkSwallow          // takes them and lets them vanish
	linkStall            // does not take them
	linkDelay            // hands them on late
	linkCut              // hands on half of the next ones, then resets the connection
)

// soakLink is a way to the broker on which things go wrong: a TCP forwarder.
type soakLink struct {
	name     string
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond // the modes, or closed
	modes   [2]soakMode
	conns   map[*soakConn]struct{}
	closed  bool
}

const (
	linkUp   = 0 // from the client to the broker
	linkDown = 1
)

const linkLateness = 150 * time.Millisecond

func newSoakLink(t *testing.T, name, target string) *soakLink {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &soakLink{name: name, listener: l, target: target, conns: map[*soakConn]struct{}{}}
	k.changed = sync.NewCond(&k.mu)
	k.running.Go(k.accept)
	t.Cleanup(k.close)
	return k
}

func (k *soakLink) address() string { return k.listener.Addr().String() }

func (k *soakLink) accept() {
	for {
		client, err := k.listener.Accept()
		if err != nil {
			return
		}
		broker, err := net.Dial("tcp", k.target)
		if err != nil {
			reset(client)
			continue
		}
		c := &soakConn{link: k, ends: [2]net.Conn{client, broker}}
		k.mu.Lock()
		k.conns[c] = struct{}{}
		if k.closed {
			c.resetLocked()
		}
		k.mu.Unlock()
		k.running.Go(func() { c.pump(linkUp) })
		k.running.Go(func() { c.pump(linkDown) })
	}
}

// set makes both directions, up and down, behave like this.
func (k *soakLink) set(up, down soakMode) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.modes = [2]soakMode{up, down}
	k.changed.Broadcast()
}

// heal makes the link work. Connections on which bytes have vanished cannot go on; they are reset.
func (k *soakLink) heal() {
	k.set(linkPass, linkPass)
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.conns {
		if c.holed[linkUp] || c.holed[linkDown] {
			c.resetLocked()
		}
	}
}

// cutAll resets every connection there is.
func (k *soakLink) cutAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.conns {
		c.resetLocked()
	}
}

func (k *soakLink) close() {
	k.listener.Close()
	k.mu.Lock()
	k.closed = true
	for c := range k.conns {
		c.resetLocked()
	}
	k.changed.Broadcast()
	k.mu.Unlock()
	k.running.Wait()
}

// soakConn is a client's connection and the one to the broker.
type soakConn struct {
	link  *soakLink
	ends  [2]net.Conn
	holed [2]bool // bytes of a direction have vanished: none may follow; guarded by link.mu
	gone  bool    // guarded by link.mu
}

// pump hands on the bytes of one direction until either end has gone.
func (c *soakConn) pump(direction int) {
	from, to := c.ends[direction], c.ends[1-direction]
	defer func() {
		c.link.mu.Lock()
		defer c.link.mu.Unlock()
		if c.link.modes[direction] == linkSwallow || c.link.modes[1-direction] == linkSwallow {
			// In a black hole nobody hears that the other end has gone.
			c.holed = [2]bool{true, true}
			from.Close()
			return
		}
		c.resetLocked()
	}()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if n > 0 && !c.pass(direction, to, b[:n]) {
			return
		}
		if err != nil {
			return
		}
	}
}

// pass hands on some bytes in the way that is set; false: the connection is over.
func (c *soakConn) pass(direction int, to net.Conn, b []byte) bool {
	k := c.link
	k.mu.Lock()
	for k.modes[direction] == linkStall && !k.closed && !c.gone {
		k.changed.Wait()
	}
	mode := k.modes[direction]
	if mode == linkSwallow {
		c.holed[direction] = true
	}
	holed, gone := c.holed[direction], c.gone
	k.mu.Unlock()
	switch {
	case gone:
		return false
	case holed:
		return true
	case mode == linkDelay:
		time.Sleep(linkLateness)
	case mode == linkCut:
		to.Write(b[:len(b)/2])
		return false
	}
	_, err := to.Write(b)
	return err == nil
}

// resetLocked ends both connections with a RST each.
func (c *soakConn) resetLocked() {
	c.gone = true
	delete(c.link.conns, c)
	c.link.changed.Broadcast()
	for _, end := range c.ends {
		reset(end)
	}
}

func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	conn.Close()
}
