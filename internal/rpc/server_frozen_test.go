package rpc

import (
	"errors"
	"io"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// maxWriting is about the most that a stream which is not read has being written: what the transport takes unasked and
// one frame more.
const maxWriting = 64<<10 + 2*takeBytes

// fill publishes numbered messages of 16 KiB to a subscription that does not read until it is evicted, and returns how
// many were published.
func fill(t testing.TB, station *station, stub tinybrokerv1.BrokerServiceClient, topic string) (published uint64) {
	t.Helper()
	evictions := station.broker.Stats().Evictions
	for station.broker.Stats().Evictions == evictions {
		publishOne(t, stub, topic, numbered(published, 16<<10))
		published++
		if published > 10_000 {
			t.Fatal("never evicted")
		}
	}
	return published
}

// prefix reads what an evicted stream delivered, which must be a contiguous beginning, until it ends. It may be called by
// any goroutine.
func prefix(t testing.TB, sub *stockStream) (received uint64, closed *tinybrokerv1.Closed, err error) {
	t.Helper()
	for {
		r, err := sub.Recv()
		if err != nil {
			return received, closed, err
		}
		for _, m := range r.GetMessages() {
			if n := numberOf(t, m.GetPayload()); n != received {
				t.Errorf("message %d came, want %d", n, received)
				return received, nil, errors.New("not a contiguous beginning")
			}
			received++
		}
		closed = r.GetClosed()
	}
}

// TestEvictedReadsOn: a subscriber that reads on in time gets what was under way and then `closed`, and the numbers add up.
func TestEvictedReadsOn(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	sub := open(t, station.stub(t, frozenOptions()...), &tinybrokerv1.OpenSubscription{
		SubscriptionId: "frozen", ClientName: "sleeper", TopicPatterns: []string{"f.*", "!f.g"}, Capacity: 50,
	})
	published := fill(t, station, stub, "f.f")
	// Queued messages are free at once; what the transport is writing is not.
	if st := station.broker.Stats(); st.Memory > maxWriting || st.QueuedMessages != 0 || st.Subscriptions != 0 {
		t.Errorf("after the eviction: %d bytes, %d messages queued, %d subscriptions", st.Memory, st.QueuedMessages, st.Subscriptions)
	}
	if n := publishOne(t, stub, "f.f", nil); n != 0 {
		t.Errorf("%d receivers after the eviction", n)
	}
	received, closed, err := prefix(t, sub)
	if !errors.Is(err, io.EOF) || closed.GetReason() != tinybrokerv1.CloseReason_CLOSE_REASON_EVICTED || closed.GetText() != "queue full (50)" {
		t.Errorf("closed %v, then %v", closed, err)
	}
	if closed.GetLost() != published-received || closed.GetLastSequence() != received || closed.GetLost() < 50 {
		t.Errorf("published %d, received %d, closed %v", published, received, closed)
	}
	if lost := sub.Trailer().Get(closeLostTrailer); len(lost) != 1 || lost[0] != strconv.FormatUint(closed.GetLost(), 10) {
		t.Errorf("trailer tells %v lost", lost)
	}
	st := station.broker.Stats()
	if st.Lost != closed.GetLost() || st.Delivered != received || st.Memory != 0 {
		t.Errorf("%d lost, %d delivered, %d bytes; want %d, %d, 0", st.Lost, st.Delivered, st.Memory, closed.GetLost(), received)
	}
	again := open(t, stub, &tinybrokerv1.OpenSubscription{SubscriptionId: "frozen", TopicPatterns: []string{"f.*"}})
	if previous := again.opened.GetPrevious(); previous.GetReason() != closed.GetReason() || previous.GetLost() != closed.GetLost() || previous.GetLastSequence() != received {
		t.Errorf("previous %v, closed %v", previous, closed)
	}
	checkEvictionLine(t, station, closed.GetLost())
}

func checkEvictionLine(t testing.TB, station *station, lost uint64) {
	t.Helper()
	eventually(t, "the eviction is logged", func() bool { return len(station.log.with(t, "subscription ended")) > 0 })
	lines := station.log.with(t, "subscription ended")
	if len(lines) != 1 {
		t.Fatalf("%d lines: %v", len(lines), lines)
	}
	line := lines[0]
	patterns, _ := line["patterns"].([]any)
	if line["level"] != "WARN" || line["reason"] != "evicted" || line["subscription"] != "frozen" || line["client"] != "sleeper" || line["why"] != "queue full (50)" ||
		line["lost"] != float64(lost) || line["capacity"] != 50.0 || !slices.Equal(patterns, []any{"f.*", "!f.g"}) {
		t.Errorf("logged %v", line)
	}
	if peer, _ := line["peer"].(string); len(peer) < len("127.0.0.1:1") {
		t.Errorf("peer %q", peer)
	}
	queued, _ := line["queued"].(float64)
	if bytes, _ := line["queued_bytes"].(float64); queued < 1 || queued > min(50, float64(lost)) || bytes < queued {
		t.Errorf("%v messages of %v bytes were queued", line["queued"], line["queued_bytes"])
	}
	text, _ := line["lived"].(string)
	if lived, err := time.ParseDuration(text); err != nil || lived <= 0 || lived > time.Minute {
		t.Errorf("lived %v", line["lived"])
	}
}

// TestEvictedReadsOnLate: past send_timeout there is no `closed` frame, but the trailers tell the same.
func TestEvictedReadsOnLate(t *testing.T) {
	station := newStation(t, func(o *core.Options, _ *ServerOptions) { o.SendTimeout = 100 * time.Millisecond })
	stub := station.stub(t)
	sub := open(t, station.stub(t, frozenOptions()...), &tinybrokerv1.OpenSubscription{
		SubscriptionId: "frozen", ClientName: "sleeper", TopicPatterns: []string{"f.*", "!f.g"}, Capacity: 50,
	})
	published := fill(t, station, stub, "f.f")
	eventually(t, "the frame under way is lost", func() bool { return len(station.log.with(t, "subscription ended")) == 1 })
	if n := station.broker.Stats().Memory; n > maxWriting {
		t.Errorf("%d bytes held", n)
	}
	received, closed, err := prefix(t, sub)
	if !errors.Is(err, io.EOF) || closed != nil {
		t.Errorf("closed %v, then %v", closed, err)
	}
	reason, lost := sub.Trailer().Get(closeReasonTrailer), sub.Trailer().Get(closeLostTrailer)
	if !slices.Equal(reason, []string{"CLOSE_REASON_EVICTED"}) || !slices.Equal(lost, []string{strconv.FormatUint(published-received, 10)}) {
		t.Errorf("published %d, received %d, trailers %v %v", published, received, reason, lost)
	}
	if st := station.broker.Stats(); st.Lost != published-received || st.Delivered != received || st.Memory != 0 {
		t.Errorf("%d lost, %d delivered, %d bytes; want %d, %d, 0", st.Lost, st.Delivered, st.Memory, published-received, received)
	}
	again := open(t, stub, &tinybrokerv1.OpenSubscription{SubscriptionId: "frozen", TopicPatterns: []string{"f.*"}})
	if previous := again.opened.GetPrevious(); previous.GetLost() != published-received || previous.GetLastSequence() != received {
		t.Errorf("previous %v; want %d lost after %d", previous, published-received, received)
	}
	checkEvictionLine(t, station, published-received)
}

// TestFrozenForGood: a client that never reads again, and whose transport is alive, does not keep its streams for ever.
func TestFrozenForGood(t *testing.T) {
	station := newStation(t, func(o *core.Options, so *ServerOptions) {
		o.SendTimeout, so.times.linger = 50*time.Millisecond, 300*time.Millisecond
	})
	stub := station.stub(t)
	conn := station.dial(t, frozenOptions()...)
	sub := open(t, tinybrokerv1.NewBrokerServiceClient(conn), &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"f"}, Capacity: 50})
	fill(t, station, stub, "f")
	eventually(t, "the connection is closed", func() bool {
		return len(station.log.with(t, "connection closed: an ended subscription's stream was not read")) == 1
	})
	if _, _, err := prefix(t, sub); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v", err)
	}
	eventually(t, "only the publisher's connection is left", func() bool { return station.server.connections.count() == 1 })
	eventually(t, "all memory is free", func() bool { return station.broker.Stats().Memory == 0 })
}

// TestReadEndIsNoFreeze: the connection of a stream that was read to its end in time stays.
func TestReadEndIsNoFreeze(t *testing.T) {
	station := newStation(t, func(o *core.Options, so *ServerOptions) {
		o.SendTimeout, so.times.linger = 50*time.Millisecond, 300*time.Millisecond
	})
	stub := station.stub(t)
	conn := station.dial(t, frozenOptions()...)
	client := tinybrokerv1.NewBrokerServiceClient(conn)
	sub := open(t, client, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"f"}, Capacity: 50})
	other := openPatterns(t, client, "other")
	fill(t, station, stub, "f")
	time.Sleep(150 * time.Millisecond)
	if _, _, err := prefix(t, sub); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v", err)
	}
	time.Sleep(400 * time.Millisecond)
	publishOne(t, stub, "other", nil)
	other.take(t, 1)
}

// TestFrozenSlowsNobody: five frozen subscribers between ten healthy ones; those get everything in order, and publishing takes
// as long as without them.
func TestFrozenSlowsNobody(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	const n = 300
	round := func(base uint64) (p99, total time.Duration) {
		var took []time.Duration
		begun := time.Now()
		for i := range uint64(n) {
			sent := time.Now()
			publishOne(t, stub, "x.y", numbered(base+i, 4<<10))
			took = append(took, time.Since(sent))
		}
		slices.Sort(took)
		return took[n*99/100], time.Since(begun)
	}
	freeze := func() {
		client := station.stub(t, frozenOptions()...)
		open(t, client, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"x.**"}, Capacity: 20})
	}
	freeze()
	freeze()
	var healthy sync.WaitGroup
	for range 10 {
		sub := openPatterns(t, station.stub(t), "x.**")
		healthy.Go(func() { readAll(t, sub, 2*n) })
	}
	for range 3 {
		freeze()
	}
	stop := make(chan struct{})
	slowest := make(chan time.Duration, 1)
	go func() { slowest <- comeAndGo(t, station.stub(t), stop) }()
	frozenP99, frozenTotal := round(0)
	close(stop)
	if d := <-slowest; d > time.Second {
		t.Errorf("a subscription took %s to open", d)
	}
	if got := station.broker.Stats().Evictions; got != 5 {
		t.Errorf("%d evictions, want 5", got)
	}
	p99, total := round(n) // nobody is frozen any more
	healthy.Wait()
	// Bounds that only waiting for somebody would exceed, also on a busy machine.
	if frozenP99 > 2*p99+500*time.Millisecond || frozenTotal > 3*total+2*time.Second {
		t.Errorf("with frozen subscribers p99 %s, total %s; without %s, %s", frozenP99, frozenTotal, p99, total)
	}
	eventually(t, "only the healthy ones are left", func() bool { return station.broker.Stats().Subscriptions == 10 })
}

// comeAndGo opens and leaves subscriptions and returns how long the slowest took to open.
func comeAndGo(t testing.TB, stub tinybrokerv1.BrokerServiceClient, stop <-chan struct{}) (slowest time.Duration) {
	t.Helper()
	for {
		select {
		case <-stop:
			return slowest
		default:
		}
		asked := time.Now()
		sub, err := tryOpen(t.Context(), stub, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"x.**"}})
		if err != nil {
			t.Errorf("subscribe: %v", err)
			return slowest
		}
		slowest = max(slowest, time.Since(asked))
		sub.cancel()
	}
}

// readAll reads numbered messages 0 to n-1.
func readAll(t testing.TB, sub *stockStream, n uint64) {
	t.Helper()
	for next := uint64(0); next < n; {
		r, err := sub.Recv()
		if err != nil {
			t.Errorf("after %d messages: %v", next, err)
			return
		}
		for _, m := range r.GetMessages() {
			if got := numberOf(t, m.GetPayload()); got != next {
				t.Errorf("message %d came, want %d", got, next)
				return
			}
			next++
		}
	}
}
