package rpc

import (
	"context"
	"fmt"
	"maps"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/metrics"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// ofGroup finds the series of a group that has a name.
var ofGroup = regexp.MustCompile(`/g[0-9s]?$`)

// meter scrapes a station's metrics.
type meter struct {
	registry *prometheus.Registry

	mu   sync.Mutex
	last map[string]float64 // counters at the last scrape
}

func newMeter(t testing.TB, s *station) *meter {
	t.Helper()
	r, err := metrics.NewRegistry(s.broker, s.server, metrics.Build{})
	if err != nil {
		t.Fatal(err)
	}
	return &meter{registry: r, last: map[string]float64{}}
}

// scrape returns the broker's counters and gauges by name and labels, and reports counters that have fallen, in series or in sum, and
// gauges below zero.
func (m *meter) scrape(t testing.TB) (counters, gauges map[string]float64) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	families, err := m.registry.Gather()
	if err != nil {
		t.Errorf("scrape: %v", err)
	}
	counters, gauges = map[string]float64{}, map[string]float64{}
	for _, f := range families {
		name, ok := strings.CutPrefix(f.GetName(), "tinybroker_")
		if !ok && !strings.HasPrefix(f.GetName(), "grpc_") {
			continue
		}
		for _, series := range f.GetMetric() {
			labels := ""
			for _, l := range series.GetLabel() {
				labels += "," + l.GetValue()
			}
			key := name + strings.Replace(labels, ",", "/", 1)
			switch {
			case series.GetCounter() != nil:
				counters[key] = series.GetCounter().GetValue()
				counters["sum of "+name] += series.GetCounter().GetValue()
			case series.GetHistogram() != nil:
				h := series.GetHistogram()
				counters[key+"_count"], counters[key+"_sum"] = float64(h.GetSampleCount()), h.GetSampleSum()
				for _, b := range h.GetBucket() {
					counters[fmt.Sprintf("%s_bucket/%g", key, b.GetUpperBound())] = float64(b.GetCumulativeCount())
				}
			case series.GetGauge() != nil:
				if gauges[key] = series.GetGauge().GetValue(); gauges[key] < 0 {
					t.Errorf("%s is %g", key, gauges[key])
				}
			}
		}
	}
	for key, was := range m.last {
		if ofGroup.MatchString(key) {
			continue // ends with the group, and begins anew when that comes back
		}
		if is, there := counters[key]; !there {
			t.Errorf("%s is gone", key)
		} else if is < was {
			t.Errorf("%s fell from %g to %g", key, was, is)
		}
	}
	m.last = counters
	return counters, gauges
}

// standing are the gauges that have to come back to what they were. The topics that were published to are followed on.
func (m *meter) standing(t testing.TB) map[string]float64 {
	_, gauges := m.scrape(t)
	delete(gauges, "topics")
	return gauges
}

// watch scrapes ten times a second until stop is called.
func (m *meter) watch(t testing.TB) (stop func()) {
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				m.scrape(t)
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		watching.Wait()
	}
}

// crowd is two broadcast subscriptions that have not read what waits for them, and two members of a group of which one has messages in
// flight, all on one connection that is about to end.
type crowd struct {
	*station
	conn    *grpc.ClientConn
	wire    *cuttable
	subs    []*stockStream
	publish tinybrokerv1.BrokerServiceClient // on a connection of its own
}

func newCrowd(t testing.TB, s *station) *crowd {
	t.Helper()
	c := &crowd{station: s, wire: new(cuttable), publish: s.stub(t)}
	c.conn = s.dial(t, c.wire.option())
	t.Cleanup(func() {
		c.wire.run()
		c.wire.cut()
	})
	stub := tinybrokerv1.NewBrokerServiceClient(c.conn)
	for i := range 4 {
		o := &tinybrokerv1.OpenSubscription{SubscriptionId: fmt.Sprint("crowd-", i), TopicPatterns: []string{"x"}}
		if i >= 2 {
			o.ConsumerGroup = "g"
		}
		c.subs = append(c.subs, open(t, stub, o))
	}
	for i := range 20 {
		publishOne(t, c.publish, "x", numbered(uint64(i), 1000))
	}
	c.subs[2].take(t, 1)
	return c
}

func (c *crowd) each(end func(s *stockStream)) {
	for _, s := range c.subs {
		end(s)
	}
}

// TestGaugesReturn: however clients end, every gauge is what it was before they came, and what has ended adds up by reason.
func TestGaugesReturn(t *testing.T) {
	for _, way := range []struct {
		name  string
		conns float64 // that are still there, and rightly
		ended map[string]float64
		end   func(t *testing.T, c *crowd)
	}{
		{"cancelled", 2, map[string]float64{"closed": 4}, func(_ *testing.T, c *crowd) { c.each(func(s *stockStream) { s.cancel() }) }},
		{"connection closed", 1, map[string]float64{"closed": 4}, func(_ *testing.T, c *crowd) { _ = c.conn.Close() }},
		{"process gone", 1, map[string]float64{"closed": 4}, func(_ *testing.T, c *crowd) { c.wire.cut() }},
		{"connection reset", 1, map[string]float64{"closed": 4}, func(t *testing.T, c *crowd) {
			c.wire.mu.Lock()
			defer c.wire.mu.Unlock()
			for _, conn := range c.wire.conns {
				if err := conn.(*net.TCPConn).SetLinger(0); err != nil {
					t.Error(err)
				}
				_ = conn.Close()
			}
		}},
		{"black hole", 1, map[string]float64{"closed": 4}, func(_ *testing.T, c *crowd) { c.wire.stop() }},
		{"one of two on a connection", 2, map[string]float64{"closed": 2, "left": 2}, func(t *testing.T, c *crowd) {
			for i, s := range c.subs {
				if i%2 == 0 {
					s.cancel()
				} else if err := s.Send(&tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Leave{Leave: &tinybrokerv1.Leave{}}}); err != nil {
					t.Error(err)
				} else if err := s.CloseSend(); err != nil {
					t.Error(err)
				}
			}
		}},
		{"kicked", 2, map[string]float64{"kicked": 4}, func(t *testing.T, c *crowd) {
			c.each(func(s *stockStream) {
				if err := c.broker.CloseSubscription(s.opened.GetSubscriptionId()); err != nil {
					t.Error(err)
				}
			})
		}},
		{"replaced", 2, map[string]float64{"replaced": 4, "closed": 4}, func(t *testing.T, c *crowd) {
			conn := c.dial(t)
			c.each(func(s *stockStream) {
				open(t, tinybrokerv1.NewBrokerServiceClient(conn), &tinybrokerv1.OpenSubscription{SubscriptionId: s.opened.GetSubscriptionId(), TopicPatterns: []string{"y"}})
			})
			_ = conn.Close()
		}},
		{"evicted and read on", 1, map[string]float64{"closed": 4, "evicted": 1}, func(t *testing.T, c *crowd) {
			sub := open(t, c.publish, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"e"}, Capacity: 5})
			fill(t, c.station, c.publish, "e")
			if _, _, err := prefix(t, sub); err == nil {
				t.Error("goes on")
			}
			c.wire.cut()
		}},
		{"evicted and frozen", 1, map[string]float64{"closed": 4, "evicted": 1}, func(t *testing.T, c *crowd) {
			frozen := c.stub(t, frozenOptions()...)
			open(t, frozen, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"e"}, Capacity: 5})
			fill(t, c.station, c.publish, "e")
			c.wire.cut()
		}},
		{"member stalled", 1, map[string]float64{"closed": 4, "stalled": 1}, func(t *testing.T, c *crowd) {
			frozen := c.stub(t, frozenOptions()...)
			open(t, frozen, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"s"}, ConsumerGroup: "gs"})
			for i := range 40 {
				publishOne(t, c.publish, "s", numbered(uint64(i), 16<<10))
			}
			eventually(t, "it is given up", func() bool { return c.broker.Stats().Evictions == 1 })
			c.wire.cut()
		}},
		{"refused", 1, map[string]float64{"closed": 4}, func(t *testing.T, c *crowd) {
			for range 10 {
				if _, err := tryOpen(t.Context(), c.publish, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"a..b"}}); err == nil {
					t.Error("a pattern without a segment")
				}
			}
			c.wire.cut()
		}},
		{"in the middle of a publish", 2, map[string]float64{"closed": 5}, func(t *testing.T, c *crowd) {
			frozen := c.stub(t, frozenOptions()...)
			sub := open(t, frozen, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"p"}, Capacity: 5})
			conn := c.dial(t)
			stream, err := tinybrokerv1.NewBrokerServiceClient(conn).PublishStream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for i := range 30 { // held back by the one that does not read
				if err := stream.Send(&tinybrokerv1.PublishStreamRequest{MaxWait: durationpb.New(time.Minute), Messages: []*tinybrokerv1.Message{{Topic: "p", Payload: numbered(uint64(i), 16<<10)}}}); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "its queue is as full as it gets", func() bool { return c.broker.Stats().QueuedMessages >= 3 })
			_ = conn.Close()
			sub.cancel()
			c.wire.cut()
		}},
		{"half a connection", 1, map[string]float64{"closed": 4}, func(t *testing.T, c *crowd) {
			for _, conn := range silence(t, c.station, "", "PRI", "GET / HTTP/1.1\r\n\r\n", http2.ClientPreface) {
				_ = conn.Close()
			}
			c.wire.cut()
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			station := newStation(t, func(o *core.Options, so *ServerOptions) {
				o.GroupLinger, o.SendTimeout = 100*time.Millisecond, 2*time.Second
				so.times.linger = 300 * time.Millisecond
				so.times.ping, so.times.pongTimeout = time.Second, 2*time.Second
			})
			m := newMeter(t, station)
			before := m.standing(t)
			stop := m.watch(t)
			c := newCrowd(t, station)
			if there := m.standing(t); there["subscriptions"] != 4 || there["connections"] != 2 || there["group_in_flight/g"] == 0 || there["queued_bytes"] == 0 {
				t.Errorf("meanwhile: %v", there)
			}
			way.end(t, c)
			before["connections"] = way.conns
			var after map[string]float64
			defer func() {
				if t.Failed() {
					t.Logf("before %v\nafter  %v", before, after)
				}
			}()
			eventually(t, "the gauges are what they were", func() bool {
				after = m.standing(t)
				return maps.Equal(before, after)
			})
			stop()
			counters, _ := m.scrape(t)
			for key, n := range counters {
				if reason, ok := strings.CutPrefix(key, "subscriptions_ended_total/"); ok && n != way.ended[reason] {
					t.Errorf("%g ended as %s, want %g", n, reason, way.ended[reason])
				}
			}
			checkBooks(t, m)
		})
	}
}

// checkBooks checks that what came in has gone out, is still there or is counted as lost, on a broker where nothing is under way.
func checkBooks(t testing.TB, m *meter) {
	t.Helper()
	c, g := m.scrape(t)
	sum := func(of map[string]float64, name string) (n float64) {
		for key, v := range of {
			if strings.HasPrefix(key, name+"/") {
				n += v
			}
		}
		return n
	}
	pending, inFlight := sum(g, "group_pending"), sum(g, "group_in_flight")
	groupDropped := c["sum of group_dropped_messages_total"]
	for _, book := range []struct {
		name      string
		came, are float64
	}{
		{"broadcast", c["matched_messages_total/broadcast"],
			c["delivered_messages_total/broadcast"] + c["sum of dropped_messages_total"] - groupDropped + g["queued_messages"] - pending},
		{"groups", c["matched_messages_total/group"], c["acked_messages_total"] + c["sum of dead_letters_total"] + groupDropped + pending + inFlight},
		{"subscriptions", c["subscriptions_opened_total"], c["sum of subscriptions_ended_total"] + g["subscriptions"]},
		{"acks", c["acked_messages_total"], c["sum of group_acked_messages_total"]},
		{"matched", c["matched_messages_total/group"], c["sum of group_matched_messages_total"]},
	} {
		if book.came != book.are {
			t.Errorf("%s: %g, accounted for %g", book.name, book.came, book.are)
		}
	}
	for key := range g {
		group, ok := strings.CutPrefix(key, "group_pending/")
		if !ok || group == "_other" {
			continue
		}
		if came, are := c["group_matched_messages_total/"+group], c["group_acked_messages_total/"+group]+c["dead_letters_total/"+group]+
			c["group_dropped_messages_total/"+group]+g[key]+g["group_in_flight/"+group]; came != are {
			t.Errorf("group %s: %g, accounted for %g", group, came, are)
		}
	}
}

// TestBooksOfAMixedRun: clients of all kinds come and go, and count for themselves. No counter ever falls, and at rest the metrics say what
// they say.
func TestBooksOfAMixedRun(t *testing.T) {
	station := newStation(t, func(o *core.Options, so *ServerOptions) {
		o.GroupLinger, o.AckDeadline, o.MaxAttempts = 200*time.Millisecond, 100*time.Millisecond, 2
		o.SendTimeout, so.times.linger = time.Second, 300*time.Millisecond
	})
	m := newMeter(t, station)
	stop := m.watch(t)
	var clients sync.WaitGroup
	var mu sync.Mutex
	var published, refused, bytes, unrouted float64
	size := func(r *tinybrokerv1.PublishRequest) float64 {
		return float64(proto.Size(&tinybrokerv1.PublishStreamRequest{Messages: []*tinybrokerv1.Message{{Topic: r.GetTopic(), Payload: r.GetPayload()}}}))
	}
	open(t, station.stub(t, frozenOptions()...), &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"frozen"}, Capacity: 50})
	n := fill(t, station, station.stub(t), "frozen")
	published += float64(n)
	bytes += float64(n) * size(&tinybrokerv1.PublishRequest{Topic: "frozen", Payload: numbered(0, 16<<10)})
	unrouted++ // the one that it was evicted for
	begun := time.Now()
	goOn := func() bool {
		done := station.broker.Tally().GroupTotals
		lived := time.Since(begun)
		return lived < 3*time.Second || lived < 20*time.Second && (done.Redelivered == 0 || done.DeadLetters == 0 || done.Acked == 0)
	}
	for i := range 2 {
		stub := station.stub(t)
		clients.Go(func() {
			for n := 0; goOn(); n++ {
				topic := fmt.Sprintf("t.%d", n%6)
				if n%10 == i {
					topic = "not a topic"
				}
				request := &tinybrokerv1.PublishRequest{Topic: topic, Payload: numbered(uint64(n), 1000)}
				response, err := stub.Publish(t.Context(), request)
				mu.Lock()
				if err != nil {
					refused++
				} else {
					published++
					bytes += size(request)
					if response.GetReceivers() == 0 {
						unrouted++
					}
				}
				mu.Unlock()
			}
		})
	}
	for i := range 3 {
		clients.Go(func() {
			for n := 0; goOn(); n++ {
				conn := station.dial(t)
				o := &tinybrokerv1.OpenSubscription{TopicPatterns: []string{fmt.Sprintf("t.%d", i)}, Capacity: 5, Overflow: tinybrokerv1.OverflowPolicy(n % 4)}
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				if s, err := tryOpen(ctx, tinybrokerv1.NewBrokerServiceClient(conn), o); err == nil {
					for range n % 5 {
						if _, err := s.Recv(); err != nil {
							break
						}
					}
				}
				cancel()
				_ = conn.Close()
			}
		})
		clients.Go(func() {
			for n := 0; goOn(); n++ {
				mixedMember(t, station, fmt.Sprintf("g%d", (n+i)%3), n)
			}
		})
	}
	clients.Wait()
	eventually(t, "all have gone", func() bool { return station.broker.Stats().Subscriptions == 0 && station.broker.Stats().Groups == 0 })
	eventually(t, "nothing is under way", func() bool { return station.broker.Stats().Memory == 0 })
	stop()
	checkBooks(t, m)
	c, _ := m.scrape(t)
	want := map[string]float64{
		"published_messages_total": published, "published_bytes_total": bytes,
		"refused_messages_total/invalid": refused, "sum of refused_messages_total": refused,
		"grpc_server_started_total/Publish,tinybroker.v1.BrokerService,unary": published + refused,
	}
	for name, n := range want {
		if got, ok := c[name]; got != n || !ok {
			t.Errorf("%s is %g, want %g", name, got, n)
		}
	}
	// A message whose only receiver is evicted by it, or drops it, has no receiver either; but that one is told what it lost.
	if got := c["unrouted_messages_total"]; got > unrouted || got < unrouted*0.9 {
		t.Errorf("%g unrouted, and %g had no receiver", got, unrouted)
	}
	for _, name := range []string{"sum of redelivered_messages_total", "sum of dead_letters_total", "evictions_total/queue_full", "acked_messages_total"} {
		if c[name] == 0 {
			t.Errorf("%s is still 0", name)
		}
	}
	for key := range c {
		if ofGroup.MatchString(key) {
			t.Errorf("%s is left", key)
		}
	}
}

// mixedMember joins a group, does with a few messages one thing or another, and goes.
func mixedMember(t *testing.T, station *station, group string, n int) {
	conn := station.dial(t)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	s, err := tryOpen(ctx, tinybrokerv1.NewBrokerServiceClient(conn), &tinybrokerv1.OpenSubscription{
		TopicPatterns: []string{"t.4", "t.5"}, ConsumerGroup: group, MaxInFlight: 8, Capacity: 50, Overflow: tinybrokerv1.OverflowPolicy_OVERFLOW_POLICY_DROP_OLDEST,
	})
	if err != nil {
		return
	}
	for range 1 + n%4 {
		r, err := s.Recv()
		if err != nil {
			return
		}
		if len(r.GetMessages()) == 0 {
			continue
		}
		ranges := span(r.GetFirstSequence(), r.GetFirstSequence()+uint64(len(r.GetMessages()))-1)
		switch n % 3 {
		case 0:
			_ = s.Send(&tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Ack{Ack: &tinybrokerv1.Ack{Ranges: ranges}}})
		case 1:
			_ = s.Send(&tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Nack{Nack: &tinybrokerv1.Nack{
				Ranges: ranges, Action: tinybrokerv1.NackAction(n % 4),
			}}})
		}
	}
}

// TestGaugesOfThoseWhoMayNot: who is not let in, who publishes what he may not, and whose right goes while he is there, leaves no trace in the
// gauges and is counted for what it is.
func TestGaugesOfThoseWhoMayNot(t *testing.T) {
	const reader = "- {name: reader, token_hash: HASH:reader, subscribe: {allow: x}, group: {allow: g}}\n"
	station := guarded(t, "identities:\n"+stayingIdentity+reader+"- {name: quiet, token_hash: HASH:quiet, publish: {allow: y}}\n")
	m := newMeter(t, station)
	before := m.standing(t)
	stop := m.watch(t)
	publisher := station.stub(t, as("staying"))
	for range 5 {
		if _, err := tryOpen(t.Context(), station.stub(t, as("wrong")), &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"x"}}); err == nil {
			t.Error("a stranger subscribes")
		}
		if _, err := station.stub(t, as("quiet")).Publish(t.Context(), &tinybrokerv1.PublishRequest{Topic: "x"}); err == nil {
			t.Error("published what may not be published")
		}
	}
	stub := station.stub(t, as("reader"))
	for i := range 4 {
		o := &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"x"}}
		if i >= 2 {
			o.ConsumerGroup = "g"
		}
		open(t, stub, o)
	}
	member := joinStock(t, publisher, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"x"}})
	for i := range 20 {
		publishOne(t, publisher, "x", numbered(uint64(i), 1000))
	}
	station.server.UseIdentities(identitiesOf(t, "identities:\n"+stayingIdentity))
	eventually(t, "the group's work has gone to who may have it", func() bool {
		for len(member.deliveries) > 0 {
			d := <-member.deliveries
			member.ack(t, d.sequence, d.sequence)
		}
		return station.broker.Tally().GroupTotals.Acked == 20
	})
	member.leave(t)
	eventually(t, "the gauges are what they were", func() bool {
		after := m.standing(t)
		for _, passing := range []string{"connections", "groups", "group_pending/g", "group_in_flight/g", "group_members/g"} {
			if passing != "connections" && after[passing] != 0 && passing != "groups" {
				return false
			}
			delete(after, passing) // clients keep their connections, and the group lingers
		}
		want := maps.Clone(before)
		delete(want, "connections")
		delete(want, "groups")
		return maps.Equal(after, want)
	})
	stop()
	checkBooks(t, m)
	c, _ := m.scrape(t)
	for name, n := range map[string]float64{
		"subscriptions_ended_total/revoked": 4, "subscriptions_ended_total/left": 1, "refused_messages_total/not_allowed": 5,
		"grpc_server_handled_total/Unauthenticated,Subscribe,tinybroker.v1.BrokerService,bidi_stream": 5 + 4,
		"grpc_server_handled_total/PermissionDenied,Publish,tinybroker.v1.BrokerService,unary":        5,
	} {
		if c[name] != n {
			t.Errorf("%s is %g, want %g", name, c[name], n)
		}
	}
}
