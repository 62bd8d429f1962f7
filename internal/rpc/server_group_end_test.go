package rpc

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// TestAKilledMembersWorkMovesAtOnce, long before its ack deadline; what was queued for it counts no attempt.
func TestAKilledMembersWorkMovesAtOnce(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	client, wire := station.cuttableStub(t)
	first := joinStock(t, client, &tinybrokerv1.OpenSubscription{
		MaxInFlight: 40, AckDeadline: durationpb.New(time.Minute),
	})
	publishCounted(t, stub, "a", 0, 100)
	first.take(t, 40)
	second := joinStock(t, stub, &tinybrokerv1.OpenSubscription{MaxInFlight: 200})
	wantPayloads(t, second.take(t, 60), numberedFrom(40, 60)...)
	wire.cut()
	cut := time.Now()
	var want []string
	for i := range 40 {
		want = append(want, fmt.Sprintf("%d/2", i))
	}
	wantPayloads(t, second.take(t, 40), want...)
	if took := time.Since(cut); took > time.Second {
		t.Errorf("it took %v", took)
	}
	second.ack(t, 1, 100)
	if st := station.wantGroup(t, 100, 0, 0); st.Redelivered != 40 || st.Members != 1 {
		t.Errorf("%+v", st)
	}
}

// TestAFrozenMemberIsEvicted and its messages go to the others; none is dropped, and the others are not held up meanwhile.
func TestAFrozenMemberIsEvicted(t *testing.T) {
	station := newStation(t, func(o *core.Options, _ *ServerOptions) {
		o.SendTimeout, o.AckDeadline = 500*time.Millisecond, time.Second
	})
	stub := station.stub(t)
	events := openPatterns(t, stub, "$tb.event.subscription.evicted")
	frozen := open(t, station.stub(t, frozenOptions()...), &tinybrokerv1.OpenSubscription{
		SubscriptionId: "frozen", ClientName: "sleeper", ConsumerGroup: "g", TopicPatterns: []string{"a"},
	})
	m := joinStock(t, station.stub(t), &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"a"}})
	const n = 1000
	start := time.Now()
	seen := make([]bool, n)
	published := make(chan struct{})
	go func() {
		defer close(published)
		for i := range uint64(n) {
			publishOne(t, stub, "a", numbered(i, 16<<10))
		}
	}()
	if _, err := frozen.Recv(); err != nil { // one frame, and never again
		t.Fatal(err)
	}
	for rest := n; rest > 0; {
		d := m.take(t, 1)[0]
		m.ack(t, d.sequence, 0)
		if i := numberOf(t, d.GetPayload()); !seen[i] {
			seen[i] = true
			rest--
		}
	}
	<-published
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	if st := station.wantGroup(t, n, 0, 0); st.Dropped != 0 || st.DeadLetters != 0 || st.Members != 1 {
		t.Errorf("%+v", st)
	}
	if event := events.take(t, 1)[0].GetPayload(); !contains(event, `"reason":"stalled"`) || !contains(event, `"client":"sleeper"`) || !contains(event, `"group":"g"`) {
		t.Errorf("event %s", event)
	}
	// Reading on, it is told.
	_, _, err := readOn(frozen)
	if !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v", err)
	}
	if reason := frozen.Trailer().Get(closeReasonTrailer); !slices.Equal(reason, []string{"CLOSE_REASON_STALLED"}) {
		t.Errorf("trailer %v", reason)
	}
	again := open(t, stub, &tinybrokerv1.OpenSubscription{SubscriptionId: "frozen", ConsumerGroup: "g", TopicPatterns: []string{"a"}})
	if previous := again.opened.GetPrevious(); previous.GetReason() != tinybrokerv1.CloseReason_CLOSE_REASON_STALLED || previous.GetLost() != 0 {
		t.Errorf("previous %v", previous)
	}
}

// readOn reads a stream to its end.
func readOn(sub *stockStream) (frames int, closed *tinybrokerv1.Closed, err error) {
	for {
		r, err := sub.Recv()
		if err != nil {
			return frames, closed, err
		}
		frames++
		closed = r.GetClosed()
	}
}

// TestABlackHoledMember: nothing passes in either direction and nobody closes anything. Its stream takes nothing, or its
// transport does not answer, whichever shows first.
func TestABlackHoledMember(t *testing.T) {
	for _, test := range []struct {
		name string
		size int // of a message
		wait time.Duration
	}{
		{"large messages", 256 << 10, 3 * time.Second}, // more than the sockets hold: stalled
		{"small messages", 10, 4 * time.Second},        // all written: the pings are not answered
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			station := newStation(t, func(o *core.Options, so *ServerOptions) {
				o.SendTimeout = 500 * time.Millisecond
				so.times.ping, so.times.pongTimeout = time.Second, 500*time.Millisecond
			})
			stub := station.stub(t)
			client, wire := station.cuttableStub(t)
			held := joinStock(t, client, &tinybrokerv1.OpenSubscription{MaxInFlight: 64, AckDeadline: durationpb.New(time.Hour)})
			publishOne(t, stub, "a", numbered(0, test.size))
			held.take(t, 1)
			wire.stop()
			for i := range uint64(63) {
				publishOne(t, stub, "a", numbered(i+1, test.size))
			}
			start := time.Now()
			m := joinStock(t, station.stub(t), &tinybrokerv1.OpenSubscription{MaxInFlight: 100})
			seen := map[uint64]bool{}
			for len(seen) < 64 {
				d := m.take(t, 1)[0]
				m.ack(t, d.sequence, 0)
				seen[numberOf(t, d.GetPayload())] = true
			}
			if took := time.Since(start); took > test.wait {
				t.Errorf("it took %v", took)
			}
			if st := station.wantGroup(t, 64, 0, 0); st.Members != 1 || st.Expired != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestMemberTakeover: the newcomer gets what the first had, and that one is told not to come back.
func TestMemberTakeover(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	first := joinStock(t, stub, &tinybrokerv1.OpenSubscription{SubscriptionId: "w"})
	publishCounted(t, stub, "a", 0, 3)
	first.take(t, 3)
	first.ack(t, 1, 1)
	station.wantGroup(t, 1, 0, 2)
	second := joinStock(t, station.stub(t), &tinybrokerv1.OpenSubscription{SubscriptionId: "w"})
	closed, err := first.end(t)
	if !errors.Is(err, io.EOF) || closed.GetReason() != tinybrokerv1.CloseReason_CLOSE_REASON_REPLACED {
		t.Errorf("closed %v, then %v", closed, err)
	}
	wantPayloads(t, second.take(t, 2), "1/2", "2/2")
	// From a group to a broadcast subscription and to another group: the id is one.
	broadcast := open(t, stub, &tinybrokerv1.OpenSubscription{SubscriptionId: "w", TopicPatterns: []string{"a"}})
	if closed, _ := second.end(t); closed.GetReason() != tinybrokerv1.CloseReason_CLOSE_REASON_REPLACED {
		t.Errorf("closed %v", closed)
	}
	joinStock(t, stub, &tinybrokerv1.OpenSubscription{SubscriptionId: "w", ConsumerGroup: "other"})
	if r, err := broadcast.Recv(); err != nil || r.GetClosed().GetReason() != tinybrokerv1.CloseReason_CLOSE_REASON_REPLACED {
		t.Errorf("%v, %v", r, err)
	}
	station.wantGroup(t, 1, 2, 0)
}

// TestTheLingerOverTheWire: without members the group queues on, up to its bound, and goes when the time is up.
func TestTheLingerOverTheWire(t *testing.T) {
	station := newStation(t, func(o *core.Options, _ *ServerOptions) {
		o.GroupLinger, o.GroupCapacity = 400*time.Millisecond, 20
	})
	stub := station.stub(t)
	if n := publishOne(t, stub, "a", nil); n != 0 {
		t.Errorf("%d receivers before the first member", n)
	}
	events := openPatterns(t, stub, "$tb.event.group.*")
	first := joinStock(t, stub, &tinybrokerv1.OpenSubscription{})
	publishCounted(t, stub, "a", 0, 10)
	first.take(t, 10)
	first.cancel()
	station.wantGroup(t, 0, 10, 0)
	publishCounted(t, stub, "a", 10, 5)
	second := joinStock(t, stub, &tinybrokerv1.OpenSubscription{})
	var want []string
	for i := range 10 {
		want = append(want, fmt.Sprintf("%d/2", i))
	}
	wantPayloads(t, second.take(t, 15), append(want, numberedFrom(10, 5)...)...)
	second.ack(t, 1, 15)
	station.wantGroup(t, 15, 0, 0)
	second.cancel()
	eventually(t, "it has left", func() bool { return groupBooks(t, station.broker, "g").Members == 0 })
	publishCounted(t, stub, "a", 0, 20)
	_, err := stub.Publish(t.Context(), &tinybrokerv1.PublishRequest{Topic: "a"})
	checkStatus(t, err, codes.ResourceExhausted, "GROUP_FULL")
	eventually(t, "the group is gone", func() bool { return len(station.broker.Groups()) == 0 })
	if n := publishOne(t, stub, "a", nil); n != 0 {
		t.Errorf("%d receivers after its end", n)
	}
	told := events.take(t, 2)
	if created, expired := told[0], told[1]; created.GetTopic() != "$tb.event.group.created" || expired.GetTopic() != "$tb.event.group.expired" ||
		!contains(expired.GetPayload(), `"dropped":20`) {
		t.Errorf("told %v", told)
	}
	eventually(t, "all memory is free", func() bool { return station.broker.Stats().Memory == 0 })
}

// TestEveryWayToGo: however members end, what they had goes on, and every gauge returns to where it was.
func TestEveryWayToGo(t *testing.T) {
	station := newStation(t, func(o *core.Options, so *ServerOptions) {
		o.SendTimeout = 300 * time.Millisecond
		so.times.ping, so.times.pongTimeout = time.Second, 500*time.Millisecond
		so.times.linger = 300 * time.Millisecond
	})
	stub := station.stub(t)
	keeper := joinStock(t, station.stub(t), &tinybrokerv1.OpenSubscription{MaxInFlight: 500, MaxAttempts: 1000})
	stop := make(chan struct{})
	sampled := make(chan struct{})
	go func() { // every sample balances; groupBooks sees to that
		defer close(sampled)
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				groupBooks(t, station.broker, "g")
			}
		}
	}()
	for round := range 5 {
		join := func(id string) (*stockMember, *cuttable) {
			client, wire := station.cuttableStub(t)
			return joinStock(t, client, &tinybrokerv1.OpenSubscription{SubscriptionId: id, MaxInFlight: 4}), wire
		}
		canceled, _ := join("")
		killed, killedWire := join("")
		_, stoppedWire := join("")
		left, _ := join("")
		replaced, _ := join("id")
		odd, _ := join("")
		publishCounted(t, stub, "a", round*100, 60)
		canceled.cancel()
		killedWire.cut()
		stoppedWire.stop()
		left.leave(t)
		_ = left.stream.CloseSend()
		joinStock(t, stub, &tinybrokerv1.OpenSubscription{SubscriptionId: "id"}).cancel()
		odd.say(t, &tinybrokerv1.SubscribeRequest{})
		if _, err := tryJoinStock(t, stub, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"["}}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a bad pattern: %v", err)
		}
		for _, m := range []*stockMember{canceled, killed, left, replaced, odd} {
			m.end(t)
		}
	}
	acked := uint64(0)
	for acked < 300 {
		d := keeper.take(t, 1)[0]
		keeper.ack(t, d.sequence, 0)
		acked++
	}
	station.wantGroup(t, 300, 0, 0)
	eventually(t, "only the keeper is left", func() bool {
		st := station.broker.Stats()
		return st.Subscriptions == 1 && st.QueuedMessages == 0 && st.Memory == 0 && groupBooks(t, station.broker, "g").Members == 1
	})
	close(stop)
	<-sampled
}
