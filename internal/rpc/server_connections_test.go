package rpc

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// TestSilentConnections: who says nothing, half of what is needed, or something else is cut off in time and never counted.
func TestSilentConnections(t *testing.T) {
	station := newStation(t, func(_ *core.Options, so *ServerOptions) { so.times.handshake = 300 * time.Millisecond })
	p := startProbe(t, station)
	var words []string
	for range 20 {
		words = append(words, "", "PRI * HTTP/2.0\r\n", http2.ClientPreface, "GET / HTTP/1.1\r\n", "\x16\x03\x01")
	}
	conns := silence(t, station, words...)
	for _, c := range conns {
		if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		// The server's own settings may come first. Closed by either end or reset: gone, but not timed out.
		if _, err := io.Copy(io.Discard, c); err != nil {
			if timeout, ok := err.(interface{ Timeout() bool }); ok && timeout.Timeout() {
				t.Fatal("a connection was not closed")
			}
		}
		if n := station.server.connections.count(); n != 1 {
			t.Fatalf("%d connections counted, want the probe's", n)
		}
	}
	eventually(t, "all are forgotten", func() bool { return station.server.connections.all() == 1 })
	p.stop()
}

// TestIdleConnectionStays: the limit on the handshake does not concern a client that has completed it.
func TestIdleConnectionStays(t *testing.T) {
	station := newStation(t, func(_ *core.Options, so *ServerOptions) { so.times.handshake = 100 * time.Millisecond })
	c := dialHTTP2(t, station)
	ended := make(chan error, 1)
	go func() { ended <- c.read(func(http2.Frame) bool { return false }) }()
	select {
	case err := <-ended:
		t.Errorf("closed: %v", err)
	case <-time.After(400 * time.Millisecond):
	}
	if n := station.server.connections.count(); n != 1 {
		t.Errorf("%d connections counted", n)
	}
	_ = c.Close()
	<-ended
}

func TestMaxConnections(t *testing.T) {
	station := newStation(t, func(_ *core.Options, so *ServerOptions) { so.MaxConnections = 2 })
	first := station.dial(t)
	openPatterns(t, tinybrokerv1.NewBrokerServiceClient(first), "a")
	openPatterns(t, station.stub(t), "a")
	third := station.stub(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := third.Publish(ctx, &tinybrokerv1.PublishRequest{Topic: "a"}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a third connection: %v", err)
	}
	s := station.server
	eventually(t, "it is known that one waits", func() bool { return s.ConnectionsWaiting() == 1 })
	if n, limit := s.Connections(), s.ConnectionLimit(); n != 2 || limit != 2 {
		t.Errorf("%d connections of %d", n, limit)
	}
	if lines := station.log.with(t, "max_connections is reached, and connections wait"); len(lines) != 1 || lines[0]["listen"] != station.addr {
		t.Errorf("the log says %v", lines)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	publishOne(t, third, "a", nil)
	if n := s.ConnectionsWaiting(); n != 0 {
		t.Errorf("after one has gone %d listeners are full", n)
	}
	silence(t, station, "waits to be accepted")
	if took, err := shutDown(t, station, 10*time.Second); err != nil || took > 2*time.Second {
		t.Errorf("shutdown took %s: %v", took, err)
	}
}

// TestStreamLimit: the calls of one connection are bounded, and clients are told.
func TestStreamLimit(t *testing.T) {
	station := newStation(t, nil)
	told := uint32(0)
	c := silence(t, station, http2.ClientPreface)[0]
	framer := http2.NewFramer(c, c)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	for told == 0 {
		f, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if settings, ok := f.(*http2.SettingsFrame); ok {
			told, _ = settings.Value(http2.SettingMaxConcurrentStreams)
		}
	}
	if told != maxStreams {
		t.Errorf("at most %d streams are allowed", told)
	}
}

// TestPings: a client may ping as often as ours and stock ones do, also without a call; one that floods is cut off.
func TestPings(t *testing.T) {
	if stock := 10 * time.Second; defaultServerTimes.minPing > stock/2 {
		t.Errorf("pings are welcome every %s; stock clients send one every %s", defaultServerTimes.minPing, stock)
	}
	for _, test := range []struct {
		name     string
		interval time.Duration
		cut      bool
	}{{"regular", 100 * time.Millisecond, false}, {"flood", 0, true}} {
		t.Run(test.name, func(t *testing.T) {
			station := newStation(t, func(_ *core.Options, so *ServerOptions) { so.times.minPing = 20 * time.Millisecond })
			p := startProbe(t, station)
			c := dialHTTP2(t, station)
			answered, code := 0, http2.ErrCodeNo
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = c.read(func(f http2.Frame) bool {
					switch f := f.(type) {
					case *http2.PingFrame:
						answered++
					case *http2.GoAwayFrame:
						code = f.ErrCode
					}
					return false
				})
			}()
			for range 10 {
				if c.WritePing(false, [8]byte{1}) != nil {
					break
				}
				time.Sleep(test.interval)
			}
			if !test.cut {
				_ = c.Close()
			}
			<-ended
			if want := http2.ErrCodeEnhanceYourCalm; (code == want) != test.cut || !test.cut && answered != 10 {
				t.Errorf("%d pings answered, then %s", answered, code)
			}
			p.stop()
		})
	}
}

// TestVanishedPeer: a connection that has gone without a word is noticed while data is being sent to it.
func TestVanishedPeer(t *testing.T) {
	station := newStation(t, func(_ *core.Options, so *ServerOptions) {
		so.times.ping, so.times.pongTimeout = time.Second, 200*time.Millisecond // less than a second gRPC does not take
	})
	c := dialHTTP2(t, station, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	if err := c.WriteWindowUpdate(0, 1<<30); err != nil {
		t.Fatal(err)
	}
	if _, err := c.call(tinybrokerv1.BrokerService_Subscribe_FullMethodName, openRequest("v")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the subscription is there", func() bool { return station.broker.Stats().Subscriptions == 1 })
	stub := station.stub(t)
	eventually(t, "the subscription is gone", func() bool {
		publishOne(t, stub, "v", make([]byte, 10<<10))
		return station.broker.Stats().Subscriptions == 0
	})
	if st := station.broker.Stats(); st.Evictions != 0 || st.Memory != 0 {
		t.Errorf("%d evictions, %d bytes held", st.Evictions, st.Memory)
	}
}

// TestSilentConnectionsMakeRoom: those that do nothing do not keep real clients out when max_connections is reached: not ones that say nothing, nor ones that
// have said hello and have no call. Who has a call is left alone.
func TestSilentConnectionsMakeRoom(t *testing.T) {
	const most = 10
	for _, c := range []struct {
		name   string
		occupy func(t *testing.T, s *station)
	}{
		{"silent", func(t *testing.T, s *station) { silence(t, s, make([]string, most)...) }},
		{"half a greeting", func(t *testing.T, s *station) { silence(t, s, slices.Repeat([]string{"PRI * HTTP"}, most)...) }},
		{"idle", func(t *testing.T, s *station) {
			for range most - 1 {
				dialHTTP2(t, s)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			station := newStation(t, func(_ *core.Options, so *ServerOptions) {
				so.MaxConnections, so.times.silence, so.times.idle = most, 200*time.Millisecond, 300*time.Millisecond
			})
			p := startProbe(t, station)
			c.occupy(t, station)
			begun := time.Now()
			stub := station.stub(t)
			for range 3 {
				if _, err := stub.Publish(within(t, 5*time.Second), &tinybrokerv1.PublishRequest{Topic: "a"}); err != nil {
					t.Fatalf("after %s: %v", time.Since(begun), err)
				}
			}
			if n := station.server.connections.all(); n > most {
				t.Errorf("%d connections", n)
			}
			p.stop()
		})
	}
}

// TestIdleConnectionsStayWhileNobodyWaits: also when there are as many as there may be.
func TestIdleConnectionsStayWhileNobodyWaits(t *testing.T) {
	const most = 3
	station := newStation(t, func(_ *core.Options, so *ServerOptions) {
		so.MaxConnections, so.times.silence, so.times.idle = most, time.Minute, 50*time.Millisecond
	})
	var stubs []tinybrokerv1.BrokerServiceClient
	for range most {
		stub := station.stub(t)
		publishOne(t, stub, "a", nil)
		stubs = append(stubs, stub)
	}
	time.Sleep(300 * time.Millisecond)
	if n, waiting := station.server.Connections(), station.server.ConnectionsWaiting(); n != most || waiting != 0 {
		t.Errorf("%d connections are left, %d wait", n, waiting)
	}
	publishOne(t, stubs[0], "a", nil)
	publishOne(t, station.stub(t), "a", nil)
}

// TestNoOpen: a subscriber that does not say what it wants does not stay.
func TestNoOpen(t *testing.T) {
	station := newStation(t, func(_ *core.Options, so *ServerOptions) { so.times.open = 200 * time.Millisecond })
	stub := station.stub(t)
	p := startProbe(t, station)
	stream, err := stub.Subscribe(within(t, 10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	checkStatus(t, err, codes.InvalidArgument, "PROTOCOL")
	c := dialHTTP2(t, station)
	if err := c.sendPart(tinybrokerv1.BrokerService_Subscribe_FullMethodName, 100, 10); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the half of an `open` is given up", func() bool { return station.server.inbound.calls.Load() == 1 })
	time.Sleep(300 * time.Millisecond) // the limit does not concern who has opened
	p.stop()
}

// all returns how many connections there are, silent ones included.
func (c *connections) all() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.conns)
}
