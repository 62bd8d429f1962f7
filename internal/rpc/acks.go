package rpc

import (
	"math"
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// replies are what a member has to say about its deliveries and has not said yet. Neighbours are joined, and each delivery is
// replied to once, so that there are never more of them than deliveries in flight. The zero value is ready.
type replies struct {
	acks  []core.SequenceRange
	nacks []nacked
}

// nacked are deliveries that are given back in the same way.
type nacked struct {
	core.Nack
	ranges []core.SequenceRange
}

func (r *replies) empty() bool { return len(r.acks) == 0 && len(r.nacks) == 0 }

// ack acknowledges delivery n.
func (r *replies) ack(n uint64) { r.acks = addNumber(r.acks, n) }

// nack gives delivery n back.
func (r *replies) nack(n uint64, how core.Nack) {
	if last := len(r.nacks) - 1; last >= 0 && sameNack(r.nacks[last].Nack, how) {
		r.nacks[last].ranges = addNumber(r.nacks[last].ranges, n)
		return
	}
	r.nacks = append(r.nacks, nacked{how, addNumber(nil, n)})
}

func sameNack(a, b core.Nack) bool {
	sameDelay := a.Delay == b.Delay || a.Delay != nil && b.Delay != nil && *a.Delay == *b.Delay
	return sameDelay && a.Action == b.Action && a.Reason == b.Reason
}

// reset forgets everything and keeps the room.
func (r *replies) reset() {
	clear(r.nacks)
	r.acks, r.nacks = r.acks[:0], r.nacks[:0]
}

// addNumber adds n to the last of the ranges if it goes on from there, else as one of its own.
func addNumber(ranges []core.SequenceRange, n uint64) []core.SequenceRange {
	if last := len(ranges) - 1; last >= 0 && ranges[last].Last+1 == n {
		ranges[last].Last = n
		return ranges
	}
	return append(ranges, core.SequenceRange{First: n, Last: n})
}

// joined sorts ranges and joins neighbours, in place.
func joined(ranges []core.SequenceRange) []core.SequenceRange {
	if len(ranges) < 2 {
		return ranges
	}
	slices.SortFunc(ranges, func(a, b core.SequenceRange) int {
		if a.First < b.First {
			return -1
		}
		return 1
	})
	out := ranges[:1]
	for _, r := range ranges[1:] {
		if last := &out[len(out)-1]; last.Last+1 == r.First {
			last.Last = r.Last
			continue
		}
		out = append(out, r)
	}
	return out
}

// allBut returns all delivery numbers there can be, but these. What is not in flight is not touched by a reply, so this reaches
// also deliveries that are still on their way.
func allBut(numbers []uint64) (ranges []core.SequenceRange) {
	slices.Sort(numbers)
	next := uint64(1)
	for _, n := range numbers {
		if n > next {
			ranges = append(ranges, core.SequenceRange{First: next, Last: n - 1})
		}
		next = n + 1
	}
	return append(ranges, core.SequenceRange{First: next, Last: math.MaxUint64})
}

func nackRequest(n nacked) *tinybrokerv1.SubscribeRequest {
	nack := &tinybrokerv1.Nack{
		Ranges: rangesToProto(joined(n.ranges)),
		Action: nackAction(n.Action),
		Reason: boundText(n.Reason),
	}
	if n.Delay != nil {
		nack.Delay = durationpb.New(max(0, *n.Delay))
	}
	return &tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Nack{Nack: nack}}
}

func nackAction(a core.NackAction) tinybrokerv1.NackAction {
	switch a {
	case core.NackRelease:
		return tinybrokerv1.NackAction_NACK_ACTION_RELEASE
	case core.NackReject:
		return tinybrokerv1.NackAction_NACK_ACTION_REJECT
	}
	return tinybrokerv1.NackAction_NACK_ACTION_RETRY
}

func extendRequest(ranges []core.SequenceRange) *tinybrokerv1.SubscribeRequest {
	return &tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Extend{
		Extend: &tinybrokerv1.ExtendDeadline{Ranges: rangesToProto(ranges)},
	}}
}

func leaveRequest() *tinybrokerv1.SubscribeRequest {
	return &tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Leave{Leave: &tinybrokerv1.Leave{}}}
}

// rangesToProto is the reverse of rangesFromProto.
func rangesToProto(ranges []core.SequenceRange) []*tinybrokerv1.SequenceRange {
	out := make([]*tinybrokerv1.SequenceRange, len(ranges))
	for i, r := range ranges {
		out[i] = &tinybrokerv1.SequenceRange{First: r.First, Last: r.Last}
	}
	return out
}
