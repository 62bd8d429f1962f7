package rpc

import (
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// TestFloodOfEvictions: at most 20 lines a second, and one that tells how many there were besides.
func TestFloodOfEvictions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := &logLines{}
		log := slog.New(slog.NewJSONHandler(lines, nil))
		limit := &newLineLimits().evictions
		flood := func(n int) (allowed int) {
			for range n {
				if limit.allow(log) {
					allowed++
				}
			}
			return allowed
		}
		for i, second := range []struct{ evicted, allowed, suppressed int }{{1, 1, 0}, {5000, 20, 4980}, {20, 20, 0}, {21, 20, 1}} {
			if got := flood(second.evicted); got != second.allowed {
				t.Errorf("second %d: %d lines, want %d", i, got, second.allowed)
			}
			before := len(lines.with(t, "more subscriptions were evicted than are logged"))
			time.Sleep(time.Second)
			synctest.Wait()
			told := lines.with(t, "more subscriptions were evicted than are logged")[before:]
			if second.suppressed == 0 && len(told) != 0 || second.suppressed > 0 && (len(told) != 1 || told[0]["suppressed"] != float64(second.suppressed)) {
				t.Errorf("second %d: told %v, want %d", i, told, second.suppressed)
			}
		}
	})
}

// TestQuietEndings: what ends as it should is one line, no warning, and the log shows no payload.
func TestQuietEndings(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	sub := openPatterns(t, stub, "a")
	publishOne(t, stub, "a", []byte("secret"))
	sub.take(t, 1)
	sub.cancel()
	open(t, stub, sameID("a"))
	open(t, stub, sameID("b"))
	eventually(t, "one is left", func() bool { return station.broker.Stats().Subscriptions == 1 })
	if _, err := shutDown(t, station, 10*time.Second); err != nil {
		t.Error(err)
	}
	reasons := map[any]int{}
	for _, line := range station.log.with(t, "subscription ended") {
		if reasons[line["reason"]]++; line["level"] != "INFO" {
			t.Errorf("%v", line)
		}
	}
	if want := map[any]int{"closed": 1, "replaced": 1, "shutting down": 1}; !maps.Equal(reasons, want) {
		t.Errorf("ended: %v", reasons)
	}
	station.log.mu.Lock()
	defer station.log.mu.Unlock()
	if logged := station.log.buf.String(); strings.Count(logged, "\n") != 4 || strings.Contains(logged, "secret") {
		t.Errorf("logged %s", logged) // the three, and one for the connection
	}
}

// TestExpiryLines: what no member has come back for is one line, whether its group goes on or not, and nothing is none.
func TestExpiryLines(t *testing.T) {
	station := newStation(t, func(o *core.Options, _ *ServerOptions) { o.GroupLinger = 50 * time.Millisecond })
	stub := station.stub(t)
	joinStock(t, stub, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"a"}})
	both := joinStock(t, stub, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"b", "c"}})
	alone := joinStock(t, stub, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"b"}, ConsumerGroup: "alone"})
	idle := joinStock(t, stub, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"d"}})
	publishOne(t, stub, "b", nil)
	both.take(t, 1)
	alone.take(t, 1)
	for _, m := range []*stockMember{both, alone, idle} { // without an ack
		m.cancel()
	}
	const text = "messages dropped: no member came back for them"
	eventually(t, "it is told", func() bool { return len(station.log.with(t, text)) == 2 })
	for _, line := range station.log.with(t, text) {
		want := "[b c]"
		if line["group"] == "alone" {
			want = "[]"
		}
		if got := fmt.Sprint(line["patterns"]); line["level"] != "WARN" || line["messages"] != 1.0 || got != want {
			t.Errorf("%v", line)
		}
	}
}

// TestConnectionLines: a connection that published or subscribed gets one line, with who it was and what passed; a probe gets one only
// for those who want to see everything.
func TestConnectionLines(t *testing.T) {
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo} {
		lines := &logLines{}
		station := newStation(t, func(_ *core.Options, so *ServerOptions) {
			so.Logger = slog.New(slog.NewJSONHandler(lines, &slog.HandlerOptions{Level: level}))
		})
		probe := station.dial(t)
		if _, err := healthgrpc.NewHealthClient(probe).Check(t.Context(), &healthgrpc.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
		user := station.dial(t)
		stub := tinybrokerv1.NewBrokerServiceClient(user)
		sub := open(t, stub, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"a"}, ClientName: "billing-7"})
		open(t, stub, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"a"}, ClientName: "another"})
		publishOne(t, stub, "a", make([]byte, 10_000))
		sub.take(t, 1)
		silent := silence(t, station, "")[0]
		peer := silent.LocalAddr().String()
		eventually(t, "all are connected", func() bool { return station.server.connections.all() == 3 })
		_ = silent.Close()
		_ = probe.Close()
		_ = user.Close()
		eventually(t, "none is left", func() bool { return station.server.connections.all() == 0 })
		want := 1
		if level == slog.LevelDebug {
			want = 3
		}
		eventually(t, "the lines are written", func() bool { return len(lines.with(t, "connection closed")) >= want })
		logged := lines.with(t, "connection closed")
		if len(logged) != want {
			t.Errorf("%s: %v", level, logged)
		}
		seen := false
		for _, line := range logged {
			if line["client"] != "billing-7" {
				if line["level"] != "DEBUG" {
					t.Errorf("%v", line)
				}
				continue
			}
			received, _ := line["received_bytes"].(float64)
			sent, _ := line["sent_bytes"].(float64)
			seen = line["level"] == "INFO" && line["peer"] != peer && received > 10_000 && received < 20_000 && sent > 20_000 && sent < 30_000
		}
		if !seen {
			t.Errorf("%s: %v", level, logged)
		}
	}
}

// TestHostileNames: whatever a client calls itself, the line about it is one line, and drives no terminal.
func TestHostileNames(t *testing.T) {
	text := &logLines{}
	station := newStation(t, func(_ *core.Options, so *ServerOptions) { so.Logger = slog.New(slog.NewTextHandler(text, nil)) })
	stub := station.stub(t)
	hostile := []string{"\u202egnp.exe", `"quoted" level=ERROR msg="all is lost"`, `back\slash`, "🦀 crab", "\u200bzero width", "\ufeff"}
	for _, name := range hostile {
		sub := open(t, stub, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"a"}, ClientName: name})
		sub.cancel()
	}
	for _, name := range []string{"line\nfeed", "\x00", "\x1b[2J", "\u009b31m", "\x7f"} {
		if _, err := tryOpen(t.Context(), stub, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"a"}, ClientName: name}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%q: %v", name, err)
		}
	}
	logged := func() string {
		text.mu.Lock()
		defer text.mu.Unlock()
		return text.buf.String()
	}
	eventually(t, "all have ended", func() bool { return strings.Count(logged(), `msg="subscription ended"`) == len(hostile) })
	if lines := strings.Count(logged(), "\n"); lines != len(hostile) {
		t.Errorf("%d lines:\n%s", lines, logged())
	}
	for _, r := range logged() {
		if r != '\n' && !strconv.IsPrint(r) {
			t.Errorf("%U is written as it is", r)
		}
	}
	if strings.Contains(logged(), "\nlevel=ERROR") || strings.Contains(logged(), ` msg="all is lost"`) {
		t.Errorf("forged:\n%s", logged())
	}
}

// TestCallCounts: every call is counted by method and status, once; what does not exist is not.
func TestCallCounts(t *testing.T) {
	station := newStation(t, nil)
	conn := station.dial(t)
	stub := tinybrokerv1.NewBrokerServiceClient(conn)
	publishOne(t, stub, "a", nil)
	publishOne(t, stub, "a", nil)
	_, _ = stub.Publish(t.Context(), &tinybrokerv1.PublishRequest{Topic: "no topic"})
	sub := openPatterns(t, stub, "a")
	sub.cancel()
	openPatterns(t, stub, "b")
	_ = conn.Invoke(t.Context(), "/made.up.Service/Method", &tinybrokerv1.PublishRequest{}, &tinybrokerv1.PublishResponse{})
	_ = conn.Invoke(t.Context(), "/tinybroker.v1.BrokerService/MadeUp", &tinybrokerv1.PublishRequest{}, &tinybrokerv1.PublishResponse{})
	counts := func() map[string]uint64 {
		all := map[string]uint64{}
		station.server.VisitCalls(func(kind, service, method string, n uint64) {
			all[kind+" "+service+"/"+method] = n
		}, func(kind, service, method, code string, n uint64) {
			if n > 0 {
				all[method+" "+code] += n
			}
		})
		return all
	}
	eventually(t, "the cancelled call has ended", func() bool { return counts()["Subscribe Canceled"] == 1 })
	all := counts()
	for what, n := range map[string]uint64{
		"unary tinybroker.v1.BrokerService/Publish": 3, "Publish OK": 2, "Publish InvalidArgument": 1,
		"bidi_stream tinybroker.v1.BrokerService/Subscribe": 2, "server_stream tinybroker.v1.AdminService/Watch": 0,
	} {
		if got, there := all[what]; got != n || !there {
			t.Errorf("%s: %d, want %d", what, got, n)
		}
	}
	methods := 0
	for what, n := range all {
		if strings.Contains(what, "/") {
			methods++
		}
		if strings.Contains(strings.ToLower(what), "made") {
			t.Errorf("%s: %d", what, n)
		}
	}
	if len(all) != methods+3 {
		t.Errorf("%v", all)
	}
}

// TestFloodOfEvictionsOnTheWire: 200 subscribers that stop reading are evicted. At most twenty a second are named, each with all that tells
// who it is; the rest is told in one line, and the counter is exact.
func TestFloodOfEvictionsOnTheWire(t *testing.T) {
	const slow = 200
	station := newStation(t, func(o *core.Options, so *ServerOptions) {
		o.SendTimeout, so.times.linger = 100*time.Millisecond, time.Second
	})
	m := newMeter(t, station)
	frozen := station.stub(t, frozenOptions()...)
	for i := range slow {
		open(t, frozen, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"f"}, Capacity: 2, ClientName: fmt.Sprint("sleeper-", i)})
	}
	stub := station.stub(t)
	for n := uint64(0); station.broker.Stats().Subscriptions > 0; n++ {
		publishOne(t, stub, "f", numbered(n, 32<<10))
		if n > 1000 {
			t.Fatal("never evicted")
		}
	}
	suppressed := func() (n float64) {
		for _, line := range station.log.with(t, "more subscriptions were evicted than are logged") {
			n += line["suppressed"].(float64)
		}
		return n
	}
	eventually(t, "all are logged or counted", func() bool { return float64(len(station.log.with(t, "subscription ended")))+suppressed() == slow })
	begun := map[any]int{}
	for _, line := range station.log.with(t, "subscription ended") {
		at, _ := line["time"].(string)
		begun[at[:len("2006-01-02T15:04:05")]]++
		for _, field := range []string{"client", "peer", "subscription", "why", "lived"} {
			if text, _ := line[field].(string); text == "" {
				t.Errorf("no %s: %v", field, line)
			}
		}
		if line["reason"] != "evicted" || line["queued"] == 0.0 || line["queued_bytes"] == 0.0 || line["lost"] == 0.0 {
			t.Errorf("%v", line)
		}
	}
	for second, n := range begun {
		if n > 2*maxLines { // the server's seconds do not begin with the clock's
			t.Errorf("%d lines in %s", n, second)
		}
	}
	if c, _ := m.scrape(t); c["evictions_total/queue_full"] != slow || suppressed() == 0 {
		t.Errorf("%g evictions, %g lines suppressed", c["evictions_total/queue_full"], suppressed())
	}
}
