package rpc

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

func TestPublishCountsReceivers(t *testing.T) {
	stub := newStation(t, nil).stub(t)
	if n := publishOne(t, stub, "a.b", nil); n != 0 {
		t.Errorf("%d receivers where nobody subscribes", n)
	}
	for range 3 {
		openPatterns(t, stub, "a.*", "a.b", "**") // one copy each, however many patterns match
	}
	openPatterns(t, stub, "elsewhere")
	if n := publishOne(t, stub, "a.b", nil); n != 3 {
		t.Errorf("%d receivers, want 3", n)
	}
}

// TestPublishForwardsEverything: all of a message's fields arrive, unknown ones too, and max_wait does not.
func TestPublishForwardsEverything(t *testing.T) {
	stub := newStation(t, nil).stub(t)
	sub := openPatterns(t, stub, "**")
	sent := &tinybrokerv1.PublishRequest{
		Topic: "a.ü", Payload: []byte{0, 0xff, '\n'}, Headers: map[string]string{"k": "v", "": ""}, Key: "key",
		PublishTime: timestamppb.New(time.Unix(1, 2)), MaxWait: durationpb.New(time.Second),
	}
	sent.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 77, protowire.BytesType), "from the future"))
	if _, err := stub.Publish(t.Context(), sent); err != nil {
		t.Fatal(err)
	}
	want := &tinybrokerv1.Message{Topic: sent.Topic, Payload: sent.Payload, Headers: sent.Headers, Key: sent.Key, PublishTime: sent.PublishTime}
	want.ProtoReflect().SetUnknown(sent.ProtoReflect().GetUnknown())
	if got := sub.take(t, 1)[0]; !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// rawPublish publishes bytes that no generated type would encode.
func rawPublish(ctx context.Context, conn *grpc.ClientConn, request []byte) error {
	return conn.Invoke(ctx, tinybrokerv1.BrokerService_Publish_FullMethodName, &rawFrame{bufs: sliceOf(request)},
		new(tinybrokerv1.PublishResponse), grpc.ForceCodecV2(newRawCodec()))
}

func appendField(b []byte, field protowire.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), value)
}

// TestPublishBytesByHand: what stock encoders never produce gets a status, and nobody else sees it.
func TestPublishBytesByHand(t *testing.T) {
	station := newStation(t, nil)
	conn := station.dial(t)
	sub := openPatterns(t, station.stub(t), "**")
	header := func(k, v string) string { return string(appendField(appendField(nil, 1, k), 2, v)) }
	topic := func() []byte { return appendField(nil, fieldTopic, "a") }
	for _, test := range []struct {
		name    string
		request []byte
		reason  string
	}{
		{"topic is no text", appendField(nil, fieldTopic, "a\xff"), "TOPIC_INVALID"},
		{"key is no text", appendField(topic(), fieldKey, "\xff"), "PROTOCOL"},
		{"header name is no text", appendField(topic(), fieldHeaders, header("\xc0\x80", "")), "PROTOCOL"},
		{"header value is no text", appendField(topic(), fieldHeaders, header("k", "\xed\xa0\x80")), "PROTOCOL"},
		{"cut off", topic()[:2], "PROTOCOL"},
		{"header cut off", appendField(topic(), fieldHeaders, "\x0a\x05k"), "PROTOCOL"},
		{"field number 0", append(topic(), 0, 0), "PROTOCOL"},
		{"group never ends", append(topic(), 0x53), "PROTOCOL"},
		{"max_wait is malformed", appendField(topic(), fieldRequestMaxWait, "\x08"), "PROTOCOL"},
		{"max_wait of nanoseconds below zero", appendField(topic(), fieldRequestMaxWait, "\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "PROTOCOL"},
		{"no field at all", nil, "TOPIC_INVALID"},
		// protobuf.js, and with it Node, reads a known field as what it should be, whatever its wire type.
		{"topic with another wire type", protowire.AppendVarint(protowire.AppendTag(topic(), fieldTopic, protowire.VarintType), 1), "PROTOCOL"},
		{"payload with another wire type", protowire.AppendFixed64(protowire.AppendTag(topic(), fieldPayload, protowire.Fixed64Type), 1), "PROTOCOL"},
		{"time with another wire type", protowire.AppendVarint(protowire.AppendTag(topic(), fieldTime, protowire.VarintType), 99), "PROTOCOL"},
		{"header value with another wire type", appendField(topic(), fieldHeaders, "\x0a\x01k\x10\x7f"), "PROTOCOL"},
		{"seconds with another wire type", appendField(topic(), fieldTime, "\x0a\x01x"), "PROTOCOL"},
		{"nanoseconds in eight bytes", appendField(topic(), fieldTime, "\x10\x81\x80\x80\x80\x80\x80\x80\x00"), "PROTOCOL"},
	} {
		t.Run(test.name, func(t *testing.T) {
			refused := station.broker.Stats().Refused
			checkStatus(t, rawPublish(within(t, 20*time.Second), conn, test.request), codes.InvalidArgument, test.reason)
			if n := station.broker.Stats().Refused - refused; n != 1 {
				t.Errorf("%d messages counted as refused", n)
			}
		})
	}
	publishOne(t, station.stub(t), "end", nil)
	if got := sub.take(t, 1)[0].GetTopic(); got != "end" {
		t.Errorf("a refused message on %q was delivered", got)
	}
}

func TestPublishStatuses(t *testing.T) {
	station := newStation(t, func(o *core.Options, _ *ServerOptions) {
		o.MaxMemory, o.SendTimeout = 1<<20, 50*time.Millisecond
	})
	stub := station.stub(t)
	for _, wait := range []*durationpb.Duration{{Seconds: -1}, {Nanos: -1}, {Seconds: 1 << 60}, {Seconds: 1, Nanos: -1}, {Nanos: 1e9}} {
		_, err := stub.Publish(t.Context(), &tinybrokerv1.PublishRequest{Topic: "a", MaxWait: wait})
		checkStatus(t, err, codes.InvalidArgument, "PROTOCOL")
	}

	// A reader that does not read fills the memory before it fills its queue.
	frozen := openPatterns(t, station.stub(t, frozenOptions()...), "**")
	var err error
	for err == nil {
		if station.broker.Stats().Subscriptions == 0 { // evicted, where a busy machine has taken its time
			frozen.cancel()
			frozen = openPatterns(t, station.stub(t, frozenOptions()...), "**")
		}
		_, err = stub.Publish(within(t, 10*time.Second), &tinybrokerv1.PublishRequest{Topic: "a", Payload: make([]byte, 64<<10)})
	}
	checkStatus(t, err, codes.ResourceExhausted, "BROKER_MEMORY")
	openPatterns(t, stub, "subscribing.is.never.throttled")
	frozen.cancel()
	eventually(t, "publishing works again", func() bool {
		_, err := stub.Publish(t.Context(), &tinybrokerv1.PublishRequest{Topic: "a", Payload: make([]byte, 64<<10)})
		return err == nil
	})

	station.broker.Drain(time.Time{})
	_, err = stub.Publish(t.Context(), &tinybrokerv1.PublishRequest{Topic: "a"})
	checkStatus(t, err, codes.Unavailable, "DRAINING")
}

// TestPublishPatience: the publisher is held back for a reader that pauses, which then has everything.
func TestPublishPatience(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	sub := open(t, station.stub(t, frozenOptions()...), &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"**"}, Capacity: 16})
	const n = 200
	done := make(chan error, 1)
	go func() {
		for i := range uint64(n) {
			request := &tinybrokerv1.PublishRequest{Topic: "a", Payload: numbered(i, 16<<10), MaxWait: durationpb.New(10 * time.Second)}
			if _, err := stub.Publish(t.Context(), request); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	eventually(t, "the queue is full", func() bool { return station.broker.Stats().QueuedMessages >= 12 })
	for i := uint64(0); i < n; {
		for _, m := range sub.take(t, 1) {
			if got := numberOf(t, m.GetPayload()); got != i {
				t.Fatalf("message %d came, want %d", got, i)
			}
			i++
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := station.broker.Stats().Evictions; n != 0 {
		t.Errorf("%d evictions", n)
	}
}
