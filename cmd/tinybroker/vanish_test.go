//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// blackHole is a proxy between clients and a broker that can fall silent: it keeps all its connections open, and nothing
// gets through any more, not even that an end has closed its own.
type blackHole struct {
	address  string
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	conns   []net.Conn
	silent  bool
	swallow bool
}

func openBlackHole(t *testing.T, target string) *blackHole {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &blackHole{address: l.Addr().String(), listener: l}
	h.running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			broker, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			h.mu.Lock()
			h.conns = append(h.conns, client, broker)
			h.mu.Unlock()
			h.running.Go(func() { h.forward(client, broker) })
			h.running.Go(func() { h.forward(broker, client) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		h.mu.Lock()
		for _, c := range h.conns {
			c.Close()
		}
		h.mu.Unlock()
		h.running.Wait()
	})
	return h
}

// vanish makes it silent. One that swallows goes on reading, so that whoever writes notices nothing; else the buffers on the way
// fill up. New connections get no answer either.
func (h *blackHole) vanish(swallow bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.silent, h.swallow = true, swallow
}

func (h *blackHole) state() (silent, swallow bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.silent, h.swallow
}

func (h *blackHole) forward(from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		silent, swallow := h.state()
		switch {
		case silent && !swallow || silent && err != nil:
			return // and leaves both open
		case silent:
		case err != nil:
			to.Close()
			return
		default:
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
	}
}

// feed publishes 200 KB a second until the test ends.
func (b *broker) feed(topic string) {
	b.t.Helper()
	pub := start(b.t, []string{"pub", topic, "-s", b.address, "--max-wait", "0"}, withStdin)
	var feeding sync.WaitGroup
	feeding.Go(func() {
		for line := strings.Repeat("z", 2000); ; time.Sleep(10 * time.Millisecond) {
			if _, err := fmt.Fprintln(pub.stdin, line); err != nil {
				return
			}
		}
	})
	b.t.Cleanup(func() {
		pub.cmd.Process.Kill()
		feeding.Wait()
	})
}

// delivered is how many messages it has written to subscribers.
func (b *broker) delivered() uint64 {
	b.t.Helper()
	var status statusReport
	if err := json.Unmarshal([]byte(b.status()), &status); err != nil {
		b.t.Fatal(err)
	}
	return status.DeliveredMessages
}

// vanishing is a member of a group behind a black hole, holding messages that it never acknowledges, and beside it another
// member, and a plain subscriber behind the hole.
type vanishing struct {
	name       string
	data       bool // it is being sent to all the time
	swallow    bool
	hole       *blackHole
	other      *process
	subscriber *process
}

const heldByVanishing = 50

func (v *vanishing) setUp(t *testing.T) {
	t.Helper()
	// Neither the ack deadline nor the send timeout is to give its messages back.
	b := startBroker(t, "--ack-deadline", "1h", "--send-timeout", "1h", "--max-in-flight", "60000")
	v.hole = openBlackHole(t, b.address)
	far := &broker{process: b.process, address: v.hole.address}
	far.sub([]string{"jobs", "more", "-g", "workers"}, writing(stuckPipe(t)))
	v.subscriber = far.sub([]string{"other"})
	b.pub(strings.Repeat("x", 100_000), "jobs") // fills the pipe, so that it acknowledges nothing
	b.pub(strings.Repeat("y\n", heldByVanishing-1), "jobs")
	v.other = b.sub([]string{"jobs", "-g", "workers", "--format", "{{.Size}}"})
	if v.data {
		b.feed("more")
		eventually(t, "data is being sent", func() bool { return b.delivered() > heldByVanishing+100 })
	}
	if got := v.other.stdout.String(); got != "" {
		t.Fatalf("%s: the other member has %q", v.name, got)
	}
}

// A member of a group whose machine or network goes away without a word is noticed within 15 s, also while data is being sent
// to it, and another member gets what it held. A subscriber notices as soon that the broker has gone.
func TestVanishedMember(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes 15 s")
	}
	cases := []*vanishing{
		{name: "idle"},
		{name: "idle, swallowed", swallow: true},
		{name: "under data", data: true},
		{name: "under data, swallowed", data: true, swallow: true},
	}
	for _, v := range cases {
		v.setUp(t)
	}
	for _, v := range cases {
		v.hole.vanish(v.swallow)
	}
	began := time.Now()
	inTime := func(name, what string) {
		took := time.Since(began)
		t.Logf("%s: %s after %v", name, what, took.Round(10*time.Millisecond))
		if took > 20*time.Second { // 15 s, and what a busy machine takes
			t.Errorf("%s: %s after %v", name, what, took)
		}
	}
	for _, v := range cases {
		eventually(t, "the other member gets it all", func() bool { return strings.Count(v.other.stdout.String(), "\n") == heldByVanishing })
		inTime(v.name, "the broker has noticed")
		v.subscriber.says("connection lost")
		inTime(v.name, "the subscriber has noticed")
	}
}
