package rpc

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

func TestGroupSettingsOfABroadcastAreRefused(t *testing.T) {
	stub := newStation(t, nil).stub(t)
	for name, o := range map[string]*tinybrokerv1.OpenSubscription{
		"max_in_flight": {MaxInFlight: 1},
		"max_attempts":  {MaxAttempts: 1},
		"ack_deadline":  {AckDeadline: durationpb.New(0)},
		"ack_mode":      {AckMode: tinybrokerv1.AckMode_ACK_MODE_EXPLICIT},
		"mode":          {Mode: tinybrokerv1.DeliveryMode_DELIVERY_MODE_SINGLE},
	} {
		t.Run(name, func(t *testing.T) {
			o.TopicPatterns = []string{"a"}
			_, err := tryOpen(t.Context(), stub, o)
			checkStatus(t, err, codes.InvalidArgument, "PROTOCOL")
		})
	}
}

func TestSettingsOfAGroup(t *testing.T) {
	stub := newStation(t, func(o *core.Options, _ *ServerOptions) { o.AckDeadline = 9 * time.Second }).stub(t)
	first := joinStock(t, stub, &tinybrokerv1.OpenSubscription{MaxInFlight: 5, MaxAttempts: 3})
	o := first.opened
	if o.GetMode() != tinybrokerv1.DeliveryMode_DELIVERY_MODE_SINGLE || o.GetAckMode() != tinybrokerv1.AckMode_ACK_MODE_EXPLICIT ||
		o.GetOverflow() != tinybrokerv1.OverflowPolicy_OVERFLOW_POLICY_REJECT || o.GetMaxInFlight() != 5 ||
		o.GetAckDeadline().AsDuration() != 9*time.Second || o.GetMaxAttempts() != 3 || o.GetCapacity() != 10_000 || o.GetCapacityBytes() != 64<<20 {
		t.Errorf("opened %v", o)
	}
	second := joinStock(t, stub, &tinybrokerv1.OpenSubscription{AckDeadline: durationpb.New(9 * time.Second), TopicPatterns: []string{"a", "!b"}})
	if o := second.opened; o.GetMaxInFlight() != 64 || o.GetMaxAttempts() != 3 {
		t.Errorf("the second is opened with %v", o)
	}
	for setting, o := range map[string]*tinybrokerv1.OpenSubscription{
		"ack_mode":     {AckMode: tinybrokerv1.AckMode_ACK_MODE_NONE},
		"overflow":     {Overflow: tinybrokerv1.OverflowPolicy_OVERFLOW_POLICY_DROP_OLDEST},
		"capacity":     {Capacity: 17},
		"ack_deadline": {AckDeadline: durationpb.New(0)},
		"max_attempts": {MaxAttempts: 4},
	} {
		t.Run(setting, func(t *testing.T) {
			_, err := tryJoinStock(t, stub, o)
			checkStatus(t, err, codes.FailedPrecondition, "GROUP_CONFIG_MISMATCH")
			if text := status.Convert(err).Message(); !strings.Contains(text, setting) {
				t.Errorf("%q does not name the setting", text)
			}
		})
	}
	for name, o := range map[string]*tinybrokerv1.OpenSubscription{
		"two segments":           {ConsumerGroup: "a.b"},
		"a control character":    {ConsumerGroup: "a\nb"},
		"too long":               {ConsumerGroup: strings.Repeat("x", 129)},
		"MULTI":                  {Mode: tinybrokerv1.DeliveryMode_DELIVERY_MODE_MULTI},
		"EVICT":                  {Overflow: tinybrokerv1.OverflowPolicy_OVERFLOW_POLICY_EVICT},
		"a past deadline":        {AckDeadline: durationpb.New(-time.Second)},
		"a deadline in years":    {AckDeadline: durationpb.New(20000 * time.Hour)},
		"in flight without end":  {MaxInFlight: 1 << 31},
		"attempts without end":   {MaxAttempts: 1 << 31},
		"an unknown ack mode":    {AckMode: 9},
		"nothing to be received": {TopicPatterns: []string{"!a"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tryJoinStock(t, stub, o)
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestOddReplies: numbers that mean nothing have no effect; what is no reply ends the stream.
func TestOddReplies(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	m := joinStock(t, stub, &tinybrokerv1.OpenSubscription{})
	publishCounted(t, stub, "a", 0, 10)
	m.take(t, 10)
	for _, rs := range [][]*tinybrokerv1.SequenceRange{nil, span(0, 0), span(11, 1<<63), span(5, 3), span(1<<63, 2)} {
		m.say(t, &tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Ack{Ack: &tinybrokerv1.Ack{Ranges: rs}}})
		m.nack(t, &tinybrokerv1.Nack{Ranges: rs})
	}
	m.ack(t, 1, 1)
	station.wantGroup(t, 1, 0, 9)
	m.say(t, &tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Ack{
		Ack: &tinybrokerv1.Ack{Ranges: []*tinybrokerv1.SequenceRange{{First: 3}, {First: 7, Last: 8}}}, // 0 means the same as first
	}})
	station.wantGroup(t, 4, 0, 6)
	for name, r := range map[string]*tinybrokerv1.SubscribeRequest{
		"nothing":             {},
		"a second open":       {Request: &tinybrokerv1.SubscribeRequest_Open{Open: &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"a"}}}},
		"an unknown action":   {Request: &tinybrokerv1.SubscribeRequest_Nack{Nack: &tinybrokerv1.Nack{Action: 9}}},
		"a delay before now":  {Request: &tinybrokerv1.SubscribeRequest_Nack{Nack: &tinybrokerv1.Nack{Delay: durationpb.New(-1)}}},
		"a delay of no sense": {Request: &tinybrokerv1.SubscribeRequest_Nack{Nack: &tinybrokerv1.Nack{Delay: &durationpb.Duration{Nanos: 2e9}}}},
	} {
		t.Run(name, func(t *testing.T) {
			odd := joinStock(t, stub, &tinybrokerv1.OpenSubscription{ConsumerGroup: "odd"})
			odd.say(t, r)
			_, err := odd.end(t)
			checkStatus(t, err, codes.InvalidArgument, "PROTOCOL")
		})
	}
}

// TestLongWishes: a delay or a deadline of more than a day is one of a day, and no error that would end the stream and charge all that is in flight.
func TestLongWishes(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	long := durationpb.New(20000 * time.Hour)
	m := joinStock(t, stub, &tinybrokerv1.OpenSubscription{AckDeadline: durationpb.New(24 * time.Hour)})
	publishCounted(t, stub, "a", 0, 3)
	m.take(t, 3)
	m.nack(t, &tinybrokerv1.Nack{Ranges: span(1, 0), Delay: long})
	m.say(t, &tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Extend{
		Extend: &tinybrokerv1.ExtendDeadline{Ranges: span(2, 0), Deadline: long},
	}})
	m.ack(t, 3, 0)
	station.wantGroup(t, 1, 1, 1)

	_, err := tryJoinStock(t, stub, &tinybrokerv1.OpenSubscription{ConsumerGroup: "other", AckDeadline: durationpb.New(24*time.Hour + 1)})
	checkStatus(t, err, codes.InvalidArgument, "PROTOCOL")
}
