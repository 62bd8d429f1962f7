package rpc

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// TestAStockMember receives, acknowledges and gives back; each frame holds messages of one attempt, numbered on.
func TestAStockMember(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	m := joinStock(t, stub, &tinybrokerv1.OpenSubscription{MaxInFlight: 20})
	publishCounted(t, stub, "a", 0, 10)
	wantPayloads(t, m.take(t, 10), numberedFrom(0, 10)...)
	m.ack(t, 2, 9)
	station.wantGroup(t, 8, 0, 2)
	m.nack(t, &tinybrokerv1.Nack{Ranges: span(1, 1), Action: release})
	m.nack(t, &tinybrokerv1.Nack{Ranges: span(10, 10), Action: retry, Delay: durationpb.New(0)})
	wantPayloads(t, m.take(t, 2), "0/1", "9/2")
	m.nack(t, &tinybrokerv1.Nack{Ranges: span(12, 12), Action: reject, Reason: "no"})
	m.ack(t, 11, 11)
	st := station.wantGroup(t, 9, 0, 0)
	if st.DeadLetters != 1 || st.Redelivered != 1 || st.Ineffective != 0 {
		t.Errorf("%+v", st)
	}

	publishCounted(t, stub, "a", 100, 20)
	next := uint64(13)
	m.take(t, 20)
	m.nack(t, &tinybrokerv1.Nack{Ranges: append(span(13, 14), span(17, 20)...), Delay: durationpb.New(0)})
	publishCounted(t, stub, "a", 200, 14)
	frames := map[int]uint32{}
	next += 20
	for range 6 {
		d := m.take(t, 1)[0]
		if d.sequence != next || d.attempt != 2 {
			t.Errorf("delivery %d, attempt %d; want %d, attempt 2", d.sequence, d.attempt, next)
		}
		next++
		frames[d.frame] = d.attempt
	}
	m.ack(t, 1, next-1)
	for _, d := range m.take(t, 14) {
		if d.sequence != next || d.attempt != 1 || frames[d.frame] == 2 {
			t.Errorf("delivery %d, attempt %d in frame %d; want %d, attempt 1 in another", d.sequence, d.attempt, d.frame, next)
		}
		next++
	}
}

// TestAckClock: only what was not acknowledged comes back, and when its own time is up.
func TestAckClock(t *testing.T) {
	for _, deadline := range []time.Duration{400 * time.Millisecond, 1500 * time.Millisecond} {
		t.Run(deadline.String(), func(t *testing.T) {
			t.Parallel()
			station := newStation(t, nil)
			stub := station.stub(t)
			m := joinStock(t, stub, &tinybrokerv1.OpenSubscription{AckDeadline: durationpb.New(deadline)})
			var third time.Time
			for i := range uint64(10) {
				publishCounted(t, stub, "a", int(i), 1)
				m.take(t, 1)
				if i == 2 {
					third = time.Now()
				} else {
					m.ack(t, i+1, i+1)
				}
				time.Sleep(20 * time.Millisecond)
			}
			d := m.take(t, 1)
			took := time.Since(third)
			wantPayloads(t, d, "2/2")
			if took < deadline-20*time.Millisecond || took > deadline*13/10+100*time.Millisecond {
				t.Errorf("it came back after %v", took)
			}
			m.ack(t, d[0].sequence, 0)
			m.wantSilence(t, deadline/2)
			station.wantGroup(t, 10, 0, 0)
		})
	}
}

// TestTheClockStartsWithTheDelivery: what waits in the broker, since its member reads slowly, is not taken for lost.
func TestTheClockStartsWithTheDelivery(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	s := open(t, station.stub(t, frozenOptions()...), &tinybrokerv1.OpenSubscription{
		ConsumerGroup: "g", TopicPatterns: []string{"a"}, AckDeadline: durationpb.New(time.Second),
	})
	const n = 40
	for i := range uint64(n) {
		publishOne(t, stub, "a", numbered(i, 64<<10))
	}
	for i := range uint64(n) { // takes twice the deadline
		time.Sleep(50 * time.Millisecond)
		r, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if len(r.GetMessages()) != 1 || r.GetAttempt() != 1 || numberOf(t, r.GetMessages()[0].GetPayload()) != i {
			t.Fatalf("frame %d holds %d messages of attempt %d", i, len(r.GetMessages()), r.GetAttempt())
		}
		if err := s.Send(&tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Ack{
			Ack: &tinybrokerv1.Ack{Ranges: span(r.GetFirstSequence(), 0)},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	if st := station.wantGroup(t, n, 0, 0); st.Expired != 0 {
		t.Errorf("%d deliveries were taken for lost", st.Expired)
	}
}

func TestExtendOverTheWire(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	const deadline = 300 * time.Millisecond
	m := joinStock(t, stub, &tinybrokerv1.OpenSubscription{AckDeadline: durationpb.New(deadline)})
	publishCounted(t, stub, "a", 0, 3)
	m.take(t, 3)
	start := time.Now()
	m.extend(t, 1, 1, time.Minute)
	m.extend(t, 2, 2, 2*deadline)
	wantPayloads(t, m.take(t, 1), "2/2")
	m.ack(t, 4, 4)
	wantPayloads(t, m.take(t, 1), "1/2")
	if took := time.Since(start); took < 2*deadline-20*time.Millisecond {
		t.Errorf("the second came back after %v", took)
	}
	m.ack(t, 1, 5)
	station.wantGroup(t, 3, 0, 0)
}

// TestLeaveOverTheWire: nothing more comes, acks count, and the half-close brings the rest back uncharged.
func TestLeaveOverTheWire(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	m := joinStock(t, stub, &tinybrokerv1.OpenSubscription{MaxInFlight: 5})
	publishCounted(t, stub, "a", 0, 8)
	m.take(t, 5)
	m.leave(t)
	m.ack(t, 1, 3)
	station.wantGroup(t, 3, 3, 2)
	m.wantSilence(t, 50*time.Millisecond)
	other := joinStock(t, stub, &tinybrokerv1.OpenSubscription{})
	wantPayloads(t, other.take(t, 3), "5/1", "6/1", "7/1")
	if err := m.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	closed, err := m.end(t)
	if !errors.Is(err, io.EOF) || closed.GetReason() != tinybrokerv1.CloseReason_CLOSE_REASON_LEFT || closed.GetLost() != 0 || closed.GetLastSequence() != 5 {
		t.Errorf("closed %v, then %v", closed, err)
	}
	if reason := m.stream.Trailer().Get(closeReasonTrailer); fmt.Sprint(reason) != "[CLOSE_REASON_LEFT]" {
		t.Errorf("trailer %v", reason)
	}
	wantPayloads(t, other.take(t, 2), "3/1", "4/1")
	other.ack(t, 1, 5)
	if st := station.wantGroup(t, 8, 0, 0); st.Redelivered != 0 || st.Members != 1 {
		t.Errorf("%+v", st)
	}
}

// TestLeaveWithNothingInHand ends at once; with acks outstanding it ends with the last of them.
func TestLeaveWithNothingInHand(t *testing.T) {
	stub := newStation(t, nil).stub(t)
	idle := joinStock(t, stub, &tinybrokerv1.OpenSubscription{})
	idle.leave(t)
	if closed, err := idle.end(t); !errors.Is(err, io.EOF) || closed.GetReason() != tinybrokerv1.CloseReason_CLOSE_REASON_LEFT {
		t.Errorf("closed %v, then %v", closed, err)
	}
	busy := joinStock(t, stub, &tinybrokerv1.OpenSubscription{})
	publishCounted(t, stub, "a", 0, 2)
	busy.take(t, 2)
	busy.leave(t)
	busy.ack(t, 1, 2)
	if closed, err := busy.end(t); !errors.Is(err, io.EOF) || closed.GetReason() != tinybrokerv1.CloseReason_CLOSE_REASON_LEFT {
		t.Errorf("closed %v, then %v", closed, err)
	}
}

// TestHalfClosedMember: a client that has nothing more to say stays a member, with acks and without.
func TestHalfClosedMember(t *testing.T) {
	for _, mode := range []tinybrokerv1.AckMode{tinybrokerv1.AckMode_ACK_MODE_EXPLICIT, tinybrokerv1.AckMode_ACK_MODE_NONE} {
		t.Run(mode.String(), func(t *testing.T) {
			station := newStation(t, nil)
			stub := station.stub(t)
			m := joinStock(t, stub, &tinybrokerv1.OpenSubscription{AckMode: mode, MaxInFlight: 3, AckDeadline: durationpb.New(200 * time.Millisecond)})
			if err := m.stream.CloseSend(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
			publishCounted(t, stub, "a", 0, 5)
			if mode == tinybrokerv1.AckMode_ACK_MODE_NONE {
				wantPayloads(t, m.take(t, 5), numberedFrom(0, 5)...)
				station.wantGroup(t, 5, 0, 0)
				return
			}
			// It can never acknowledge, and gets what it has again.
			wantPayloads(t, m.take(t, 6), "0/1", "1/1", "2/1", "0/2", "1/2", "2/2")
		})
	}
}

// TestWhereReturnedMessagesGo: to their old places.
func TestWhereReturnedMessagesGo(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	gone := joinStock(t, stub, &tinybrokerv1.OpenSubscription{MaxInFlight: 3})
	publishCounted(t, stub, "a", 1, 10)
	gone.take(t, 3)
	gone.cancel()
	station.wantGroup(t, 0, 10, 0)
	m := joinStock(t, stub, &tinybrokerv1.OpenSubscription{MaxInFlight: 3})
	var all []stockDelivery
	for range 10 {
		d := m.take(t, 1)[0]
		m.ack(t, d.sequence, 0)
		all = append(all, d)
	}
	wantPayloads(t, all, "1/2", "2/2", "3/2", "4/1", "5/1", "6/1", "7/1", "8/1", "9/1", "10/1")

	publishCounted(t, stub, "a", 1, 5)
	all = nil
	for len(all) < 6 {
		d := m.take(t, 1)[0]
		if string(d.GetPayload()) == "2" && d.attempt == 1 {
			m.nack(t, &tinybrokerv1.Nack{Ranges: span(d.sequence, 0), Delay: durationpb.New(100 * time.Millisecond)})
		} else {
			m.ack(t, d.sequence, 0)
		}
		all = append(all, d)
	}
	wantPayloads(t, all, "1/1", "2/1", "3/1", "4/1", "5/1", "2/2")
	station.wantGroup(t, 15, 0, 0)
}

// TestPoison ends after its attempts, each after its delay, and holds up nobody.
func TestPoison(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	letters := openPatterns(t, stub, "$tb.dlq.*")
	m := joinStock(t, stub, &tinybrokerv1.OpenSubscription{MaxInFlight: 1})
	publishCounted(t, stub, "a", 1, 5)
	const delay = 100 * time.Millisecond
	var last, others time.Time
	for attempt, good := uint32(1), 0; attempt <= 5; {
		d := m.take(t, 1)[0]
		if string(d.GetPayload()) != "1" {
			m.ack(t, d.sequence, 0)
			if good++; good == 4 {
				others = time.Now()
			}
			continue
		}
		if d.attempt != attempt || attempt > 1 && time.Since(last) < delay {
			t.Errorf("attempt %d came %v after the last", d.attempt, time.Since(last))
		}
		attempt++
		last = time.Now()
		m.nack(t, &tinybrokerv1.Nack{Ranges: span(d.sequence, 0), Delay: durationpb.New(delay)})
	}
	if others.IsZero() {
		t.Error("the others are held up")
	}
	letter := letters.take(t, 1)[0]
	if string(letter.GetPayload()) != "1" || letter.GetHeaders()[core.HeaderAttempts] != "5" || letter.GetHeaders()[core.HeaderTopic] != "a" {
		t.Errorf("dead letter %v", letter)
	}
	if st := station.wantGroup(t, 4, 0, 0); st.DeadLetters != 1 {
		t.Errorf("%d dead letters", st.DeadLetters)
	}
	m.wantSilence(t, 2*delay)
}

// TestCountersReturnToZero after a death, doubled acks, and acks of a stream that is no more.
func TestCountersReturnToZero(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	first := joinStock(t, stub, &tinybrokerv1.OpenSubscription{SubscriptionId: "m1"})
	publishCounted(t, stub, "a", 0, 5)
	first.take(t, 5)
	second := joinStock(t, stub, &tinybrokerv1.OpenSubscription{})
	first.cancel()
	wantPayloads(t, second.take(t, 5), "0/2", "1/2", "2/2", "3/2", "4/2")
	for range 2 {
		second.ack(t, 1, 5)
	}
	second.nack(t, &tinybrokerv1.Nack{Ranges: span(3, 3)})
	again := joinStock(t, stub, &tinybrokerv1.OpenSubscription{SubscriptionId: "m1"})
	again.ack(t, 1, 5)
	second.leave(t)
	second.end(t)
	eventually(t, "all was heard", func() bool { return groupBooks(t, station.broker, "g").Ineffective == 3 })
	if st := station.wantGroup(t, 5, 0, 0); st.Redelivered != 5 || st.Members != 1 {
		t.Errorf("%+v", st)
	}
}

// TestAStalledMemberStallsNobody: one that reads and never acknowledges keeps what it may have in flight, and no more.
func TestAStalledMemberStallsNobody(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	stalled := joinStock(t, stub, &tinybrokerv1.OpenSubscription{MaxInFlight: 10})
	others := []*stockMember{
		joinStock(t, station.stub(t), &tinybrokerv1.OpenSubscription{MaxInFlight: 10}),
		joinStock(t, station.stub(t), &tinybrokerv1.OpenSubscription{MaxInFlight: 10}),
	}
	counts := make([]int, 2)
	stop := make(chan struct{})
	acked := make(chan struct{}, 2)
	for i, m := range others {
		go func() {
			defer func() { acked <- struct{}{} }()
			for {
				select {
				case d := <-m.deliveries:
					counts[i]++
					_ = m.stream.Send(&tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Ack{
						Ack: &tinybrokerv1.Ack{Ranges: span(d.sequence, 0)},
					}})
				case <-stop:
					return
				}
			}
		}()
	}
	publishCounted(t, stub, "a", 0, 1000)
	eventually(t, "990 are acknowledged", func() bool { return groupBooks(t, station.broker, "g").Acked >= 990 })
	close(stop)
	<-acked
	<-acked
	if n := len(stalled.deliveries); n > 10 {
		t.Errorf("the stalled member has %d", n)
	}
	if rest := counts[0] + counts[1]; counts[0] < rest*3/10 || counts[1] < rest*3/10 {
		t.Errorf("the others have %v", counts)
	}
}
