package rpc

import (
	"context"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"

	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// inflow is a connection whose HTTP/2 frames are looked at on their way to gRPC, so that it is known what each call has sent. Nothing is
// changed or kept. Read is for one goroutine; everything else is safe for concurrent use.
type inflow struct {
	net.Conn
	raw  net.Conn // without TLS
	in   *inbound
	rest []byte // read, and not handed on yet
	walk frameWalk
	pace resetPace

	greeting greeting
	refused  func(net.Conn, error) // is told of a client that does not speak HTTP/2

	mu      sync.Mutex
	closed  bool
	calls   map[uint32]*inCall
	strange int       // how many calls of strangers there are
	idle    time.Time // when the last call ended that was none of a stranger, or the connection began
}

// idleSince reports whether no call is open but those of strangers, and since when.
func (f *inflow) idleSince() (since time.Time, idle bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls { // of which few are strange
		if !c.strange {
			return f.idle, false
		}
	}
	return f.idle, true
}

func (f *inflow) strangeCalls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.strange
}

// Read implements net.Conn. It hands on no more than to the end of the header of a call: gRPC reads again only when it has
// begun with that call.
func (f *inflow) Read(p []byte) (int, error) {
	if len(f.rest) > 0 {
		done := f.observe(p[:copy(p, f.rest)])
		if f.rest = f.rest[done:]; len(f.rest) == 0 {
			f.rest = nil
		}
		return done, nil
	}
	n, err := f.Conn.Read(p)
	if foreign := f.greeting.read(p[:n]); foreign != nil {
		f.refused(f.raw, foreign) // gRPC would tell nobody
		return 0, foreign
	}
	done := f.observe(p[:n])
	if done < n {
		f.rest = append([]byte(nil), p[done:n]...)
		err = nil // will come again
	}
	return done, err
}

// observe follows the frames in b and returns how much of it may be handed on.
func (f *inflow) observe(b []byte) (n int) {
	for n < len(b) {
		event, size := f.walk.next(b[n:])
		chunk := b[n : n+size]
		n += size
		switch event {
		case frameBegins:
			switch f.walk.typ {
			case http2.FrameData:
				f.charge(f.walk.stream, bufferCost(int(f.walk.length)))
			case http2.FrameRSTStream:
				f.reset(f.walk.stream)
			}
		case dataComes:
			f.receive(f.walk.stream, chunk)
		case headerEnds:
			return n
		}
	}
	return n
}

// frameCost is what gRPC keeps for each piece of data beside the bytes.
const frameCost = 96

// bufferCost is what the buffer takes that gRPC reads n bytes of data into: small ones are made to measure, others come from pools of
// some sizes.
func bufferCost(n int) int64 {
	switch {
	case n == 0:
		return 0
	case n <= 1<<10:
		return frameCost + int64(n)
	case n <= 4<<10:
		return frameCost + 4<<10
	}
	return frameCost + int64(max(16<<10, n))
}

func (f *inflow) charge(stream uint32, n int64) {
	f.mu.Lock()
	c := f.calls[stream]
	if c == nil {
		f.mu.Unlock()
		return // gRPC does not know it either, or no more
	}
	if c.held == 0 {
		c.since = time.Now()
	}
	c.held += n
	c.messages.cost += n
	f.mu.Unlock()
	if f.in.held.Add(n) > f.in.limit {
		f.in.relieve()
		f.in.awaitRelief()
	}
}

// receive follows the messages of a call.
func (f *inflow) receive(stream uint32, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.calls[stream]
	if c == nil {
		return
	}
	c.messages.read(data, c.complete)
}

// reset keeps the connection from being read for a while when its client resets calls as fast as it begins them.
func (f *inflow) reset(stream uint32) {
	f.mu.Lock()
	c := f.calls[stream]
	f.mu.Unlock()
	if c == nil {
		return // it has ended
	}
	if now := time.Now(); now.Sub(c.began) < resetYoung {
		time.Sleep(f.pace.reset(now)) //nolint:forbidigo // it is time that is to pass
	}
}

// begin makes the call known whose header was read last.
func (f *inflow) begin(ctx context.Context, method string, strange bool) context.Context {
	c := &inCall{flow: f, id: f.walk.call, began: time.Now(), strange: strange}
	c.told = method == tinybrokerv1.BrokerService_PublishStream_FullMethodName || method == tinybrokerv1.BrokerService_Subscribe_FullMethodName
	c.alien = !strings.HasPrefix(method, brokerPrefix)
	c.stop = context.AfterFunc(ctx, c.ends)
	if c.told {
		c.refused = make(chan struct{})
	} else {
		ctx, c.cancel = context.WithCancel(ctx)
	}
	ctx = context.WithValue(ctx, inCallKey{}, c)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[c.id] = c
	if strange {
		f.strange++
	}
	if f.closed {
		c.endLocked()
	}
	if c.ended {
		delete(f.calls, c.id)
		return ctx
	}
	if over := int64(f.walk.headerBytes) - freeHeaderBytes; over > 0 {
		c.held, c.since = over, time.Now()
		f.in.held.Add(over)
	}
	return ctx
}

const brokerPrefix = "/tinybroker.v1.BrokerService/"

// freeHeaderBytes is how much of a call's header belongs to what any call takes.
const freeHeaderBytes = 1 << 10

// Close implements net.Conn.
func (f *inflow) Close() error {
	f.in.mu.Lock()
	delete(f.in.flows, f)
	f.in.mu.Unlock()
	f.mu.Lock()
	f.closed = true
	for _, c := range f.calls {
		c.endLocked()
	}
	f.mu.Unlock()
	return f.Conn.Close()
}

// credentials makes the connections that next has secured known to in, and tells refused of those that it has not,
// and of those that do not speak HTTP/2.
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
	f := &inflow{Conn: conn, raw: raw, in: c.in, calls: make(map[uint32]*inCall), walk: newFrameWalk(), refused: c.refused, idle: time.Now()}
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
