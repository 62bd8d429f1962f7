package rpc

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// fullGroup is a station whose group g, for topic a, has room for 4 messages beside the one that its member has in hand.
func fullGroup(t *testing.T) (*station, tinybrokerv1.BrokerServiceClient, *stockMember) {
	t.Helper()
	station := newStation(t, nil)
	stub := station.stub(t)
	return station, stub, joinStock(t, stub, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"a"}, MaxInFlight: 1, Capacity: 4})
}

// fillGroup publishes 5 messages to a full group.
func fillGroup(t *testing.T, stub tinybrokerv1.BrokerServiceClient, m *stockMember) {
	t.Helper()
	publishCounted(t, stub, "a", 0, 1)
	m.take(t, 1)
	publishCounted(t, stub, "a", 1, 4)
}

// TestAFullGroupRefusesAtAll: nobody else gets the message either, and the retry reaches each once.
func TestAFullGroupRefusesAtAll(t *testing.T) {
	station, stub, m := fullGroup(t)
	roomy := joinStock(t, stub, &tinybrokerv1.OpenSubscription{ConsumerGroup: "roomy"})
	broadcast := openPatterns(t, stub, "**")
	fillGroup(t, stub, m)
	_, err := stub.Publish(t.Context(), &tinybrokerv1.PublishRequest{Topic: "a", Payload: []byte("5")})
	checkStatus(t, err, codes.ResourceExhausted, "GROUP_FULL")
	if st := groupBooks(t, station.broker, "roomy"); st.Accepted != 5 {
		t.Errorf("the other group has %d", st.Accepted)
	}
	before := station.broker.Stats()
	if before.Published != 5 || before.Refused != 1 {
		t.Errorf("%d published, %d refused", before.Published, before.Refused)
	}
	m.ack(t, 1, 1)
	m.take(t, 1)
	if n := publishOne(t, stub, "a", []byte("5")); n != 3 {
		t.Errorf("%d receivers, want 3", n)
	}
	m.ack(t, 2, 2)
	wantPayloads(t, roomy.take(t, 6), numberedFrom(0, 6)...)
	for i, message := range broadcast.take(t, 6) {
		if string(message.GetPayload()) != fmt.Sprint(i) {
			t.Errorf("message %d of the broadcast is %s", i, message.GetPayload())
		}
	}
	for n := uint64(3); n <= 6; n++ {
		wantPayloads(t, m.take(t, 1), fmt.Sprintf("%d/1", n-1))
		m.ack(t, n, n)
	}
	station.wantGroup(t, 6, 0, 0)
}

// TestAFullGroupOnAStream: what is refused is told by its position, and what is on other topics goes on.
func TestAFullGroupOnAStream(t *testing.T) {
	station, stub, _ := fullGroup(t)
	broadcast := openPatterns(t, stub, "**")
	stream := openPublisher(t, stub)
	var frame []*tinybrokerv1.Message
	for i := range 12 {
		topic := "a"
		if i == 8 {
			topic = "b"
		}
		frame = append(frame, &tinybrokerv1.Message{Topic: topic, Payload: []byte(fmt.Sprint(i + 1))})
	}
	sendFrame(t, stream, frame...)
	r := receipt(t, stream)
	refused := map[uint64]bool{}
	for _, f := range r.GetFailures() {
		if codes.Code(f.GetCode()) != codes.ResourceExhausted || f.GetReason() != "GROUP_FULL" || f.GetText() == "" {
			t.Errorf("failure %v", f)
		}
		for p := f.GetPosition(); p < f.GetPosition()+max(1, f.GetCount()); p++ {
			refused[p] = true
		}
	}
	st := groupBooks(t, station.broker, "g")
	if r.GetAcceptedThrough() != 12 || refused[9] || len(refused)+int(st.Accepted) != 11 || len(refused) < 6 || len(r.GetFailures()) > 2 {
		t.Errorf("receipt %v, %d accepted by the group", r, st.Accepted)
	}
	got := broadcast.take(t, 12-len(refused))
	for i := range uint64(12) {
		if refused[i+1] {
			continue
		}
		if string(got[0].GetPayload()) != fmt.Sprint(i+1) {
			t.Errorf("the broadcast got %s, want %d", got[0].GetPayload(), i+1)
		}
		got = got[1:]
	}
	if st := station.broker.Stats(); st.Refused != uint64(len(refused)) {
		t.Errorf("%d refused, want %d", st.Refused, len(refused))
	}
}

// TestMaxWaitForAGroup: the publisher is held back for so long, and no longer than until there is room.
func TestMaxWaitForAGroup(t *testing.T) {
	_, stub, m := fullGroup(t)
	fillGroup(t, stub, m)
	publish := func(d time.Duration) (time.Duration, error) {
		start := time.Now()
		_, err := stub.Publish(t.Context(), &tinybrokerv1.PublishRequest{Topic: "a", MaxWait: durationpb.New(d)})
		return time.Since(start), err
	}
	took, err := publish(300 * time.Millisecond)
	checkStatus(t, err, codes.ResourceExhausted, "GROUP_FULL")
	if took < 290*time.Millisecond || took > 2*time.Second {
		t.Errorf("refused after %v", took)
	}
	acked := make(chan struct{})
	go func() {
		defer close(acked)
		time.Sleep(100 * time.Millisecond)
		for n := uint64(1); n <= 3; n++ {
			m.ack(t, n, n)
			<-m.deliveries
		}
	}()
	if took, err := publish(20 * time.Second); err != nil || took < 50*time.Millisecond || took > 5*time.Second {
		t.Errorf("%v after %v", err, took)
	}
	<-acked
}

// TestGroupOverflowPolicies that drop do not refuse, and the books tell.
func TestGroupOverflowPolicies(t *testing.T) {
	for _, test := range []struct {
		policy tinybrokerv1.OverflowPolicy
		want   []string // behind the first, which is in flight
	}{
		{tinybrokerv1.OverflowPolicy_OVERFLOW_POLICY_DROP_OLDEST, []string{"6/1", "7/1", "8/1", "9/1"}},
		{tinybrokerv1.OverflowPolicy_OVERFLOW_POLICY_DROP_NEWEST, []string{"1/1", "2/1", "3/1", "4/1"}},
	} {
		t.Run(test.policy.String(), func(t *testing.T) {
			station := newStation(t, nil)
			stub := station.stub(t)
			m := joinStock(t, stub, &tinybrokerv1.OpenSubscription{MaxInFlight: 1, Capacity: 4, Overflow: test.policy})
			publishCounted(t, stub, "a", 0, 1)
			m.take(t, 1)
			publishCounted(t, stub, "a", 1, 9)
			var got []stockDelivery
			for n := uint64(1); n <= 4; n++ {
				m.ack(t, n, n)
				got = append(got, m.take(t, 1)...)
			}
			wantPayloads(t, got, test.want...)
			m.ack(t, 5, 5)
			if st := station.wantGroup(t, 5, 0, 0); st.Dropped != 5 {
				t.Errorf("%d dropped", st.Dropped)
			}
		})
	}
}

// TestABacklogIsBoundedByMemory as well: a refusal for that is another one.
func TestABacklogIsBoundedByMemory(t *testing.T) {
	station := newStation(t, func(o *core.Options, _ *ServerOptions) { o.MaxMemory = 2 << 20 })
	stub := station.stub(t)
	joinStock(t, stub, &tinybrokerv1.OpenSubscription{MaxInFlight: 1})
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		_, err = stub.Publish(t.Context(), &tinybrokerv1.PublishRequest{Topic: "a", Payload: make([]byte, 100<<10)})
	}
	checkStatus(t, err, codes.ResourceExhausted, "BROKER_MEMORY")
	if n < 15 || n > 21 || status.Code(err) == codes.OK {
		t.Errorf("refused at message %d", n)
	}
	if st := groupBooks(t, station.broker, "g"); st.Accepted != uint64(n-1) {
		t.Errorf("%d accepted of %d", st.Accepted, n)
	}
}

// TestWhatWaitsCostsLittle: beside its payload a waiting message takes less than 1 KiB, no goroutine, and nothing once it is done.
func TestWhatWaitsCostsLittle(t *testing.T) {
	const n, size = 30_000, 100
	station := newStation(t, func(o *core.Options, _ *ServerOptions) { o.GroupCapacity = n })
	stub := station.stub(t)
	none := joinStock(t, stub, &tinybrokerv1.OpenSubscription{AckDeadline: durationpb.New(10 * time.Minute)})
	none.cancel()
	<-none.ended
	p := newPublisher(t, station.newClient(t), PublisherOptions{})
	before, goroutines := heapInUse(), runtime.NumGoroutine()
	ctx := within(t, 20*time.Second)
	for i := range uint64(n) {
		if _, err := p.Publish(ctx, &core.Message{Topic: "a", Key: fmt.Sprint(i % 3000), Payload: numbered(i, size)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	station.wantGroup(t, 0, n, 0)
	if each := (heapInUse() - before) / n; each > 1024+size {
		t.Errorf("a waiting message takes %d bytes", each)
	}
	eventually(t, "there are no more goroutines than before", func() bool { return runtime.NumGoroutine() <= goroutines })
	leave, end := context.WithCancel(t.Context())
	var left sync.WaitGroup
	reader := station.newClient(t)
	left.Go(func() {
		_ = reader.Subscribe(leave, SubscribeOptions{Group: "g", Patterns: []string{"**"}, MaxInFlight: 1000}, func(*Delivery) error { return nil })
	})
	station.wantGroup(t, n, 0, 0)
	end()
	left.Wait()
	closePublisher(t, p)
	if after := heapInUse(); after > before+8<<20 {
		t.Errorf("%d bytes in use at the end, %d before", after, before)
	}
}

// heapInUse is what is reachable.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
