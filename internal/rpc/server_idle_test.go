package rpc

import (
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// memoryInUse is what the heap and the stacks take after a collection.
func memoryInUse() int64 {
	runtime.GC()
	runtime.GC() // what the first one let go of through pools and finalizers
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// openIdle opens subscriptions to topic with clients that cost next to nothing, perConn on each connection, which takes
// window bytes for each and altogether.
func openIdle(t testing.TB, station *station, topic string, conns, perConn int, window uint32) []*http2Client {
	t.Helper()
	before := station.broker.Stats().Subscriptions
	clients := make([]*http2Client, conns)
	for i := range clients {
		c := dialHTTP2(t, station, http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
		if err := c.WriteWindowUpdate(0, window); err != nil {
			t.Fatal(err)
		}
		for range perConn {
			if _, err := c.call(tinybrokerv1.BrokerService_Subscribe_FullMethodName, openRequest(topic)); err != nil {
				t.Fatal(err)
			}
		}
		clients[i] = c
	}
	eventually(t, "all are subscribed", func() bool { return station.broker.Stats().Subscriptions == before+conns*perConn })
	return clients
}

// TestIdleSubscriptions: 5000 of them take less than 64 KiB each, and a megabyte published to all is held once, also
// while half of them are frozen.
func TestIdleSubscriptions(t *testing.T) {
	conns, perConn := 50, 100
	if testing.Short() {
		perConn = 20
	}
	station := newStation(t, func(o *core.Options, so *ServerOptions) {
		so.times.handshake = time.Minute
		so.times.ping = 2 * time.Minute // on a slow machine, reading takes longer than a silent client is given
	})
	stub := station.stub(t)
	publishOne(t, stub, "warm.up", nil)
	empty, goroutines := memoryInUse(), runtime.NumGoroutine()
	frozen := openIdle(t, station, "big", conns/2, perConn, 64<<10)
	healthy := openIdle(t, station, "big", conns/2, perConn, 1<<30)
	n := int64(conns * perConn)
	idle := memoryInUse()
	each := (idle - empty) / n
	t.Logf("%d bytes and %.1f goroutines for each of %d idle subscriptions", each, float64(runtime.NumGoroutine()-goroutines)/float64(n), n)
	if each > 64<<10 {
		t.Errorf("%d bytes each", each)
	}

	var reading sync.WaitGroup
	for _, c := range healthy {
		reading.Go(func() { discard(t, c.Conn, perConn<<20) })
	}
	if got := publishOne(t, stub, "big", make([]byte, 1<<20-3)); int64(got) != n {
		t.Errorf("%d receivers", got)
	}
	reading.Wait()
	if growth := memoryInUse() - idle; growth > 100<<20 {
		t.Errorf("the message takes %d MiB", growth>>20)
	} else {
		t.Logf("the message takes %.1f MiB while half of the subscriptions are frozen", float64(growth)/(1<<20))
	}
	for _, c := range append(frozen, healthy...) {
		_ = c.Close()
	}
	eventually(t, "all are gone", func() bool { return station.broker.Stats().Subscriptions == 0 })
}

// TestIdlePublishersKeepNothing: a publish stream lets go of a frame once it is confirmed, and of the room that one with
// many runs has needed.
func TestIdlePublishersKeepNothing(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	frame := &tinybrokerv1.PublishStreamRequest{}
	for range 20_000 {
		frame.Messages = append(frame.Messages, &tinybrokerv1.Message{Topic: "a"}, &tinybrokerv1.Message{Topic: "b", Payload: make([]byte, 100)})
	}
	var streams []publishClient
	before := int64(0)
	for i := range 11 {
		stream := openPublisher(t, stub)
		if err := stream.Send(frame); err != nil {
			t.Fatal(err)
		}
		receipt(t, stream)
		streams = append(streams, stream)
		if i == 0 {
			before = memoryInUse() // with everything there that the first one has brought
		}
	}
	if each := (memoryInUse() - before) / 10; each > 200<<10 {
		t.Errorf("%d KiB for each idle publish stream", each>>10)
	}
	for _, stream := range streams {
		_ = stream.CloseSend()
	}
}

func discard(t testing.TB, c net.Conn, n int) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Error(err)
	}
	if _, err := io.CopyN(io.Discard, c, int64(n)); err != nil {
		t.Errorf("reading %d bytes: %v", n, err)
	}
}

// BenchmarkIdleSubscription reports what one more idle subscription costs the broker.
func BenchmarkIdleSubscription(b *testing.B) {
	station := newStation(b, nil)
	openIdle(b, station, "warm.up", 1, 1, 64<<10)
	before, goroutines := memoryInUse(), runtime.NumGoroutine()
	const perConn = 100
	conns := (b.N + perConn - 1) / perConn
	openIdle(b, station, "idle", conns, perConn, 64<<10)
	n := float64(conns * perConn)
	b.ReportMetric(float64(memoryInUse()-before)/n, "B/subscription")
	b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/n, "goroutines/subscription")
	b.ReportMetric(0, "ns/op")
}
