package rpc

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	reflectiongrpc "google.golang.org/grpc/reflection/grpc_reflection_v1"
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

// TestShutdownWithOpenCalls: calls that would last for ever by themselves do not hold it up.
func TestShutdownWithOpenCalls(t *testing.T) {
	station := newStation(t, nil)
	conn := station.dial(t)
	ctx := within(t, 20*time.Second)
	stub := tinybrokerv1.NewBrokerServiceClient(conn)

	watch, err := healthgrpc.NewHealthClient(conn).Watch(ctx, &healthgrpc.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	unknown, err := healthgrpc.NewHealthClient(conn).Watch(ctx, &healthgrpc.HealthCheckRequest{Service: "unknown"})
	if err != nil {
		t.Fatal(err)
	}
	stats, err := tinybrokerv1.NewAdminServiceClient(conn).Watch(ctx, &tinybrokerv1.WatchRequest{Interval: durationpb.New(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	reflection, err := reflectiongrpc.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	silentSubscriber, err := stub.Subscribe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	silentPublisher, err := stub.PublishStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for what, want := range map[healthgrpc.Health_WatchClient]healthgrpc.HealthCheckResponse_ServingStatus{
		watch: healthgrpc.HealthCheckResponse_SERVING, unknown: healthgrpc.HealthCheckResponse_SERVICE_UNKNOWN,
	} {
		if r, err := what.Recv(); err != nil || r.GetStatus() != want {
			t.Fatalf("health %v, %v", r, err)
		}
	}
	if _, err := stats.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := reflection.Send(&reflectiongrpc.ServerReflectionRequest{MessageRequest: &reflectiongrpc.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	if _, err := reflection.Recv(); err != nil {
		t.Fatal(err)
	}

	if took, err := shutDown(t, station, 10*time.Second); err != nil || took > 2*time.Second {
		t.Errorf("took %s: %v", took, err)
	}
	if r, err := watch.Recv(); err != nil || r.GetStatus() != healthgrpc.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health %v, %v", r, err)
	}
	for what, receive := range map[string]func() error{
		"health":                     func() error { _, err := watch.Recv(); return err },
		"health of unknown":          func() error { _, err := unknown.Recv(); return err },
		"stats":                      func() error { _, err := stats.Recv(); return err },
		"reflection":                 func() error { _, err := reflection.Recv(); return err },
		"subscriber that never asks": func() error { _, err := silentSubscriber.Recv(); return err },
		"publisher that is silent":   func() error { _, err := silentPublisher.Recv(); return err },
	} {
		if err := receive(); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestShutdownKeepsEveryClientOut: connections that come while the server is shutting down do not hold it up.
func TestShutdownKeepsEveryClientOut(t *testing.T) {
	station := newStation(t, nil)
	stop := make(chan struct{})
	var dialling sync.WaitGroup
	for range 4 {
		dialling.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if c, err := net.Dial("tcp", station.addr); err == nil {
					defer c.Close()
				} else {
					return
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

// TestShutdownOfPatience: a publisher who would wait for an hour is sent away, with what was confirmed.
func TestShutdownOfPatience(t *testing.T) {
	station := newStation(t, func(o *core.Options, _ *ServerOptions) { o.ConsumerCapacity = 8 })
	openPatterns(t, station.stub(t, frozenOptions()...), "**")
	stub := station.stub(t)
	unary := make(chan error, 1)
	go func() {
		for {
			_, err := stub.Publish(t.Context(), &tinybrokerv1.PublishRequest{Topic: "a", Payload: make([]byte, 16<<10), MaxWait: durationpb.New(time.Hour)})
			if err != nil {
				unary <- err
				return
			}
		}
	}()
	eventually(t, "the publisher waits", func() bool { return station.broker.Stats().QueuedMessages >= 6 })
	time.Sleep(100 * time.Millisecond)
	if took, err := shutDown(t, station, 200*time.Millisecond); took > 2*time.Second {
		t.Errorf("took %s: %v", took, err)
	}
	checkStatus(t, <-unary, codes.Unavailable, "DRAINING")
}
