package rpc

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// seedFrames are frames of every kind, good and bad.
func seedFrames(tb testing.TB) [][]byte {
	tb.Helper()
	marshal := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			tb.Fatal(err)
		}
		return b
	}
	full := &tinybrokerv1.Message{
		Topic: "orders.created", Payload: []byte("x"), Key: "k", Headers: map[string]string{"a": "b", "": ""},
		PublishTime: timestamppb.New(time.Unix(1_700_000_000, 5)),
	}
	short := &tinybrokerv1.Message{Topic: "a", Payload: bytes.Repeat([]byte("p"), 130)}
	good := marshal(&tinybrokerv1.PublishStreamRequest{
		Messages: []*tinybrokerv1.Message{short, short, full, {Topic: "b"}, {}, {Topic: "no space"}, short},
		MaxWait:  durationpb.New(time.Second),
	})
	record := func(body ...byte) []byte { return protowire.AppendBytes([]byte{tagMessages}, body) }
	return [][]byte{
		nil,
		good,
		good[:len(good)-1],
		append(bytes.Clone(good), good...),
		marshal(&tinybrokerv1.PublishStreamRequest{MaxWait: durationpb.New(-time.Second)}),
		record(),
		record(tagTopic, 1, 'a', tagPayload, 0, tagKey, 1, 'k', tagTime, 4, tagSeconds, 1, tagNanos, 2),
		record(tagTopic, 1, 'a', tagTopic, 1, 'b'), // the last topic counts
		record(tagTopic, 1, 0xff),                              // not UTF-8
		record(tagTopic, 1, 'a', tagKey, 1, 0xff),              // not UTF-8
		record(tagTopic, 1, 'a', tagHeaders, 3, 0x12, 1, 0xff), // not UTF-8
		record(tagTopic, 1, 'a', tagHeaders, 2, 0x12, 1),       // cut short inside
		record(tagTopic, 1, 'a', tagTime, 1, tagSeconds),       // cut short inside
		record(tagTopic, 1, 'a', 0x08, 1),                      // topic of the wrong type
		record(tagTopic, 1, 'a', 0x3b, 0x3c),                   // group
		record(tagTopic, 1, 'a', 0x3b, 0x44),                   // group that ends as another
		record(tagTopic, 1, 'a', 0x00),                         // field number 0
		record(tagTopic, 1, 'a', 0x3f),                         // wire type 7
		record(tagTopic, 0x81, 0x80, 0x80, 0x80, 0x80, 0x00, 'a'),
		{0x8a, 0x00, 3, tagTopic, 1, 'a'}, // tag in two bytes
		{0x8a, 0x80, 0x80, 0x80, 0x80, 0x00, 3, tagTopic, 1, 'a'},
		{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
	}
}

// FuzzScan holds the scanner against protobuf itself.
func FuzzScan(f *testing.F) {
	for _, frame := range seedFrames(f) {
		f.Add(frame)
	}
	f.Fuzz(checkScan)
}

// TestScanRandomFrames does the same with frames that are mostly right, which a fuzzer that knows no protobuf seldom makes.
func TestScanRandomFrames(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 30_000 {
		checkScan(t, randomFrame(rng))
		if t.Failed() {
			return
		}
	}
}

func checkScan(t *testing.T, frame []byte) {
	t.Helper()
	const limit = 256
	var want tinybrokerv1.PublishStreamRequest
	unmarshalErr := proto.Unmarshal(frame, &want)
	var s frameScan
	err := s.scan(frame, limit)
	if err != nil {
		checkRejected(t, err, unmarshalErr, &want)
		return
	}
	checkRuns(t, &s, frame)
	if unmarshalErr != nil {
		if len(refused(&s)) == 0 {
			t.Fatalf("scan found nothing wrong, protobuf says %v", unmarshalErr)
		}
		for _, r := range s.runs {
			if r.err == nil {
				decodeRun(t, r, frame)
			}
		}
		return
	}
	if s.count != len(want.GetMessages()) {
		t.Fatalf("scan found %d messages, protobuf %d", s.count, len(want.GetMessages()))
	}
	if got, want := s.maxWait, max(0, want.GetMaxWait().AsDuration()); got != want {
		t.Fatalf("max_wait %v, protobuf says %v", got, want)
	}
	rest := want.GetMessages()
	for _, r := range s.runs {
		mine := rest[:r.count]
		rest = rest[r.count:]
		if r.err != nil {
			checkRefusal(t, r, mine, limit)
			continue
		}
		for i, m := range decodeRun(t, r, frame) {
			if !proto.Equal(m, mine[i]) {
				t.Fatalf("forwarded as %v, published as %v", m, mine[i])
			}
			if size := sizeOf(m); size > limit || core.ValidateTopic([]byte(m.GetTopic())) != nil {
				t.Fatalf("let pass, with %d bytes: %v", size, m)
			}
		}
	}
}

// randomFrame makes a frame of random fields. One in a few is damaged somewhere.
func randomFrame(rng *rand.Rand) []byte {
	var frame []byte
	for range rng.IntN(8) {
		switch rng.IntN(12) {
		case 0:
			frame = protowire.AppendTag(frame, fieldFrameMaxWait, protowire.BytesType)
			frame = protowire.AppendBytes(frame, randomInstant(rng))
		case 1:
			frame = protowire.AppendVarint(protowire.AppendTag(frame, protowire.Number(1+rng.IntN(9)), protowire.VarintType), rng.Uint64())
		default:
			one := protowire.AppendBytes(append(frame[len(frame):], tagMessages), randomMessage(rng))
			for range 1 + rng.IntN(3) {
				frame = append(frame, one...)
			}
		}
	}
	if len(frame) > 0 && rng.IntN(5) == 0 {
		frame[rng.IntN(len(frame))] = byte(rng.IntN(256))
	}
	return frame
}

func randomMessage(rng *rand.Rand) (b []byte) {
	text := func(tag byte, words ...string) {
		b = protowire.AppendString(append(b, tag), words[rng.IntN(len(words))])
	}
	if rng.IntN(20) > 0 {
		text(tagTopic, "a", "a", "a.b", "a.b", "", "x y", "\xff", "ü.é", strings.Repeat("s", 130))
	}
	if rng.IntN(5) > 0 {
		text(tagPayload, "", "p", "payload", strings.Repeat("p", 126), strings.Repeat("q", 200), strings.Repeat("r", 300))
	}
	switch rng.IntN(6) {
	case 0:
		entry := protowire.AppendString([]byte{tagEntryKey}, "k")
		entry = protowire.AppendString(append(entry, tagEntryValue), [...]string{"v", "\xff", ""}[rng.IntN(3)])
		b = protowire.AppendBytes(append(b, tagHeaders), entry[:rng.IntN(len(entry)+1)])
	case 1:
		text(tagKey, "k", "", "key", "\xff", strings.Repeat("k", 140))
	case 2:
		b = protowire.AppendVarint(protowire.AppendTag(b, protowire.Number(1+rng.IntN(9)), protowire.VarintType), rng.Uint64())
	case 3:
		b = protowire.AppendFixed32(protowire.AppendTag(b, protowire.Number(1+rng.IntN(9)), protowire.Fixed32Type), rng.Uint32())
	case 4:
		text(byte(1+rng.IntN(9))<<3|byte(protowire.BytesType), "", "a", "\x08\x01")
	}
	if rng.IntN(3) == 0 {
		b = protowire.AppendBytes(append(b, tagTime), randomInstant(rng))
	}
	return b
}

func randomInstant(rng *rand.Rand) (b []byte) {
	if rng.IntN(5) > 0 {
		b = protowire.AppendVarint(append(b, tagSeconds), rng.Uint64()>>rng.IntN(64))
	}
	if rng.IntN(5) > 0 {
		b = protowire.AppendVarint(append(b, tagNanos), rng.Uint64()>>rng.IntN(64))
	}
	return b
}

func sizeOf(m *tinybrokerv1.Message) int {
	n := len(m.GetTopic()) + len(m.GetPayload()) + len(m.GetKey())
	for k, v := range m.GetHeaders() {
		n += len(k) + len(v)
	}
	return n
}

func refused(s *frameScan) (runs []run) {
	for _, r := range s.runs {
		if r.err != nil {
			runs = append(runs, r)
		}
	}
	return runs
}

func checkRejected(t *testing.T, err, unmarshalErr error, want *tinybrokerv1.PublishStreamRequest) {
	t.Helper()
	if !errors.Is(err, core.ErrProtocol) {
		t.Fatalf("scan: %v is no protocol violation", err)
	}
	if unmarshalErr != nil {
		return
	}
	if wait := want.GetMaxWait(); !errors.Is(err, errMaxWait) || (wait.CheckValid() == nil && wait.AsDuration() >= 0) {
		t.Fatalf("scan: %v, but protobuf reads it", err)
	}
}

// checkRuns checks what must hold whatever the frame says.
func checkRuns(t *testing.T, s *frameScan, frame []byte) {
	t.Helper()
	count, end := 0, 0
	for i, r := range s.runs {
		count += r.count
		if r.count < 1 || r.start < end || r.end <= r.start || r.end > len(frame) {
			t.Fatalf("run %d of %d: %+v", i, len(s.runs), r)
		}
		if i > 0 && r.err == nil && r.start == end && bytes.Equal(r.topic, s.runs[i-1].topic) && s.runs[i-1].err == nil {
			t.Fatalf("runs %d and %d could be one", i-1, i)
		}
		end = r.end
		if r.err != nil && !errors.Is(r.err, core.ErrTopicInvalid) && !errors.Is(r.err, core.ErrMessageTooLarge) &&
			!errors.Is(r.err, core.ErrProtocol) {
			t.Fatalf("refused for %v", r.err)
		}
	}
	if count != s.count {
		t.Fatalf("runs hold %d messages, count says %d", count, s.count)
	}
}

// decodeRun has protobuf read a good run, record by record as core parts it, and as one frame through the client's reader.
func decodeRun(t *testing.T, r run, frame []byte) (messages []*tinybrokerv1.Message) {
	t.Helper()
	data := frame[r.start:r.end]
	keyed := false
	for rest := data; len(rest) > 0; {
		n := Encoding{}.Len(rest)
		var resp tinybrokerv1.SubscribeResponse
		if err := proto.Unmarshal(rest[:n], &resp); err != nil {
			t.Fatalf("a record that was let pass: %v", err)
		}
		if len(resp.GetMessages()) != 1 {
			t.Fatalf("a record holds %d messages", len(resp.GetMessages()))
		}
		m := resp.GetMessages()[0]
		if m.GetTopic() != string(r.topic) {
			t.Fatalf("topic %q in a run on %q", m.GetTopic(), r.topic)
		}
		if got := (Encoding{}).Key(rest[:n]); string(got) != m.GetKey() {
			t.Fatalf("key %q, protobuf says %q", got, m.GetKey())
		}
		if got := (Encoding{}).Topic(rest[:n]); string(got) != m.GetTopic() {
			t.Fatalf("topic %q, protobuf says %q", got, m.GetTopic())
		}
		keyed = keyed || m.GetKey() != ""
		messages = append(messages, m)
		rest = rest[n:]
	}
	if len(messages) != r.count || keyed != r.keyed {
		t.Fatalf("%d messages, keyed %v, in run %+v", len(messages), keyed, r)
	}
	checkDeliveries(t, data, messages)
	return messages
}

// checkDeliveries reads a frame as the client does and compares.
func checkDeliveries(t *testing.T, frame []byte, want []*tinybrokerv1.Message) {
	t.Helper()
	var d deliveries
	if err := d.reset(frame); err != nil {
		t.Fatal(err)
	}
	var got Delivery
	for i, m := range want {
		ok, err := d.next(&got)
		if !ok || err != nil {
			t.Fatalf("message %d of %d: %v %v", i, len(want), ok, err)
		}
		if got.More != (i+1 < len(want)) || got.Sequence != d.firstSequence+uint64(i) {
			t.Fatalf("message %d of %d: %+v", i, len(want), got)
		}
		checkMessage(t, &got.Message, m)
	}
	if ok, err := d.next(&got); ok || err != nil {
		t.Fatalf("a message after the last: %v %v", ok, err)
	}
}

func checkMessage(t *testing.T, got *core.Message, want *tinybrokerv1.Message) {
	t.Helper()
	if got.Topic != want.GetTopic() || got.Key != want.GetKey() || !bytes.Equal(got.Payload, want.GetPayload()) {
		t.Fatalf("got %+v, protobuf says %v", got, want)
	}
	if len(got.Headers) != len(want.GetHeaders()) {
		t.Fatalf("headers %q, protobuf says %q", got.Headers, want.GetHeaders())
	}
	for k, v := range want.GetHeaders() {
		if got.Headers[k] != v {
			t.Fatalf("header %q is %q, protobuf says %q", k, got.Headers[k], v)
		}
	}
	stamp := want.GetPublishTime()
	switch {
	case stamp.CheckValid() != nil: // nil, or out of range
		if !got.PublishTime.IsZero() {
			t.Fatalf("time %v, protobuf says %v", got.PublishTime, stamp)
		}
	case !got.PublishTime.Equal(stamp.AsTime()):
		t.Fatalf("time %v, protobuf says %v", got.PublishTime, stamp.AsTime())
	}
}

// checkRefusal checks that messages protobuf can read were refused for a reason.
func checkRefusal(t *testing.T, r run, messages []*tinybrokerv1.Message, limit int) {
	t.Helper()
	for _, m := range messages {
		switch {
		case errors.Is(r.err, core.ErrTopicInvalid):
			if core.ValidateTopic([]byte(m.GetTopic())) == nil {
				t.Fatalf("refused (%v): %v", r.err, m)
			}
		case errors.Is(r.err, core.ErrMessageTooLarge):
			if r.end-r.start <= limit {
				t.Fatalf("refused (%v): %v", r.err, m)
			}
		}
	}
}

// FuzzDeliveries holds the client's reader against protobuf itself. Bad UTF-8 is the broker's to refuse, not the client's.
func FuzzDeliveries(f *testing.F) {
	for _, frame := range seedFrames(f) {
		f.Add(frame)
	}
	closing, err := proto.Marshal(&tinybrokerv1.SubscribeResponse{
		Messages: []*tinybrokerv1.Message{{Topic: "a"}}, FirstSequence: 7, Attempt: 2, DroppedBefore: 3,
		Opened: &tinybrokerv1.Opened{SubscriptionId: "s"}, Closed: &tinybrokerv1.Closed{Lost: 9}, Lagging: &tinybrokerv1.Lagging{Queued: 1},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(closing)
	f.Fuzz(func(t *testing.T, frame []byte) {
		var want tinybrokerv1.SubscribeResponse
		unmarshalErr := proto.Unmarshal(frame, &want)
		var d deliveries
		if err := d.reset(frame); err != nil {
			if unmarshalErr == nil {
				t.Fatalf("%v, but protobuf reads it", err)
			}
			return
		}
		if unmarshalErr != nil {
			for d.taken < d.count {
				if _, err := d.next(new(Delivery)); err != nil {
					return
				}
			}
			return
		}
		if d.count != len(want.GetMessages()) || d.firstSequence != want.GetFirstSequence() || d.attempt != want.GetAttempt() ||
			d.droppedBefore != want.GetDroppedBefore() || !proto.Equal(d.opened, want.Opened) ||
			!proto.Equal(d.closed, want.Closed) || !proto.Equal(d.lagging, want.Lagging) {
			t.Fatalf("read %+v, protobuf says %v", d, &want)
		}
		checkDeliveries(t, frame, want.GetMessages())
	})
}

// FuzzPublishRecord holds the unary request against protobuf itself.
func FuzzPublishRecord(f *testing.F) {
	for _, m := range []*tinybrokerv1.PublishRequest{
		{Topic: "a.b", Payload: []byte("x"), MaxWait: durationpb.New(time.Minute)},
		{Topic: "a.b", Key: "k", Headers: map[string]string{"a": "b"}, PublishTime: timestamppb.Now()},
		{Topic: "a b"},
		{MaxWait: durationpb.New(-1)},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(append(bytes.Clone(b), b...))
		f.Add(append([]byte{0x32, 0x02, 0x08, 0x05}, b...))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		const limit = 256
		var want tinybrokerv1.PublishRequest
		unmarshalErr := proto.Unmarshal(body, &want)
		record, topic, wait, err := publishRecord(append(make([]byte, requestRoom), body...), limit)
		if err != nil {
			return
		}
		if unmarshalErr != nil {
			t.Fatalf("accepted, protobuf says %v", unmarshalErr)
		}
		if wait != want.GetMaxWait().AsDuration() || string(topic) != want.GetTopic() {
			t.Fatalf("topic %q, max_wait %v, protobuf says %v", topic, wait, &want)
		}
		checkDeliveries(t, record, []*tinybrokerv1.Message{{
			Topic: want.GetTopic(), Payload: want.GetPayload(), Headers: want.GetHeaders(), Key: want.GetKey(), PublishTime: want.GetPublishTime(),
		}})
		var resp tinybrokerv1.SubscribeResponse
		if err := proto.Unmarshal(record, &resp); err != nil {
			t.Fatal(err)
		}
		for unknown := resp.GetMessages()[0].ProtoReflect().GetUnknown(); len(unknown) > 0; {
			num, _, n := protowire.ConsumeField(unknown)
			if num == fieldRequestMaxWait {
				t.Fatal("max_wait is left in the record")
			}
			unknown = unknown[n:]
		}
	})
}
