package rpc

import (
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// TestStrangersTakeNobodysCalls: whoever has no credential cannot use up the calls of those who have one, nor of those who ask for health.
func TestStrangersTakeNobodysCalls(t *testing.T) {
	station := newStation(t, func(o *core.Options, so *ServerOptions) {
		o.MaxSubscriptions, so.MaxConnections = 2, 10
		so.Identities = identitiesOf(t, sweepIdentities)
		so.times.strange = time.Second
	})
	const all = 2 + 10*callsPerConnection
	conn := dialHTTP2(t, station)
	refused := make(chan uint32, 3*all)
	go func() {
		_ = conn.read(func(f http2.Frame) bool {
			if h, ok := f.(*http2.HeadersFrame); ok && h.StreamEnded() {
				refused <- h.StreamID
			}
			return false
		})
	}()
	begin := func(method string, n int) {
		for range n {
			if _, err := conn.begin(method); err != nil {
				t.Fatal(err)
			}
		}
	}
	begin(healthgrpc.Health_Check_FullMethodName, 2*all)
	for range 2*all - strangeCalls {
		if id := <-refused; id < 2*strangeCalls {
			t.Errorf("call %d is refused", id)
		}
	}
	begin(tinybrokerv1.BrokerService_PublishStream_FullMethodName, all)

	known := station.dial(t, as("everything"))
	publishOne(t, tinybrokerv1.NewBrokerServiceClient(known), "x", nil)
	for range strangeCalls {
		if err := call(within(t, 5*time.Second), known, healthgrpc.Health_Check_FullMethodName, &healthgrpc.HealthCheckRequest{}); err != nil {
			t.Error(err)
		}
		if err := call(within(t, 5*time.Second), station.dial(t), healthgrpc.Health_Check_FullMethodName, &healthgrpc.HealthCheckRequest{}); err != nil {
			t.Error(err)
		}
	}
	if lines := station.log.with(t, "call refused"); len(lines) == 0 || lines[0]["method"] != healthgrpc.Health_Check_FullMethodName ||
		lines[0]["why"] != "quota exceeded: 8 calls without a credential are open on this connection" || lines[0]["peer"] != conn.LocalAddr().String() {
		t.Errorf("the log says %v", lines)
	}
	strangers := func() (n int) {
		in := station.server.inbound
		in.mu.Lock()
		defer in.mu.Unlock()
		for f := range in.flows {
			n += f.strangeCalls()
		}
		return n
	}
	// The server may take a moment longer than the client to be done with a call.
	eventually(t, "only the calls that may be are open", func() bool { return strangers() == strangeCalls })
	eventually(t, "nobody waits for them any more", func() bool { return strangers() == 0 })
	if n := station.server.inbound.calls.Load(); n != 0 {
		t.Errorf("%d calls are open", n)
	}
}

// TestStrangersAreToldWhatIsWrong: however many calls come with a bad token, each is told that, and not to try again.
func TestStrangersAreToldWhatIsWrong(t *testing.T) {
	station := guarded(t, sweepIdentities)
	conn := station.dial(t, as("wrong"))
	errs := make(chan error)
	const n = 20 * strangeCalls
	for range n {
		go func() {
			errs <- call(t.Context(), conn, tinybrokerv1.BrokerService_Publish_FullMethodName, &tinybrokerv1.PublishRequest{Topic: "x"})
		}()
	}
	for range n {
		checkStatus(t, <-errs, codes.Unauthenticated, "UNAUTHENTICATED")
	}
}

// TestStrangersMakeRoom: a call of a stranger does not keep its connection from making room for others.
func TestStrangersMakeRoom(t *testing.T) {
	station := newStation(t, func(_ *core.Options, so *ServerOptions) {
		so.MaxConnections = 1
		so.Identities = identitiesOf(t, sweepIdentities)
		so.times.idle = 100 * time.Millisecond
	})
	stranger := dialHTTP2(t, station)
	if _, err := stranger.begin(healthgrpc.Health_Check_FullMethodName); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	publishOne(t, station.stub(t, as("everything")), "x", nil)
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("after %s", took)
	}
}

// TestQuotaIsLogged: the operator learns who meets a limit on how many there may be.
func TestQuotaIsLogged(t *testing.T) {
	station := newStation(t, func(o *core.Options, _ *ServerOptions) { o.MaxSubscriptions = 1 })
	stub := station.stub(t)
	openPatterns(t, stub, "a")
	_, err := tryOpen(t.Context(), stub, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"a"}})
	checkStatus(t, err, codes.ResourceExhausted, "QUOTA")
	if lines := station.log.with(t, "call refused"); len(lines) != 1 || lines[0]["why"] != "quota exceeded: 1 subscriptions are open" {
		t.Errorf("the log says %v", lines)
	}
}
