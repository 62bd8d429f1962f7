package rpc

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// stockMember is a group's member that a stock client has opened. A goroutine reads what comes.
type stockMember struct {
	stream     tinybrokerv1.BrokerService_SubscribeClient
	opened     *tinybrokerv1.Opened
	cancel     context.CancelFunc
	deliveries chan stockDelivery
	ended      chan struct{} // closed at the stream's end

	// How the stream ended; to be read then.
	closed *tinybrokerv1.Closed
	err    error
}

// stockDelivery is a message as it came.
type stockDelivery struct {
	*tinybrokerv1.Message
	sequence uint64
	attempt  uint32
	frame    int // the number of the frame it came in
}

// joinStock opens a member of group g for all topics, if nothing else is asked for.
func joinStock(t testing.TB, stub tinybrokerv1.BrokerServiceClient, o *tinybrokerv1.OpenSubscription) *stockMember {
	t.Helper()
	m, err := tryJoinStock(t, stub, o)
	if err != nil {
		t.Fatalf("join: %v", err)
	}
	return m
}

func tryJoinStock(t testing.TB, stub tinybrokerv1.BrokerServiceClient, o *tinybrokerv1.OpenSubscription) (*stockMember, error) {
	t.Helper()
	if o.ConsumerGroup == "" {
		o.ConsumerGroup = "g"
	}
	if o.TopicPatterns == nil {
		o.TopicPatterns = []string{"**"}
	}
	s, err := tryOpen(t.Context(), stub, o)
	if err != nil {
		return nil, err
	}
	m := &stockMember{
		stream: s.BrokerService_SubscribeClient, opened: s.opened, cancel: s.cancel,
		deliveries: make(chan stockDelivery, 100_000), ended: make(chan struct{}),
	}
	go m.read()
	t.Cleanup(func() {
		m.cancel()
		<-m.ended
	})
	return m, nil
}

func (m *stockMember) read() {
	defer close(m.ended)
	for frame := 0; ; frame++ {
		r, err := m.stream.Recv()
		if err != nil {
			m.err = err
			return
		}
		for i, message := range r.GetMessages() {
			m.deliveries <- stockDelivery{message, r.GetFirstSequence() + uint64(i), r.GetAttempt(), frame}
		}
		if r.GetClosed() != nil {
			m.closed = r.GetClosed()
		}
	}
}

// take returns the next n deliveries.
func (m *stockMember) take(t testing.TB, n int) []stockDelivery {
	t.Helper()
	var ds []stockDelivery
	timeout := time.After(10 * time.Second)
	for len(ds) < n {
		select {
		case d := <-m.deliveries:
			ds = append(ds, d)
		case <-timeout:
			t.Fatalf("%d of %d deliveries came", len(ds), n)
		}
	}
	return ds
}

// wantSilence fails if anything comes within d.
func (m *stockMember) wantSilence(t testing.TB, d time.Duration) {
	t.Helper()
	select {
	case got := <-m.deliveries:
		t.Errorf("%q was delivered, attempt %d", got.GetPayload(), got.attempt)
	case <-time.After(d):
	}
}

// end waits for the end of the stream.
func (m *stockMember) end(t testing.TB) (*tinybrokerv1.Closed, error) {
	t.Helper()
	select {
	case <-m.ended:
		return m.closed, m.err
	case <-time.After(10 * time.Second):
		t.Fatal("the stream does not end")
		return nil, nil
	}
}

func (m *stockMember) say(t testing.TB, r *tinybrokerv1.SubscribeRequest) {
	t.Helper()
	if err := m.stream.Send(r); err != nil && err != io.EOF { //nolint:errorlint // as Send returns it
		t.Fatalf("send: %v", err)
	}
}

// ack acknowledges deliveries first to last.
func (m *stockMember) ack(t testing.TB, first, last uint64) {
	t.Helper()
	m.say(t, &tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Ack{
		Ack: &tinybrokerv1.Ack{Ranges: span(first, last)},
	}})
}

func (m *stockMember) nack(t testing.TB, n *tinybrokerv1.Nack) {
	t.Helper()
	m.say(t, &tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Nack{Nack: n}})
}

func (m *stockMember) extend(t testing.TB, first, last uint64, d time.Duration) {
	t.Helper()
	m.say(t, &tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Extend{
		Extend: &tinybrokerv1.ExtendDeadline{Ranges: span(first, last), Deadline: durationpb.New(d)},
	}})
}

func (m *stockMember) leave(t testing.TB) {
	t.Helper()
	m.say(t, leaveRequest())
}

func span(first, last uint64) []*tinybrokerv1.SequenceRange {
	return []*tinybrokerv1.SequenceRange{{First: first, Last: last}}
}

const (
	retry   = tinybrokerv1.NackAction_NACK_ACTION_RETRY
	release = tinybrokerv1.NackAction_NACK_ACTION_RELEASE
	reject  = tinybrokerv1.NackAction_NACK_ACTION_REJECT
)

// payloads are those of deliveries, each with its attempt.
func payloads(ds []stockDelivery) (all []string) {
	for _, d := range ds {
		all = append(all, fmt.Sprintf("%s/%d", d.GetPayload(), d.attempt))
	}
	return all
}

func wantPayloads(t testing.TB, ds []stockDelivery, want ...string) {
	t.Helper()
	if got := payloads(ds); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("delivered %v, want %v", got, want)
	}
}

// publishCounted publishes messages with payloads first, first+1, …
func publishCounted(t testing.TB, stub tinybrokerv1.BrokerServiceClient, topic string, first, n int) {
	t.Helper()
	for i := range n {
		publishOne(t, stub, topic, []byte(fmt.Sprint(first+i)))
	}
}

// wantGroup waits until group g has these books.
func (s *station) wantGroup(t testing.TB, acked uint64, pending, inFlight int) core.GroupStats {
	t.Helper()
	var st core.GroupStats
	eventually(t, fmt.Sprintf("acked %d, pending %d, in flight %d", acked, pending, inFlight), func() bool {
		st = groupBooks(t, s.broker, "g")
		return st.Acked == acked && st.Pending == pending && st.InFlight == inFlight
	})
	return st
}

// cuttable makes connections that a test can cut, or stop: then nothing passes in either direction, and both ends stay open.
type cuttable struct {
	mu      sync.Mutex
	conns   []net.Conn
	stopped chan struct{} // closed: traffic flows again; nil: it flows
}

// cuttableStub returns a stock client with connections that can be cut and stopped.
func (s *station) cuttableStub(t testing.TB) (tinybrokerv1.BrokerServiceClient, *cuttable) {
	t.Helper()
	wire := new(cuttable)
	stub := s.stub(t, wire.option())
	t.Cleanup(func() { // before the connection is closed, which waits for what is stopped
		wire.run()
		wire.cut()
	})
	return stub, wire
}

// option is for a client whose connections are to be cuttable.
func (c *cuttable) option() grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.conns = append(c.conns, conn)
		return &stoppableConn{Conn: conn, of: c}, nil
	})
}

// cut closes every connection there is, as the end of the process would.
func (c *cuttable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

// stop holds up everything until run.
func (c *cuttable) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped == nil {
		c.stopped = make(chan struct{})
	}
}

func (c *cuttable) run() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped != nil {
		close(c.stopped)
		c.stopped = nil
	}
}

func (c *cuttable) wait() {
	c.mu.Lock()
	stopped := c.stopped
	c.mu.Unlock()
	if stopped != nil {
		<-stopped
	}
}

type stoppableConn struct {
	net.Conn
	of *cuttable
}

// Read holds back what has come while the connection is stopped.
func (c *stoppableConn) Read(p []byte) (int, error) {
	c.of.wait()
	n, err := c.Conn.Read(p)
	c.of.wait()
	return n, err
}

func (c *stoppableConn) Write(p []byte) (int, error) {
	c.of.wait()
	return c.Conn.Write(p)
}
