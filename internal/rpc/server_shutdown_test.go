package rpc

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// shutDown shuts a station down and returns how long that took.
func shutDown(t testing.TB, s *station, deadline time.Duration) (time.Duration, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	begun := time.Now()
	err := s.server.Shutdown(ctx)
	return time.Since(begun), err
}

// drained is what a subscriber has seen when its stream ends.
type drained struct {
	messages uint64
	closed   *tinybrokerv1.Closed
	err      error
}

func readToEnd(t testing.TB, sub *stockStream, ended chan<- drained) {
	t.Helper()
	var d drained
	d.messages, d.closed, d.err = prefix(t, sub)
	ended <- d
}

func (d drained) check(t testing.TB, least uint64) {
	t.Helper()
	if d.messages < least || d.closed.GetReason() != tinybrokerv1.CloseReason_CLOSE_REASON_SHUTTING_DOWN || d.closed.GetLost() != 0 || d.closed.GetLastSequence() != d.messages {
		t.Errorf("%d messages of %d, closed %v", d.messages, least, d.closed)
	}
	checkStatus(t, d.err, codes.Unavailable, "DRAINING")
}

// silence opens TCP connections that say nothing, or half of what they should.
func silence(t testing.TB, s *station, words ...string) []net.Conn {
	t.Helper()
	var conns []net.Conn
	for _, w := range words {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := c.Write([]byte(w)); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	return conns
}

// TestShutdown: in the middle of a publish stream. Everybody who reads has every confirmed message.
func TestShutdown(t *testing.T) {
	for _, test := range []struct {
		name   string
		frozen bool
	}{{"all healthy", false}, {"one frozen", true}} {
		t.Run(test.name, func(t *testing.T) {
			station := newStation(t, nil)
			ended := make(chan drained, 4)
			for range 3 {
				sub := openPatterns(t, station.stub(t), "n")
				go readToEnd(t, sub, ended)
			}
			idle := openPatterns(t, station.stub(t), "idle")
			go readToEnd(t, idle, ended)
			if test.frozen {
				openPatterns(t, station.stub(t, frozenOptions()...), "n")
			}
			clients := station.server.connections.count()
			silence(t, station, "", "PRI * HTTP/2.0\r\n")
			eventually(t, "both silent ones are accepted", func() bool { return station.server.connections.all() == clients+2 })

			confirmed, published := publishUntilEnd(t, station)
			eventually(t, "much is confirmed", func() bool { return station.broker.Stats().Published > 10_000 })
			const deadline = 2 * time.Second
			took, err := shutDown(t, station, deadline)
			if test.frozen && !errors.Is(err, context.DeadlineExceeded) || !test.frozen && err != nil {
				t.Errorf("shutdown: %v", err)
			}
			if limit := time.Second; !test.frozen && took > limit || took > deadline+limit {
				t.Errorf("took %s", took)
			}
			checkStatus(t, <-published, codes.Unavailable, "DRAINING")
			n := <-confirmed
			idlers := 0
			for range 4 {
				d := <-ended
				if d.messages == 0 {
					idlers++
					d.check(t, 0)
					continue
				}
				d.check(t, n)
			}
			if idlers != 1 {
				t.Errorf("%d subscribers received nothing", idlers)
			}
			if _, err := tryOpen(within(t, 10*time.Second), station.stub(t), &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"a"}}); status.Code(err) != codes.Unavailable {
				t.Errorf("a new call: %v", err)
			}
		})
	}
}

// publishUntilEnd publishes numbered messages for as long as the broker takes them. It tells how many were confirmed and
// how the stream ended.
func publishUntilEnd(t testing.TB, station *station) (confirmed <-chan uint64, ended <-chan error) {
	t.Helper()
	stream := openPublisher(t, station.stub(t))
	last, end := make(chan uint64, 1), make(chan error, 1)
	go func() {
		for n := uint64(0); ; {
			frame := &tinybrokerv1.PublishStreamRequest{MaxWait: durationpb.New(10 * time.Second)}
			for range 50 {
				frame.Messages = append(frame.Messages, &tinybrokerv1.Message{Topic: "n", Payload: numbered(n, 100)})
				n++
			}
			if stream.Send(frame) != nil {
				return
			}
		}
	}()
	go func() {
		through := uint64(0)
		for {
			r, err := stream.Recv()
			if err != nil {
				last <- through
				end <- err
				return
			}
			through = r.GetAcceptedThrough()
		}
	}()
	return last, end
}

// TestWhoIsCutOffIsTold: members that are still at work when the time is over, while somebody else does not read.
func TestWhoIsCutOffIsTold(t *testing.T) {
	station := newStation(t, nil)
	frozen := openPatterns(t, station.stub(t, frozenOptions()...), "f")
	for range 20 {
		publishOne(t, station.stub(t), "f", make([]byte, 16<<10))
	}
	var members []*stockMember
	for range 5 {
		members = append(members, joinStock(t, station.stub(t), &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"job"}}))
	}
	for range members {
		publishOne(t, station.stub(t), "job", nil)
	}
	for _, m := range members {
		m.take(t, 1)
	}
	const deadline = 200 * time.Millisecond
	took, err := shutDown(t, station, deadline)
	var cut *CutOffError
	if !errors.As(err, &cut) || cut.Subscriptions != 6 || cut.InFlight != 5 {
		t.Errorf("shutdown: %v", err)
	}
	if took > deadline+time.Second {
		t.Errorf("took %s", took)
	}
	for _, m := range members {
		closed, err := m.end(t)
		if closed.GetReason() != tinybrokerv1.CloseReason_CLOSE_REASON_SHUTTING_DOWN {
			t.Errorf("closed %v", closed)
		}
		checkStatus(t, err, codes.Unavailable, "DRAINING")
	}
	frozen.cancel()
}

// TestShutdownKeepsEveryClientOut: connections that come while the server is shutting down do not hold it up.
func TestShutdownKeepsEveryClientOut(t *testing.T) {
	station := newStation(t, nil)
	stop := make(chan struct{})
	var dialling sync.WaitGroup
	for range 4 {
		dialling.Go(func() {
			var conns []net.Conn
			for {
				select {
				case <-stop:
					for _, c := range conns {
						_ = c.Close()
					}
					return
				default:
				}
				if c, err := net.Dial("tcp", station.addr); err == nil {
					conns = append(conns, c)
				}
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	if took, err := shutDown(t, station, 10*time.Second); err != nil || took > 2*time.Second {
		t.Errorf("took %s: %v", took, err)
	}
	close(stop)
	dialling.Wait()
}

// TestShutdownAtTheStart: a server may be told to stop before it has begun to serve.
func TestShutdownAtTheStart(t *testing.T) {
	for range 50 {
		station := newStation(t, nil)
		if _, err := shutDown(t, station, 10*time.Second); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLateConnections: the same for one that comes between the moment the silent ones are closed and that nobody listens.
func TestLateConnections(t *testing.T) {
	station := newStation(t, nil)
	station.server.connections.closeSilent()
	c := silence(t, station, "")[0]
	if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d bytes, %v", n, err)
	}
}

// TestShutdownOfPatience: publishers who would wait for an hour are sent away at once, with what was confirmed.
func TestShutdownOfPatience(t *testing.T) {
	station := newStation(t, func(o *core.Options, _ *ServerOptions) { o.ConsumerCapacity = 8 })
	frozen := openPatterns(t, station.stub(t, frozenOptions()...), "**")
	hour, payload := durationpb.New(time.Hour), make([]byte, 16<<10)
	unary, streamed := make(chan error, 1), make(chan error, 1)
	stub := station.stub(t)
	go func() {
		for {
			if _, err := stub.Publish(t.Context(), &tinybrokerv1.PublishRequest{Topic: "a", Payload: payload, MaxWait: hour}); err != nil {
				unary <- err
				return
			}
		}
	}()
	stream := openPublisher(t, station.stub(t))
	go func() {
		for {
			_ = stream.Send(&tinybrokerv1.PublishStreamRequest{Messages: []*tinybrokerv1.Message{{Topic: "b", Payload: payload}}, MaxWait: hour})
			r, err := stream.Recv()
			if err != nil {
				streamed <- err
				return
			}
			if len(r.GetFailures()) > 0 { // what was not dealt with is not confirmed, so that it is sent again elsewhere
				t.Errorf("receipt %v", r)
			}
		}
	}()
	last := uint64(0)
	eventually(t, "both publishers wait", func() bool {
		time.Sleep(50 * time.Millisecond)
		st := station.broker.Stats()
		same := st.Published == last && st.QueuedMessages >= 6
		last = st.Published
		return same
	})
	ended := make(chan error, 1)
	go func() {
		_, err := shutDown(t, station, 10*time.Second)
		ended <- err
	}()
	checkStatus(t, <-unary, codes.Unavailable, "DRAINING")
	checkStatus(t, <-streamed, codes.Unavailable, "DRAINING")
	frozen.cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestShutdownWhileInflating: compressed requests that wait for their turn to be inflated, each to 16 MiB, do not hold up the end.
func TestShutdownWhileInflating(t *testing.T) {
	station := newStation(t, nil)
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := w.Write(make([]byte, 16<<20-1)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	message := append(binary.BigEndian.AppendUint32([]byte{1}, uint32(z.Len())), z.Bytes()...)
	c := dialHTTP2(t, station)
	go func() { _ = c.read(func(http2.Frame) bool { return false }) }()
	c.more = [][2]string{{"grpc-encoding", "gzip"}}
	const calls = 600
	for range calls {
		id, err := c.begin(tinybrokerv1.BrokerService_Publish_FullMethodName)
		if err == nil {
			err = c.WriteData(id, false, message[:len(message)/2])
		}
		if err == nil {
			err = c.WriteData(id, true, message[len(message)/2:])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "they have come", func() bool { return station.server.inbound.held.Load() > 0 && station.broker.Stats().Refused > 0 })
	before := station.broker.Stats().Refused
	took, _ := shutDown(t, station, 100*time.Millisecond)
	if n, left := station.broker.Stats().Refused-before, calls-before; n > left/2 {
		t.Errorf("%d of %d requests were inflated, in %s", n, left, took)
	}
	// Compressing is as before.
	again := newStation(t, nil)
	if _, err := again.stub(t).Publish(within(t, 10*time.Second), &tinybrokerv1.PublishRequest{Topic: "a"}, grpc.UseCompressor("gzip")); err != nil {
		t.Error(err)
	}
}
