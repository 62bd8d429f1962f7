package rpc

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

func TestWatchAddsUp(t *testing.T) {
	station := newStation(t, func(o *core.Options, so *ServerOptions) { o.MaxMessageSize, so.Version = 100_000, "v1.2.3" })
	stub := station.stub(t)
	admin := tinybrokerv1.NewAdminServiceClient(station.dial(t))
	watch, err := admin.Watch(within(t, 20*time.Second), &tinybrokerv1.WatchRequest{Interval: durationpb.New(250 * time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	next := func() *tinybrokerv1.BrokerStats {
		t.Helper()
		r, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return r.GetBroker()
	}
	asked := time.Now()
	first := next()
	if d := time.Since(asked); d > 200*time.Millisecond {
		t.Errorf("the first snapshot took %s", d)
	}
	if first.GetVersion() != "v1.2.3" || first.GetRunId() != station.broker.RunID() || first.GetMemoryLimitBytes() != 512<<20 || first.GetStartTime().AsTime().After(first.GetTime().AsTime()) {
		t.Errorf("first snapshot %v", first)
	}

	sub := openPatterns(t, stub, "a")
	for range 10 {
		publishOne(t, stub, "a", make([]byte, 100))
		publishOne(t, stub, "nobody", nil)
	}
	sub.take(t, 10)
	for _, bad := range []*tinybrokerv1.PublishRequest{{Topic: "a b"}, {Topic: "a", Payload: make([]byte, 100_000)}} {
		if _, err := stub.Publish(t.Context(), bad); err == nil {
			t.Error("published")
		}
	}
	open(t, station.stub(t, frozenOptions()...), &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"f"}, Capacity: 20})
	published := fill(t, station, stub, "f")
	dropping := open(t, station.stub(t, frozenOptions()...), &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"f"}, Capacity: 1, Overflow: 2})
	for i := range uint64(50) {
		publishOne(t, stub, "f", numbered(i, 16<<10))
	}
	dropping.cancel()

	next()
	var s *tinybrokerv1.BrokerStats
	eventually(t, "the frozen ones are done with", func() bool { s = next(); return s.GetSubscriptions() == 1 && s.GetQueuedMessages() == 0 })
	// The message that a subscription was evicted for is among those lost with it, and not unrouted.
	if s.GetPublishedMessages() != 70+published || s.GetUnroutedMessages() != 10 || s.GetRefusedMessages() != 2 || s.GetEvictions() != 1 || s.GetDroppedMessages() == 0 {
		t.Errorf("snapshot %v", s)
	}
	// What was meant for somebody was delivered, lost, dropped or is still being written to the evicted stream.
	meant := s.GetPublishedMessages() - 10
	dealtWith := s.GetDeliveredMessages() + s.GetLostMessages() + s.GetDroppedMessages()
	if underWay := meant - dealtWith; underWay > 8 || s.GetMemoryBytes() < underWay*16<<10 {
		t.Errorf("%d messages meant for somebody, %d dealt with; %v", meant, dealtWith, s)
	}
	if s.GetPublishedBytes() < published*16<<10 || s.GetDeliveredBytes() < 10*100 {
		t.Errorf("bytes: %v", s)
	}
	last := s
	for range 2 {
		s = next()
		if d := s.GetTime().AsTime().Sub(last.GetTime().AsTime()); d < 100*time.Millisecond {
			t.Errorf("%s between snapshots", d)
		}
		last = s
	}
}

func TestWatchInterval(t *testing.T) {
	admin := tinybrokerv1.NewAdminServiceClient(newStation(t, nil).dial(t))
	for _, d := range []*durationpb.Duration{{}, {Nanos: 249_999_999}, {Seconds: -1}, {Seconds: 1 << 62}, {Nanos: -5}, {Seconds: 1, Nanos: 2e9}} {
		watch, err := admin.Watch(within(t, 20*time.Second), &tinybrokerv1.WatchRequest{Interval: d})
		if err != nil {
			t.Fatal(err)
		}
		_, err = watch.Recv()
		checkStatus(t, err, codes.InvalidArgument, "PROTOCOL")
	}
	for _, d := range []*durationpb.Duration{nil, {Nanos: 250_000_000}, {Seconds: 315_576_000_000}} {
		watch, err := admin.Watch(within(t, 20*time.Second), &tinybrokerv1.WatchRequest{Interval: d})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = watch.Recv(); err != nil {
			t.Errorf("%v: %v", d, err)
		}
	}
}

func TestHealth(t *testing.T) {
	station := newStation(t, nil)
	client := healthgrpc.NewHealthClient(station.dial(t))
	names := []string{"", "tinybroker.v1.BrokerService", "tinybroker.v1.AdminService", "grpc.health.v1.Health"}
	check := func(want healthgrpc.HealthCheckResponse_ServingStatus) {
		t.Helper()
		all, err := client.List(t.Context(), &healthgrpc.HealthListRequest{})
		if err != nil || len(all.GetStatuses()) != len(names) {
			t.Errorf("list: %v, %v", all, err)
		}
		for _, name := range names {
			r, err := client.Check(t.Context(), &healthgrpc.HealthCheckRequest{Service: name})
			if err != nil || r.GetStatus() != want || all.GetStatuses()[name].GetStatus() != want {
				t.Errorf("%q: %v, %v", name, r, err)
			}
		}
	}
	check(healthgrpc.HealthCheckResponse_SERVING)
	if _, err := client.Check(t.Context(), &healthgrpc.HealthCheckRequest{Service: "tinybroker.v1.Nothing"}); status.Code(err) != codes.NotFound {
		t.Errorf("unknown service: %v", err)
	}
	var watches []grpc.ServerStreamingClient[healthgrpc.HealthCheckResponse]
	for _, name := range append(names, "tinybroker.v1.Nothing") {
		w, err := client.Watch(t.Context(), &healthgrpc.HealthCheckRequest{Service: name})
		if err != nil {
			t.Fatal(err)
		}
		want := healthgrpc.HealthCheckResponse_SERVING
		if name == "tinybroker.v1.Nothing" {
			want = healthgrpc.HealthCheckResponse_SERVICE_UNKNOWN
		}
		if r, err := w.Recv(); err != nil || r.GetStatus() != want {
			t.Errorf("watching %q: %v, %v", name, r, err)
		}
		watches = append(watches, w)
	}
	station.broker.Drain(time.Time{})
	check(healthgrpc.HealthCheckResponse_NOT_SERVING)
	for i, w := range watches {
		if i < len(names) {
			if r, err := w.Recv(); err != nil || r.GetStatus() != healthgrpc.HealthCheckResponse_NOT_SERVING {
				t.Errorf("watching %q: %v, %v", names[i], r, err)
			}
		}
		if _, err := w.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("watch %d ended with %v", i, err)
		}
	}
}

// TestUnreadSnapshots: of clients that watch much and read nothing take no more than what is accounted for.
func TestUnreadSnapshots(t *testing.T) {
	station := newStation(t, func(o *core.Options, _ *ServerOptions) { o.MaxMemory = 8 << 20 })
	in := station.server.inbound
	stream := openPublisher(t, station.stub(t))
	long := strings.Repeat("t", 490)
	for i := range 30 {
		frame := make([]*tinybrokerv1.Message, 100)
		for j := range frame {
			frame[j] = &tinybrokerv1.Message{Topic: fmt.Sprint(long, i, "x", j)}
		}
		sendFrame(t, stream, frame...)
		receipt(t, stream)
	}
	before := memoryInUse()
	var most int64
	for range 4 {
		c := dialHTTP2(t, station, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		go func() { _ = c.read(func(http2.Frame) bool { return false }) }()
		for range 15 {
			id, err := c.call(tinybrokerv1.AdminService_Watch_FullMethodName, &tinybrokerv1.WatchRequest{
				View: tinybrokerv1.View_VIEW_TOPICS, Limit: 100_000, Interval: durationpb.New(MinWatchInterval),
			})
			if err == nil {
				err = c.WriteData(id, true, nil)
			}
			if err != nil {
				break // the connection was closed for it
			}
		}
		time.Sleep(2 * MinWatchInterval)
		most = max(most, memoryInUse()-before)
	}
	if most > in.limit+10<<20 {
		t.Errorf("%d MiB in use, %d accounted for", most>>20, in.held.Load()>>20)
	}
}
