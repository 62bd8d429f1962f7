package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc/mem"
)

// inCall is what a call has sent and its handler has not dealt with yet.
type inCall struct {
	flow    *inflow
	id      uint32
	began   time.Time
	told    bool               // the handler waits for refused
	alien   bool               // it belongs to no service of which clients send much
	strange bool               // it comes from a stranger
	refused chan struct{}      // closed when the broker gives the call up; nil unless told or receiving
	cancel  context.CancelFunc // nil when told
	stop    func() bool

	// Guarded by the flow's mu.
	receiving bool // its only request, see receives; refused is closed then as well
	unread    bool // its only answer is not written yet
	handled   bool // its handler has returned, and it lasts until the answer is written
	ended     bool
	givenUp   bool // held does not change any more
	held      int64
	since     time.Time // when a message was last dealt with or, when nothing was held, the first came
	messages  messageParser
	completed []completeMessages // the oldest first
	owed      bool               // the handler has been given the first of these
}

// completeMessages are n messages that are whole. What they take is free once the last of them has been dealt with: they share a buffer.
type completeMessages struct {
	n    int
	cost int64
}

// complete notes that one more message is whole. cost is what has come with it.
func (c *inCall) complete(cost int64) {
	if last := len(c.completed) - 1; cost == 0 && last >= 0 {
		c.completed[last].n++
		return
	}
	c.completed = append(c.completed, completeMessages{1, cost})
}

type inCallKey struct{}

// inCallOf returns what is known of the call; nil: nothing.
func inCallOf(ctx context.Context) *inCall {
	c, _ := ctx.Value(inCallKey{}).(*inCall)
	return c
}

// refusal returns a channel that is closed when the broker gives the call up: the handler is to return errInbound at once. What
// gRPC itself does for a context that has ended tells the client nothing.
func (c *inCall) refusal() <-chan struct{} {
	if c == nil {
		return nil
	}
	return c.refused
}

// refuse gives the call up. It is called once. What it sends from now on is not kept by anybody for long, and not accounted for. over: its handler has
// returned, and nobody else will call ends.
func (c *inCall) refuse() (over bool) {
	c.flow.mu.Lock()
	if !c.ended {
		delete(c.flow.calls, c.id)
		c.flow.in.held.Add(-c.held)
		c.flow.in.refused.Add(c.held)
		c.givenUp = true
	}
	receiving, handled := c.receiving, c.handled
	c.flow.mu.Unlock()
	switch {
	case handled:
		_ = c.flow.raw.Close()
	case c.told, receiving:
		close(c.refused)
	case c.alien:
		_ = c.flow.raw.Close()
	default:
		c.cancel()
	}
	return handled
}

// receives reports whether the call may be given up while its handler waits for a request that is not whole yet, without having been told: the
// handler is to wait for refusal as well. received is to be called when the request is there, and
// reports whether it was given up.
func (c *inCall) receives() bool {
	if c == nil || c.told || c.alien {
		return false
	}
	c.flow.mu.Lock()
	defer c.flow.mu.Unlock()
	if c.givenUp || len(c.completed) > 0 {
		return false
	}
	c.receiving, c.refused = true, make(chan struct{})
	return true
}

func (c *inCall) received() (refused bool) {
	c.flow.mu.Lock()
	defer c.flow.mu.Unlock()
	c.receiving = false
	return c.givenUp
}

// wasRefused reports whether the broker has given the call up.
func (c *inCall) wasRefused() bool {
	if c == nil {
		return false
	}
	c.flow.mu.Lock()
	defer c.flow.mu.Unlock()
	return c.givenUp
}

// giveUp ends a call that was refused. A client that has not taken what was sent to it loses its connection: gRPC keeps the whole of a
// stream, with what came on it, for as long as something waits to be written.
func giveUp(ctx context.Context, pending *pendingFrames) error {
	if conn := connOf(ctx); conn != nil && pending.count() > 0 {
		_ = conn.Close()
	}
	return errInbound
}

// given notes that the handler got the next message, of size bytes. One that came compressed takes more than what has come.
func (c *inCall) given(size int) {
	if c == nil {
		return
	}
	more := int64(0)
	c.flow.mu.Lock()
	c.owed = true
	if len(c.completed) > 0 && !c.givenUp && !c.ended {
		first := &c.completed[0]
		more = max(0, int64(size)-first.cost)
		first.cost += more
		c.held += more
	}
	c.flow.mu.Unlock()
	if in := c.flow.in; more > 0 && in.held.Add(more) > in.limit {
		in.relieve()
	}
}

// settle notes that the message which the handler was given last takes no memory any more, or is accounted for elsewhere.
func (c *inCall) settle() {
	if c == nil {
		return
	}
	c.flow.mu.Lock()
	defer c.flow.mu.Unlock()
	if c.givenUp || !c.owed || len(c.completed) == 0 {
		return
	}
	c.owed = false
	c.since = time.Now()
	first := &c.completed[0]
	if first.n--; first.n > 0 {
		return
	}
	c.held -= first.cost
	c.flow.in.held.Add(-first.cost)
	if c.completed = c.completed[1:]; len(c.completed) == 0 {
		c.completed = nil
	}
}

// owes notes that answers to the call, or what they are made of, take n bytes until the client has taken them.
func (c *inCall) owes(n int64) {
	if c == nil || n == 0 {
		return
	}
	c.flow.mu.Lock()
	if c.givenUp || c.ended {
		c.flow.mu.Unlock()
		return
	}
	if c.held == 0 {
		c.since = time.Now()
	}
	c.held += n
	c.flow.mu.Unlock()
	if in := c.flow.in; in.held.Add(n) > in.limit {
		in.relieve()
	}
}

// paid takes owes back.
func (c *inCall) paid(n int64) {
	if c == nil || n == 0 {
		return
	}
	c.flow.mu.Lock()
	defer c.flow.mu.Unlock()
	if c.givenUp || c.ended {
		return
	}
	c.held -= n
	c.flow.in.held.Add(-n)
}

// answers returns the buffer that is to end the call's only answer. Until the client has taken that, the call lasts: the transport keeps all of it, with
// its metadata.
func (c *inCall) answers() mem.Buffer {
	c.flow.mu.Lock()
	c.unread = true
	c.flow.mu.Unlock()
	return mem.NewBuffer(&mark, (*answered)(c))
}

// answered is a call as the mem.BufferPool of the end of its answer.
type answered inCall

// Put implements mem.BufferPool. The answer is written, or there is nobody to write it to.
func (a *answered) Put(*[]byte) {
	c := (*inCall)(a)
	c.flow.mu.Lock()
	c.unread = false
	handled := c.handled
	c.flow.mu.Unlock()
	if handled {
		c.ends()
	}
}

// Get implements mem.BufferPool. Nobody asks for it.
func (*answered) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}

// end forgets the call, since its handler returns, as soon as there is no unread answer. Only the first time has an effect.
func (c *inCall) end() {
	if c == nil {
		return
	}
	c.stop()
	c.flow.mu.Lock()
	lasts := c.unread && !c.givenUp
	c.handled = lasts
	c.flow.mu.Unlock()
	if !lasts {
		c.ends()
	}
}

func (c *inCall) ends() {
	c.flow.mu.Lock()
	givenUp := c.givenUp && !c.ended
	c.endLocked()
	c.flow.mu.Unlock()
	if givenUp {
		c.flow.in.relieved(c.held)
	}
}

func (c *inCall) endLocked() {
	if c.ended {
		return
	}
	c.ended = true
	if c.strange {
		c.flow.strange--
	} else {
		c.flow.idle = time.Now()
		c.flow.in.calls.Add(-1)
	}
	if !c.givenUp {
		delete(c.flow.calls, c.id)
		c.flow.in.held.Add(-c.held)
	}
}
