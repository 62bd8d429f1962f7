package rpc

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/tap"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// inbound bounds what clients have sent of their requests and no handler has dealt with yet. gRPC buffers a message until it is
// whole, and more behind it, on every stream, and neither tells of it nor limits the sum: one client could fill the machine
// with halves of messages. So the connections are read over gRPC's shoulder, see inflow, and past the limit those
// calls are ended that have waited longest. Who sends a message to its end in time is never among them for long.
//
// Safe for concurrent use.
type inbound struct {
	limit    int64
	maxCalls int64
	held     atomic.Int64 // what all calls together hold, in bytes of memory
	refused  atomic.Int64 // what calls hold that were given up, and whose handlers have not returned yet
	calls    atomic.Int64 // how many there are, without those of strangers

	mu     sync.Mutex
	flows  map[*inflow]struct{}
	relief chan struct{} // closed when refused has become less; nil: nobody waits
}

// minInbound leaves room for a few large messages at once, however small max_memory is.
const minInbound = 32 << 20

func newInbound(o core.Options, maxConnections int) *inbound {
	return &inbound{
		limit:    max(minInbound, o.MaxMemory/4, 8*int64(o.MaxMessageSize)),
		maxCalls: int64(o.MaxSubscriptions) + callsPerConnection*int64(max(1, maxConnections)),
		flows:    make(map[*inflow]struct{}),
	}
}

// callsPerConnection is how many calls beside its subscriptions every one of max_connections could have. They share them.
const callsPerConnection = 4

// smallHolding is what a call may hold without being suspected while others hold more: an idle one may hold a little for ever.
const smallHolding = 4 << 10

// relieve ends calls until no more than three quarters of the limit are held: first those that hold more than a little, and of those the
// ones in which nothing was dealt with for longest.
func (in *inbound) relieve() {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, c := range in.chooseLocked() {
		c.refuse()
	}
}

// maxRelief is how long a connection may be kept from being read for calls of others to end.
const maxRelief = time.Second

// awaitRelief waits until most of what was given up is free, for who sends faster than that can be.
func (in *inbound) awaitRelief() {
	timeout := time.NewTimer(maxRelief)
	defer timeout.Stop()
	for in.refused.Load() > in.limit/4 {
		in.mu.Lock()
		if in.relief == nil {
			in.relief = make(chan struct{})
		}
		relief := in.relief
		in.mu.Unlock()
		if in.refused.Load() <= in.limit/4 {
			return
		}
		select {
		case <-relief:
		case <-timeout.C:
			return
		}
	}
}

// relieved notes that a call that was given up has ended.
func (in *inbound) relieved(held int64) {
	in.refused.Add(-held)
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.relief != nil {
		close(in.relief)
		in.relief = nil
	}
}

var errInbound = fmt.Errorf("%w: requests that are not complete, or not read by their handlers, take too much; this one has waited longest", core.ErrMemory)

func (in *inbound) chooseLocked() (chosen []*inCall) {
	excess := in.held.Load() - in.limit
	if excess <= 0 {
		return nil // somebody else has been here
	}
	excess += in.limit / 4
	type candidate struct {
		call  *inCall
		held  int64
		since time.Time
	}
	var all []candidate
	for f := range in.flows {
		f.mu.Lock()
		for _, c := range f.calls {
			if c.held > 0 {
				all = append(all, candidate{c, c.held, c.since})
			}
		}
		f.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b candidate) int {
		if small := a.held <= smallHolding; small != (b.held <= smallHolding) {
			if small {
				return 1
			}
			return -1
		}
		return a.since.Compare(b.since)
	})
	for _, c := range all {
		if excess <= 0 {
			break
		}
		chosen = append(chosen, c.call)
		excess -= c.held
	}
	return chosen
}

// strangeCalls is how many calls of strangers one connection may have at a time: whoever has shown no credential that is known, where one is
// asked for. They do not count among those of everybody else, for whom they could leave nothing.
const strangeCalls = 8

// tap makes a call known before gRPC begins with it; strange is why it comes from a stranger. gRPC calls it from the goroutine that reads the
// connection, right after it has read the header of the call, and inflow.Read gives it no more than that at once: the header is
// the last thing that was read.
func (in *inbound) tap(ctx context.Context, info *tap.Info, strange error) (context.Context, error) {
	conn := connOf(ctx)
	if conn == nil || conn.inflow == nil {
		return ctx, nil
	}
	if strange != nil {
		switch f := conn.inflow; {
		case f.strangeCalls() < strangeCalls:
			return f.begin(ctx, info.FullMethodName, true), nil
		case rules[info.FullMethodName] == anyone:
			return nil, fmt.Errorf("%w: %d calls without a credential are open on this connection", core.ErrQuota, strangeCalls)
		}
		return nil, strange
	}
	if n := in.calls.Add(1); n > in.maxCalls {
		in.calls.Add(-1)
		return nil, fmt.Errorf("%w: %d calls are open", core.ErrQuota, n-1)
	}
	return conn.inflow.begin(ctx, info.FullMethodName, false), nil
}

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

// refuse gives the call up. It is called once. What it sends from now on is not kept by anybody for long, and not accounted for.
func (c *inCall) refuse() {
	c.flow.mu.Lock()
	if !c.ended {
		delete(c.flow.calls, c.id)
		c.flow.in.held.Add(-c.held)
		c.flow.in.refused.Add(c.held)
		c.givenUp = true
	}
	receiving := c.receiving
	c.flow.mu.Unlock()
	switch {
	case c.told, receiving:
		close(c.refused)
	case c.alien:
		_ = c.flow.raw.Close()
	default:
		c.cancel()
	}
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

// given notes that the handler got the next message.
func (c *inCall) given() {
	if c == nil {
		return
	}
	c.flow.mu.Lock()
	c.owed = true
	c.flow.mu.Unlock()
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

// end forgets the call. Only the first time has an effect.
func (c *inCall) end() {
	if c == nil {
		return
	}
	c.stop()
	c.ends()
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

// credentials makes the connections that next has secured known to in, and tells refused of those that it has not.
func (in *inbound) credentials(next credentials.TransportCredentials, refused func(net.Conn, error)) credentials.TransportCredentials {
	return observedCredentials{next, in, refused}
}

type observedCredentials struct {
	credentials.TransportCredentials
	in      *inbound
	refused func(net.Conn, error)
}

// ServerHandshake implements credentials.TransportCredentials.
func (c observedCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		c.refused(raw, err)
		return nil, info, err
	}
	tracked, ok := raw.(*serverConn)
	if !ok {
		return conn, info, nil
	}
	f := &inflow{Conn: conn, raw: raw, in: c.in, calls: make(map[uint32]*inCall), walk: newFrameWalk(), idle: time.Now()}
	tracked.inflow = f
	c.in.mu.Lock()
	c.in.flows[f] = struct{}{}
	c.in.mu.Unlock()
	return f, info, nil
}

// Clone implements credentials.TransportCredentials.
func (c observedCredentials) Clone() credentials.TransportCredentials {
	return observedCredentials{c.TransportCredentials.Clone(), c.in, c.refused}
}
