package rpc

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// slowOptions make a client that reads without pause, over a link that lets so many bytes a second through.
func slowOptions(perSecond int) []grpc.DialOption {
	return append(frozenOptions(), grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		if err := conn.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
			return nil, err
		}
		return &slowConn{conn, perSecond}, nil
	}))
}

type slowConn struct {
	net.Conn
	perSecond int
}

// Read takes what comes in a twentieth of a second at most.
func (c *slowConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), c.perSecond/20)])
	time.Sleep(time.Duration(n) * time.Second / time.Duration(c.perSecond))
	return n, err
}

// TestADeadlineRunsFromTheWrite: a message that takes longer to be transmitted than its deadline allows is in time when it is acknowledged
// as soon as it has come. One that is kept for longer is not.
func TestADeadlineRunsFromTheWrite(t *testing.T) {
	t.Parallel()
	const deadline = 500 * time.Millisecond
	station := newStation(t, func(o *core.Options, _ *ServerOptions) { o.AckDeadline = deadline })
	stub := station.stub(t)
	m := joinStock(t, station.stub(t, slowOptions(500<<10)...), &tinybrokerv1.OpenSubscription{MaxInFlight: 1})
	start := time.Now()
	publishOne(t, stub, "a", numbered(0, 1000<<10))
	d := m.take(t, 1)[0]
	if took := time.Since(start); took < 2*deadline {
		t.Fatalf("it came after %v", took)
	}
	m.ack(t, d.sequence, 0)
	if st := station.wantGroup(t, 1, 0, 0); d.attempt != 1 || st.Expired != 0 || st.Ineffective != 0 {
		t.Errorf("attempt %d, %+v", d.attempt, st)
	}
	publishOne(t, stub, "a", numbered(1, 10))
	m.take(t, 1)
	if again := m.take(t, 1)[0]; again.attempt != 2 {
		t.Errorf("attempt %d after the deadline", again.attempt)
	}
}

// TestASlowReaderIsNotStalled: its stream takes something all the time, however long each frame takes.
func TestASlowReaderIsNotStalled(t *testing.T) {
	for _, mode := range []tinybrokerv1.AckMode{tinybrokerv1.AckMode_ACK_MODE_EXPLICIT, tinybrokerv1.AckMode_ACK_MODE_NONE} {
		for _, test := range []struct{ n, size, perSecond int }{
			{3, 500 << 10, 400 << 10},
			{5, 60 << 10, 80 << 10},
		} {
			t.Run(fmt.Sprint(mode, test), func(t *testing.T) {
				t.Parallel()
				// Each message takes longer than that, and 16 KiB of it less.
				station := newStation(t, func(o *core.Options, _ *ServerOptions) { o.SendTimeout = 500 * time.Millisecond })
				stub := station.stub(t)
				m := joinStock(t, station.stub(t, slowOptions(test.perSecond)...), &tinybrokerv1.OpenSubscription{AckMode: mode})
				for i := range test.n {
					publishOne(t, stub, "a", numbered(uint64(i), test.size))
				}
				for i, d := range m.take(t, test.n) {
					if got := numberOf(t, d.GetPayload()); got != uint64(i) || len(d.GetPayload()) != test.size || d.attempt != 1 {
						t.Errorf("message %d came, %d bytes, attempt %d", got, len(d.GetPayload()), d.attempt)
					}
				}
				if st := groupBooks(t, station.broker, "g"); st.Members != 1 {
					t.Errorf("%+v", st)
				}
			})
		}
	}
}

// TestOthersReadingIsNoProgress: a member that reads nothing is stalled, whatever the others on its connection read, and holds what it was
// given no longer than that; with a frame that the transport has taken, no longer than the ack deadline.
func TestOthersReadingIsNoProgress(t *testing.T) {
	for _, test := range []struct {
		name    string
		n       int // large messages for it
		stalled bool
	}{
		{"a frame waits for the transport", 3, true},
		{"the transport holds a frame", 1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			station := newStation(t, func(o *core.Options, _ *ServerOptions) { o.SendTimeout = 500 * time.Millisecond })
			stub := station.stub(t)
			conn := tinybrokerv1.NewBrokerServiceClient(station.dial(t, frozenOptions()...))
			frozen := open(t, conn, &tinybrokerv1.OpenSubscription{
				ConsumerGroup: "g", TopicPatterns: []string{"a"}, AckDeadline: durationpb.New(time.Second),
			})
			busy := joinStock(t, conn, &tinybrokerv1.OpenSubscription{ConsumerGroup: "busy", TopicPatterns: []string{"b"}, AckMode: tinybrokerv1.AckMode_ACK_MODE_NONE})
			stop := make(chan struct{})
			var feeder sync.WaitGroup
			feeder.Go(func() {
				for i := uint64(0); ; i++ {
					select {
					case <-stop:
						return
					case <-time.After(10 * time.Millisecond):
						publishOne(t, stub, "b", numbered(i, 100<<10))
					}
				}
			})
			defer feeder.Wait()
			defer close(stop)
			for i := range test.n {
				publishOne(t, stub, "a", numbered(uint64(i), 500<<10))
			}
			eventually(t, "it has all it can have", func() bool { return groupBooks(t, station.broker, "g").InFlight == min(test.n, 2) })
			start := time.Now()
			m := joinStock(t, station.stub(t), &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"a"}, AckDeadline: durationpb.New(time.Second)})
			for range test.n {
				m.ack(t, m.take(t, 1)[0].sequence, 0)
			}
			if took := time.Since(start); took > 3*time.Second {
				t.Errorf("it took %v", took)
			}
			busy.take(t, 10)
			st := station.wantGroup(t, uint64(test.n), 0, 0)
			if stalled := st.Members == 1; stalled != test.stalled || stalled == (st.Expired > 0) {
				t.Errorf("%+v", st)
			}
			if !test.stalled {
				return
			}
			_, _, _ = readOn(frozen)
			if reason := frozen.Trailer().Get(closeReasonTrailer); !slices.Equal(reason, []string{"CLOSE_REASON_STALLED"}) {
				t.Errorf("trailer %v", reason)
			}
		})
	}
}
