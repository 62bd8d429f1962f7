package rpc

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

type ranges = []core.SequenceRange

func TestAcksAreJoined(t *testing.T) {
	for _, test := range []struct {
		name string
		acks []uint64
		want ranges
	}{
		{"one", []uint64{7}, ranges{{First: 7, Last: 7}}},
		{"in order", []uint64{1, 2, 3, 4}, ranges{{First: 1, Last: 4}}},
		{"a gap", []uint64{1, 2, 4, 5}, ranges{{First: 1, Last: 2}, {First: 4, Last: 5}}},
		{"out of order", []uint64{3, 1, 2, 9, 4, 8}, ranges{{First: 1, Last: 4}, {First: 8, Last: 9}}},
		{"backwards", []uint64{5, 4, 3, 2, 1}, ranges{{First: 1, Last: 5}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var r replies
			for _, n := range test.acks {
				r.ack(n)
			}
			if got := joined(r.acks); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// TestAcksAreJoinedWhateverTheOrder: the ranges name exactly what was acknowledged, and no two of them are neighbours.
func TestAcksAreJoinedWhateverTheOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var r replies
		want := map[uint64]bool{}
		for _, i := range rng.Perm(60) {
			if rng.IntN(4) > 0 {
				r.ack(uint64(i) + 1)
				want[uint64(i)+1] = true
			}
		}
		got := 0
		last := uint64(0)
		for _, rg := range joined(r.acks) {
			if last > 0 && rg.First <= last+1 {
				t.Fatalf("range %v follows one that ends with %d", rg, last)
			}
			for n := rg.First; n <= rg.Last; n++ {
				if !want[n] {
					t.Fatalf("%d was not acknowledged", n)
				}
				got++
			}
			last = rg.Last
		}
		if got != len(want) {
			t.Fatalf("%d acknowledged, want %d", got, len(want))
		}
	}
}

func TestNacksOfOneKindAreJoined(t *testing.T) {
	second, alsoSecond := time.Second, time.Second
	var r replies
	r.nack(1, core.Nack{Delay: &second})
	r.nack(2, core.Nack{Delay: &alsoSecond})
	r.nack(4, core.Nack{Delay: &second})
	r.nack(5, core.Nack{})
	r.nack(6, core.Nack{Action: core.NackReject, Reason: "a"})
	r.nack(7, core.Nack{Action: core.NackReject, Reason: "b"})
	if len(r.nacks) != 4 {
		t.Fatalf("%d requests, want 4: %v", len(r.nacks), r.nacks)
	}
	if want := (ranges{{First: 1, Last: 2}, {First: 4, Last: 4}}); !slices.Equal(r.nacks[0].ranges, want) {
		t.Errorf("the first names %v, want %v", r.nacks[0].ranges, want)
	}
}

func TestAllBut(t *testing.T) {
	for _, test := range []struct {
		numbers []uint64
		want    ranges
	}{
		{nil, ranges{{First: 1, Last: math.MaxUint64}}},
		{[]uint64{1}, ranges{{First: 2, Last: math.MaxUint64}}},
		{[]uint64{5, 2, 3}, ranges{{First: 1, Last: 1}, {First: 4, Last: 4}, {First: 6, Last: math.MaxUint64}}},
	} {
		if got := allBut(test.numbers); !slices.Equal(got, test.want) {
			t.Errorf("all but %v: %v, want %v", test.numbers, got, test.want)
		}
	}
}

// rangesFromProto is the reverse of rangesToProto.
func rangesFromProto(in []*tinybrokerv1.SequenceRange) (out ranges) {
	for _, r := range in {
		last := r.GetLast()
		if last == 0 {
			last = r.GetFirst()
		}
		out = append(out, core.SequenceRange{First: r.GetFirst(), Last: last})
	}
	return out
}

// TestAppendAck: what is encoded by hand is what the generated types write.
func TestAppendAck(t *testing.T) {
	for _, rs := range []ranges{
		{{First: 1, Last: 1}},
		{{First: 1, Last: 200}, {First: 300, Last: 300}, {First: 1 << 40, Last: math.MaxUint64}},
		slices.Repeat(ranges{{First: 12345, Last: 12399}}, 500),
	} {
		var got tinybrokerv1.SubscribeRequest
		if err := proto.Unmarshal(appendAck(nil, rs), &got); err != nil {
			t.Fatal(err)
		}
		if read := rangesFromProto(got.GetAck().GetRanges()); !slices.Equal(read, rs) {
			t.Errorf("read as %v, want %v", read, rs)
		}
		if n := len(got.ProtoReflect().GetUnknown()); n > 0 {
			t.Errorf("%d bytes of unknown fields", n)
		}
	}
}

func TestNackRequest(t *testing.T) {
	for _, test := range []struct {
		name   string
		nack   core.Nack
		action tinybrokerv1.NackAction
		delay  *time.Duration
		reason string
	}{
		{name: "retry", nack: core.Nack{}, action: tinybrokerv1.NackAction_NACK_ACTION_RETRY},
		{name: "release", nack: core.Nack{Action: core.NackRelease}, action: tinybrokerv1.NackAction_NACK_ACTION_RELEASE},
		{
			name: "reject, with a reason that is no text", nack: core.Nack{Action: core.NackReject, Reason: "bad \xff byte"},
			action: tinybrokerv1.NackAction_NACK_ACTION_REJECT, reason: "bad \uFFFD byte",
		},
		{name: "no delay", nack: core.Nack{Delay: new(time.Duration(0))}, action: tinybrokerv1.NackAction_NACK_ACTION_RETRY, delay: new(time.Duration(0))},
		{name: "before now", nack: core.Nack{Delay: new(-time.Second)}, action: tinybrokerv1.NackAction_NACK_ACTION_RETRY, delay: new(time.Duration(0))},
		{name: "in a year", nack: core.Nack{Delay: new(365 * 24 * time.Hour)}, action: tinybrokerv1.NackAction_NACK_ACTION_RETRY, delay: new(365 * 24 * time.Hour)},
	} {
		t.Run(test.name, func(t *testing.T) {
			encoded, err := proto.Marshal(nackRequest(nacked{test.nack, ranges{{First: 3, Last: 4}}}))
			if err != nil {
				t.Fatal(err)
			}
			var request tinybrokerv1.SubscribeRequest
			if err := proto.Unmarshal(encoded, &request); err != nil {
				t.Fatal(err)
			}
			nack := request.GetNack()
			if nack.GetAction() != test.action || nack.GetReason() != test.reason {
				t.Errorf("got %v", nack)
			}
			if (nack.GetDelay() == nil) != (test.delay == nil) || test.delay != nil && nack.GetDelay().AsDuration() != *test.delay {
				t.Errorf("delay %v, want %v", nack.GetDelay(), test.delay)
			}
			heard, err := nackFromProto(nack)
			if err != nil || test.delay != nil && *heard.Delay != min(*test.delay, 24*time.Hour) {
				t.Errorf("the broker hears %+v: %v", heard, err)
			}
		})
	}
}

func TestLease(t *testing.T) {
	for _, test := range []struct {
		name            string
		deadline, limit time.Duration
		period          time.Duration
		ticks           int
	}{
		{"no deadline", 0, 0, 0, 0},
		{"not extended", time.Minute, -1, 0, 0},
		{"an hour", 30 * time.Second, 0, 10 * time.Second, 360},
		{"a limit below the deadline", 30 * time.Second, time.Second, 10 * time.Second, 3},
		{"a limit between two ticks", 3 * time.Second, 10500 * time.Millisecond, time.Second, 11},
		{"a deadline of nothing", 1, time.Second, time.Millisecond, 1000},
	} {
		t.Run(test.name, func(t *testing.T) {
			if l := newLease(test.deadline, test.limit); l.period != test.period || l.ticks != test.ticks {
				t.Errorf("got %+v, want a tick every %s, %d times", l, test.period, test.ticks)
			}
		})
	}
}
