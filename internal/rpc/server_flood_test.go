package rpc

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// TestResetFlood: streams opened and reset as fast as they can be written leave nothing behind, and disturb nobody for long.
func TestResetFlood(t *testing.T) {
	station := newStation(t, nil)
	p := startProbe(t, station)
	before := runtime.NumGoroutine()
	stopWatching := make(chan struct{})
	peak := make(chan int, 1)
	go func() {
		most := 0
		for {
			select {
			case <-stopWatching:
				peak <- most
				return
			case <-time.After(5 * time.Millisecond):
				most = max(most, runtime.NumGoroutine())
			}
		}
	}()
	const clients, resets = 4, 700
	begun := time.Now()
	var flood sync.WaitGroup
	for range clients {
		c := dialHTTP2(t, station)
		out := bufio.NewWriterSize(c.Conn, 64<<10)
		c.Framer = http2.NewFramer(out, c.Conn)
		flood.Go(func() {
			err := c.read(func(f http2.Frame) bool {
				ping, ok := f.(*http2.PingFrame)
				return ok && ping.IsAck()
			})
			if err != nil {
				t.Error(err)
			}
			_ = c.Close()
		})
		flood.Go(func() {
			for range resets {
				id, err := c.call(tinybrokerv1.BrokerService_Subscribe_FullMethodName, openRequest("a.*", "b.**"))
				if err == nil {
					err = c.WriteRSTStream(id, http2.ErrCodeCancel)
				}
				if err != nil {
					t.Errorf("stream %d: %v", id, err)
					return
				}
			}
			// The answer comes when the server has seen everything before.
			err := c.WritePing(false, [8]byte{1})
			if err == nil {
				err = out.Flush()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	flood.Wait()
	if took := time.Since(begun); took < (resets-resetBurst)*resetInterval {
		t.Errorf("%d resets took %s", resets, took)
	}
	eventually(t, "only the probe subscribes", func() bool { return station.broker.Stats().Subscriptions == 1 })
	close(stopWatching)
	checkGoroutines(t, before)
	if most := <-peak; most > before+clients*resets {
		t.Errorf("%d goroutines, %d before", most, before)
	}
	worst := p.stop()
	t.Logf("the probe waited %s at most", worst)
}

// TestResetAfterHeader: the same, politely: each stream is reset as soon as the subscription is there.
func TestResetAfterHeader(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	openPatterns(t, stub, "the.connection.is.up").cancel()
	before := runtime.NumGoroutine()
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for range 200 {
				s, err := tryOpen(t.Context(), stub, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"a"}})
				if err != nil {
					t.Error(err)
					return
				}
				s.cancel()
			}
		})
	}
	clients.Wait()
	eventually(t, "no subscription is left", func() bool { return station.broker.Stats().Subscriptions == 0 })
	checkGoroutines(t, before)
}

// TestCloseRace: subscribers come and go, many of them evicted, while publishers publish; every publish is fine.
func TestCloseRace(t *testing.T) {
	station := newStation(t, nil)
	stop := make(chan struct{})
	time.AfterFunc(1500*time.Millisecond, func() { close(stop) })
	var running sync.WaitGroup
	for i := range 4 {
		stub := station.stub(t)
		running.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				topic := fmt.Sprintf("load.%d.%d", i, n%10)
				if _, err := stub.Publish(t.Context(), &tinybrokerv1.PublishRequest{Topic: topic, Payload: make([]byte, 100)}); err != nil {
					t.Errorf("publish: %v", err)
					return
				}
			}
		})
	}
	for i := range 24 {
		stub := station.stub(t)
		running.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+n%50)*time.Millisecond)
				sub, err := tryOpen(ctx, stub, &tinybrokerv1.OpenSubscription{
					TopicPatterns: []string{"load.**", "!load.0.*"}, Capacity: uint32(1 + i%2*100), SubscriptionId: fmt.Sprint("s", i%20),
				})
				for err == nil {
					_, err = sub.Recv()
				}
				cancel()
				// io.EOF: evicted or replaced.
				if code := status.Code(err); err != io.EOF && code != codes.DeadlineExceeded && code != codes.Canceled { //nolint:errorlint // as it is
					t.Errorf("subscribe: %v", err)
					return
				}
			}
		})
	}
	running.Wait()
	eventually(t, "nothing is left", func() bool {
		st := station.broker.Stats()
		return st.Subscriptions == 0 && st.Memory == 0 && st.QueuedMessages == 0
	})
	if st := station.broker.Stats(); st.Published == 0 || st.Delivered == 0 {
		t.Errorf("%d published, %d delivered", st.Published, st.Delivered)
	}
}

// TestOneWriter: many streams on few connections, ended at random, with a checksum in every message.
func TestOneWriter(t *testing.T) {
	station := newStation(t, nil)
	stop := make(chan struct{})
	var publishers, readers sync.WaitGroup
	for i := range 2 {
		stream := openPublisher(t, station.stub(t))
		publishers.Go(func() {
			for n := uint64(0); ; {
				select {
				case <-stop:
					return
				default:
				}
				frame := &tinybrokerv1.PublishStreamRequest{}
				for range 20 {
					frame.Messages = append(frame.Messages, &tinybrokerv1.Message{Topic: fmt.Sprintf("w.%d", i), Payload: numbered(n, 64)})
					n++
				}
				if err := stream.Send(frame); err != nil {
					t.Errorf("send: %v", err)
					return
				}
				if _, err := stream.Recv(); err != nil {
					t.Errorf("receipt: %v", err)
					return
				}
			}
		})
	}
	var received atomic.Uint64
	for range 4 {
		stub := station.stub(t)
		for i := range 5 {
			readers.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 7)) //nolint:gosec // reproducible
				for range 20 {
					received.Add(readSome(t, stub, 1+random.IntN(300), random.IntN(2) == 0))
				}
			})
		}
	}
	readers.Wait()
	close(stop)
	publishers.Wait()
	if n := received.Load(); n < 4*5*20 {
		t.Errorf("%d messages received", n)
	}
	eventually(t, "nothing is left", func() bool { return station.broker.Stats().Subscriptions == 0 })
}

// readSome reads n messages of a new subscription, checks that they follow each other, and leaves or breaks off.
func readSome(t testing.TB, stub tinybrokerv1.BrokerServiceClient, n int, leave bool) (received uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	sub, err := tryOpen(ctx, stub, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"w.*"}})
	if err != nil {
		t.Error(err)
		return 0
	}
	next := map[string]uint64{}
	for left := n; ; {
		r, err := sub.Recv()
		if err != nil {
			if err != io.EOF || !leave { //nolint:errorlint // as it is
				t.Errorf("after %d messages: %v", received, err)
			}
			return received
		}
		if len(r.GetMessages()) > 0 && r.GetFirstSequence() != received+1 {
			t.Errorf("delivery %d came, want %d", r.GetFirstSequence(), received+1)
		}
		for _, m := range r.GetMessages() {
			got := numberOf(t, m.GetPayload())
			if want, ok := next[m.GetTopic()]; ok && got != want {
				t.Errorf("message %d of %s came, want %d", got, m.GetTopic(), want)
			}
			next[m.GetTopic()] = got + 1
			received++
		}
		if left -= len(r.GetMessages()); left > 0 || r.GetClosed() != nil {
			continue
		}
		if !leave {
			return received
		}
		_ = sub.Send(&tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Leave{Leave: &tinybrokerv1.Leave{}}})
		left = 1 << 30
	}
}
