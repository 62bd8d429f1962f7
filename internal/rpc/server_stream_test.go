package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

type publishClient = tinybrokerv1.BrokerService_PublishStreamClient

func openPublisher(t testing.TB, stub tinybrokerv1.BrokerServiceClient, options ...grpc.CallOption) publishClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	stream, err := stub.PublishStream(ctx, options...)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func sendFrame(t testing.TB, stream publishClient, messages ...*tinybrokerv1.Message) {
	t.Helper()
	if err := stream.Send(&tinybrokerv1.PublishStreamRequest{Messages: messages}); err != nil {
		t.Fatalf("send: %v", err)
	}
}

func receipt(t testing.TB, stream publishClient) *tinybrokerv1.PublishStreamResponse {
	t.Helper()
	r, err := stream.Recv()
	if err != nil {
		t.Fatalf("receipt: %v", err)
	}
	return r
}

// TestReceipts: one for each frame at least, counting from the stream's start, and a half-close confirms everything.
func TestReceipts(t *testing.T) {
	stub := newStation(t, nil).stub(t)
	sub := openPatterns(t, stub, "a")
	stream := openPublisher(t, stub)
	a, b := &tinybrokerv1.Message{Topic: "a"}, &tinybrokerv1.Message{Topic: "b"}
	for _, step := range []struct {
		frame             []*tinybrokerv1.Message
		through, unrouted uint64
	}{
		{[]*tinybrokerv1.Message{a}, 1, 0},
		{[]*tinybrokerv1.Message{a, b, b, a, b}, 6, 3},
		{nil, 6, 0},
		{[]*tinybrokerv1.Message{b}, 7, 1},
		{[]*tinybrokerv1.Message{a, a}, 9, 0},
	} {
		sendFrame(t, stream, step.frame...)
		r := receipt(t, stream)
		if r.GetAcceptedThrough() != step.through || r.GetUnrouted() != step.unrouted || len(r.GetFailures()) != 0 {
			t.Errorf("got %v, want accepted_through %d, unrouted %d", r, step.through, step.unrouted)
		}
	}
	for range 100 {
		sendFrame(t, stream, a, a)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	var last uint64
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		last = r.GetAcceptedThrough()
	}
	if last != 209 {
		t.Errorf("confirmed %d messages, want 209", last)
	}
	sub.take(t, 205)
}

// illegalTopics are refused on every road in.
var illegalTopics = []string{
	"", ".", "a.", ".a", "a..b", "a b", "a\tb", "a\nb", "a\u00a0b", "a\u0085b", "a\x7fb", "a.*", "a.**", "*", "**", "a?b", "{a}", "[a]", "a]", `a\b`, "!a",
	strings.Repeat("x", 513), strings.Repeat("ü", 257), strings.Repeat("s.", 32) + "s", "$tb.event.x", "$tb", "$", "$x.a",
}

func TestIllegalTopics(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	subs := []*stockStream{openPatterns(t, stub, "**"), openPatterns(t, stub, "a.*", "a.**", `a.\*`, `\{a\}`), openPatterns(t, stub, "$tb.event.x", "$tb", "$", "$x.*")}
	stream := openPublisher(t, stub)
	for i, topic := range illegalTopics {
		before := station.broker.Stats()
		_, err := stub.Publish(t.Context(), &tinybrokerv1.PublishRequest{Topic: topic})
		checkStatus(t, err, codes.InvalidArgument, "TOPIC_INVALID")
		sendFrame(t, stream, &tinybrokerv1.Message{Topic: topic})
		r := receipt(t, stream)
		if f := r.GetFailures(); len(f) != 1 || f[0].GetReason() != "TOPIC_INVALID" || codes.Code(f[0].GetCode()) != codes.InvalidArgument || f[0].GetPosition() != uint64(i+1) || len(f[0].GetText()) > maxText {
			t.Errorf("topic %.20q: %v", topic, r)
		}
		after := station.broker.Stats()
		if after.Published != before.Published || after.Refused != before.Refused+2 {
			t.Errorf("topic %.20q: %d published, %d refused", topic, after.Published-before.Published, after.Refused-before.Refused)
		}
	}
	publishOne(t, stub, "a.end", nil)
	for _, sub := range subs[:2] {
		if got := sub.take(t, 1)[0].GetTopic(); got != "a.end" {
			t.Errorf("%q was delivered", got)
		}
	}
	if n := station.broker.Stats().Delivered; n != 2 {
		t.Errorf("%d messages delivered", n)
	}
}

// TestRefusalsAmongGoodOnes: each is reported by its position, with neighbours of one reason together; the good ones arrive.
func TestRefusalsAmongGoodOnes(t *testing.T) {
	stub := newStation(t, func(o *core.Options, _ *ServerOptions) { o.MaxMessageSize = 1000 }).stub(t)
	sub := openPatterns(t, stub, "**")
	stream := openPublisher(t, stub)
	good := func(n uint64) *tinybrokerv1.Message {
		return &tinybrokerv1.Message{Topic: "good", Payload: numbered(n, 0)}
	}
	bad, large := &tinybrokerv1.Message{Topic: "a b"}, &tinybrokerv1.Message{Topic: "a", Payload: make([]byte, 1000)}
	sendFrame(t, stream, good(0), bad, bad, large, good(1), good(2), large, bad)
	r := receipt(t, stream)
	got := ""
	for _, f := range r.GetFailures() {
		got += fmt.Sprintf("%d+%d %s ", f.GetPosition(), f.GetCount(), f.GetReason())
	}
	if want := "2+2 TOPIC_INVALID 4+1 MESSAGE_TOO_LARGE 7+1 MESSAGE_TOO_LARGE 8+1 TOPIC_INVALID "; got != want || r.GetAcceptedThrough() != 8 {
		t.Errorf("through %d: %s; want %s", r.GetAcceptedThrough(), got, want)
	}
	sendFrame(t, stream, bad, good(3))
	if r := receipt(t, stream); len(r.GetFailures()) != 1 || r.GetFailures()[0].GetPosition() != 9 || r.GetAcceptedThrough() != 10 {
		t.Errorf("got %v", r)
	}
	for i, m := range sub.take(t, 4) {
		if n := numberOf(t, m.GetPayload()); n != uint64(i) {
			t.Errorf("message %d came, want %d", n, i)
		}
	}
}

// TestReceiptsAreBounded: a frame full of refusals has receipts that every client takes. The client here takes a
// sixteenth of what a stock one does, so that the frame need not be so large.
func TestReceiptsAreBounded(t *testing.T) {
	stub := newStation(t, nil).stub(t)
	stream := openPublisher(t, stub, grpc.MaxCallRecvMsgSize(256<<10))
	var messages []*tinybrokerv1.Message
	const n = 8_000
	for range n / 2 {
		messages = append(messages, &tinybrokerv1.Message{Topic: strings.Repeat("?", 60)}, &tinybrokerv1.Message{Topic: "a"})
	}
	sendFrame(t, stream, messages...)
	next := uint64(1)
	for through := uint64(0); through < n; {
		r := receipt(t, stream)
		for _, f := range r.GetFailures() {
			if f.GetPosition() != next {
				t.Fatalf("position %d refused, want %d", f.GetPosition(), next)
			}
			next += 2
		}
		if through = r.GetAcceptedThrough(); through+2 < next {
			t.Fatalf("accepted through %d, but %d was refused", through, next-2)
		}
	}
	if next != n+1 {
		t.Errorf("refused up to %d", next-2)
	}
}

func TestGarbageEndsPublishStream(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	sub := openPatterns(t, stub, "**")
	for name, frame := range map[string]string{
		"cut off":                "\x0a\x05\x0a\x01",
		"no field":               "\xff\xff\xff",
		"message cut off inside": "\x0a\x03\x0a\x05a",
		"max_wait below zero":    "\x12\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
	} {
		t.Run(name, func(t *testing.T) {
			stream := openPublisher(t, stub, grpc.ForceCodecV2(newRawCodec()))
			sendFrame(t, stream, &tinybrokerv1.Message{Topic: "good"})
			// A good message in a bad frame is not published: nobody could be told which were.
			good := appendField(nil, fieldMessages, string(appendField(nil, fieldTopic, "bad")))
			if err := stream.SendMsg(&rawFrame{bufs: sliceOf(append(good, frame...))}); err != nil {
				t.Fatal(err)
			}
			if r := receipt(t, stream); r.GetAcceptedThrough() != 1 {
				t.Errorf("got %v", r)
			}
			_, err := stream.Recv()
			checkStatus(t, err, codes.InvalidArgument, "PROTOCOL")
			if got := sub.take(t, 1)[0].GetTopic(); got != "good" {
				t.Errorf("%q was delivered", got)
			}
		})
	}
}
