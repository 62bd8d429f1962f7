package rpc

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

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
	var over []*inCall
	for _, c := range in.chooseLocked() {
		if c.refuse() {
			over = append(over, c)
		}
	}
	in.mu.Unlock()
	for _, c := range over {
		c.ends()
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
