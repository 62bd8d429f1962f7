package rpc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// fuzzScript is read as what a client does. The zero of everything comes when it is at its end.
type fuzzScript []byte

func (s *fuzzScript) done() bool { return len(*s) == 0 }

func (s *fuzzScript) byte() byte {
	if s.done() {
		return 0
	}
	b := (*s)[0]
	*s = (*s)[1:]
	return b
}

func (s *fuzzScript) bytes() []byte {
	n := min(int(s.byte()), len(*s))
	b := (*s)[:n]
	*s = (*s)[n:]
	return b
}

// number is small, or one of those that are often forgotten.
func (s *fuzzScript) number() uint64 {
	switch b := s.byte(); b {
	case 255:
		return 1<<64 - 1
	case 254:
		return 1 << 63
	case 253:
		return 1 << 31
	default:
		return uint64(b)
	}
}

func (s *fuzzScript) duration() *durationpb.Duration {
	switch b := s.byte(); {
	case b < 64:
		return nil
	case b < 96:
		return &durationpb.Duration{Seconds: -int64(b), Nanos: 5}
	case b < 128:
		return &durationpb.Duration{Seconds: 1 << 62, Nanos: int32(b) << 24}
	default:
		return durationpb.New(time.Duration(b) * time.Millisecond)
	}
}

func (s *fuzzScript) ranges() (all []*tinybrokerv1.SequenceRange) {
	for range s.byte() % 4 {
		all = append(all, &tinybrokerv1.SequenceRange{First: s.number(), Last: s.number()})
	}
	return all
}

// name is mostly the same, so that scripts meet what they have made themselves.
func (s *fuzzScript) name() string {
	switch b := s.byte(); {
	case b < 128:
		return ""
	case b < 224:
		return "n" + string(rune('a'+b%3))
	default:
		return string(s.bytes())
	}
}

func (s *fuzzScript) open() *tinybrokerv1.OpenSubscription {
	o := &tinybrokerv1.OpenSubscription{
		SubscriptionId: s.name(), ConsumerGroup: s.name(), ClientName: s.name(),
		Mode: tinybrokerv1.DeliveryMode(int8(s.byte()) / 40), AckMode: tinybrokerv1.AckMode(int8(s.byte()) / 40),
		Overflow: tinybrokerv1.OverflowPolicy(int8(s.byte()) / 20), Capacity: uint32(s.number()), MaxInFlight: uint32(s.number()),
		MaxAttempts: uint32(s.number()), AckDeadline: s.duration(),
	}
	for range s.byte()%3 + 1 {
		if s.byte() < 200 {
			o.TopicPatterns = append(o.TopicPatterns, "f.**")
		} else {
			o.TopicPatterns = append(o.TopicPatterns, string(s.bytes()))
		}
	}
	return o
}

func (s *fuzzScript) request() *tinybrokerv1.SubscribeRequest {
	r := &tinybrokerv1.SubscribeRequest{}
	switch s.byte() % 6 {
	case 0:
		r.Request = &tinybrokerv1.SubscribeRequest_Open{Open: s.open()}
	case 1:
		r.Request = &tinybrokerv1.SubscribeRequest_Ack{Ack: &tinybrokerv1.Ack{Ranges: s.ranges()}}
	case 2:
		r.Request = &tinybrokerv1.SubscribeRequest_Nack{Nack: &tinybrokerv1.Nack{
			Ranges: s.ranges(), Action: tinybrokerv1.NackAction(int8(s.byte()) / 30), Delay: s.duration(), Reason: string(s.bytes()),
		}}
	case 3:
		r.Request = &tinybrokerv1.SubscribeRequest_Extend{Extend: &tinybrokerv1.ExtendDeadline{Ranges: s.ranges(), Deadline: s.duration()}}
	case 4:
		r.Request = &tinybrokerv1.SubscribeRequest_Leave{Leave: &tinybrokerv1.Leave{}}
	}
	return r
}

// fuzzStation is a server that scripts are run against, one after the other.
type fuzzStation struct {
	*station
	conn       *grpc.ClientConn
	goroutines int
}

func newFuzzStation(f *testing.F) *fuzzStation {
	f.Helper()
	s := &fuzzStation{station: newStation(f, func(o *core.Options, _ *ServerOptions) {
		o.GroupLinger, o.ConsumerCapacity, o.MaxMessageSize = 0, 8, 4<<10
	})}
	s.conn = s.dial(f)
	publishOne(f, tinybrokerv1.NewBrokerServiceClient(s.conn), "warm.up", nil)
	s.goroutines = runtime.NumGoroutine()
	return s
}

// wantNothingLeft wants what a script has begun to be over.
func (s *fuzzStation) wantNothingLeft(t *testing.T) {
	t.Helper()
	eventually(t, "nothing is left", func() bool {
		st := s.broker.Stats()
		return st.Subscriptions == 0 && st.Groups == 0 && st.QueuedMessages == 0 && st.Memory == 0
	})
	// The test's own come and go. What one script in many leaves behind adds up.
	eventually(t, "the goroutines have ended", func() bool { return runtime.NumGoroutine() <= s.goroutines+8 })
	if lines := s.log.with(t, "panic in a call"); len(lines) > 0 {
		t.Fatalf("%v", lines)
	}
}

// documented are the statuses that the contract names, and the one of a client that breaks off.
func documented(err error) bool {
	switch status.Code(err) {
	case codes.OK, codes.InvalidArgument, codes.FailedPrecondition, codes.ResourceExhausted, codes.Canceled:
		return true
	}
	return errors.Is(err, io.EOF)
}

// FuzzSubscribe lets a client say anything, and in any order, while messages come.
func FuzzSubscribe(f *testing.F) {
	open := []byte{0, 200, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	member := []byte{0, 0, 200, 0, 0, 0, 0, 0, 4, 0, 200, 0, 0}
	say := func(parts ...[]byte) {
		var script []byte
		for _, p := range parts {
			script = append(script, p...)
		}
		f.Add(script)
	}
	publish, request, raw, halfClose := []byte{0, 3}, []byte{1}, []byte{2}, []byte{3}
	say(request, open, publish, request, open)
	say(request, open, publish, halfClose)
	say(request, member, publish, request, []byte{1, 1, 1, 0}, publish, request, []byte{2, 1, 1, 3, 0, 0}, request, []byte{4}, halfClose)
	say(request, member, publish, request, []byte{3, 1, 1, 2, 90}, request, []byte{2, 2, 1, 2, 3, 255, 60, 200, 3, 'b', 'a', 'd'})
	say(raw, []byte{3, 0x0a, 0xff, 0x01})
	say(raw, []byte{2, 0x12, 0x00}, request, open)
	say(halfClose)
	station := newFuzzStation(f)
	f.Fuzz(func(t *testing.T, script []byte) { station.subscribe(t, script) })
}

func (s *fuzzStation) subscribe(t *testing.T, script fuzzScript) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stream, err := s.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, tinybrokerv1.BrokerService_Subscribe_FullMethodName, grpc.ForceCodecV2(newRawCodec()))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		for {
			if err := stream.RecvMsg(&rawFrame{}); err != nil {
				ended <- err
				return
			}
		}
	}()
	halfClosed := false
	for steps := 0; !script.done() && !halfClosed && steps < 50; steps++ {
		var frame []byte
		switch script.byte() % 4 {
		case 0:
			s.publishSome(t, int(script.byte()%8))
			continue
		case 1:
			r := script.request()
			if frame, err = proto.Marshal(r); err != nil {
				continue // text that is not UTF-8 is sent as raw bytes only
			}
		case 2:
			frame = script.bytes()
		case 3:
			halfClosed = true
			continue
		}
		if stream.SendMsg(&rawFrame{bufs: sliceOf(frame)}) != nil {
			break // the stream has ended
		}
	}
	if halfClosed {
		_ = stream.CloseSend()
		time.AfterFunc(time.Millisecond, cancel) // it may live on
	} else {
		_ = stream.SendMsg(&rawFrame{bufs: sliceOf(nil)}) // which ends every stream
	}
	select {
	case err := <-ended:
		if !documented(err) {
			t.Errorf("the stream ended with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the stream does not end")
	}
	cancel()
	s.wantNothingLeft(t)
}

func (s *fuzzStation) publishSome(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		record := Encoding{}.Append(nil, &core.Message{Topic: "f.t", Key: strings.Repeat("k", i%2), Payload: []byte("p")})
		runs := []core.Run{{Topic: []byte("f.t"), End: len(record), Count: 1, Keyed: true}}
		if err := s.broker.Publish(t.Context(), &core.Batch{Data: record, Runs: runs}); err != nil {
			t.Fatal(err)
		}
	}
}

// FuzzPublishStream lets a publisher send any frames. Each receipt has to be right, and subscribers get exactly what was accepted.
func FuzzPublishStream(f *testing.F) {
	for _, frame := range seedFrames(f) {
		f.Add(frame, []byte{})
		f.Add([]byte{}, frame)
	}
	station := newFuzzStation(f)
	f.Fuzz(func(t *testing.T, first, second []byte) { station.publishFrames(t, first, second) })
}

func (s *fuzzStation) publishFrames(t *testing.T, frames ...[]byte) {
	sub, err := s.broker.Subscribe(core.SubscribeOptions{Patterns: []string{"**"}, Overflow: core.OverflowDropOldest, Capacity: 8})
	if err != nil {
		t.Fatal(err)
	}
	before := s.broker.Stats()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stream, err := s.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, tinybrokerv1.BrokerService_PublishStream_FullMethodName, grpc.ForceCodecV2(newRawCodec()))
	if err != nil {
		t.Fatal(err)
	}
	for _, frame := range frames {
		if stream.SendMsg(&rawFrame{bufs: sliceOf(frame)}) != nil {
			break
		}
	}
	_ = stream.CloseSend()
	var through, failed uint64
	for {
		var receipt tinybrokerv1.PublishStreamResponse
		if err = stream.RecvMsg(&receipt); err != nil {
			break
		}
		if receipt.GetAcceptedThrough() < through {
			t.Errorf("accepted through %d, after %d", receipt.GetAcceptedThrough(), through)
		}
		for _, failure := range receipt.GetFailures() {
			n := max(1, failure.GetCount())
			if failure.GetPosition() <= through || failure.GetPosition()+n-1 > receipt.GetAcceptedThrough() || failure.GetReason() == "" || codes.Code(failure.GetCode()) != codes.InvalidArgument {
				t.Errorf("a failure between %d and %d: %v", through, receipt.GetAcceptedThrough(), failure)
			}
			failed += n
		}
		through = receipt.GetAcceptedThrough()
	}
	if !documented(err) {
		t.Errorf("the stream ended with %v", err)
	}
	if want := readableMessages(frames); errors.Is(err, io.EOF) && through != want {
		t.Errorf("%d messages are dealt with, protobuf reads %d", through, want)
	}
	accepted := s.broker.Stats().Published - before.Published
	if accepted != through-failed {
		t.Errorf("%d accepted, the receipts say %d of which %d failed", accepted, through, failed)
	}
	if got := takeAll(t, sub); got != accepted {
		t.Errorf("%d messages came or were dropped, %d were accepted", got, accepted)
	}
	sub.Close()
	s.wantNothingLeft(t)
}

// readableMessages counts the messages up to the first frame that protobuf does not read.
func readableMessages(frames [][]byte) (n uint64) {
	for _, frame := range frames {
		var request tinybrokerv1.PublishStreamRequest
		if proto.Unmarshal(frame, &request) != nil {
			// Which of its messages are readable, FuzzScan knows.
			var scan frameScan
			if scan.scan(frame, 4<<10) != nil {
				break
			}
			n += uint64(scan.count)
			continue
		}
		n += uint64(len(request.GetMessages()))
	}
	return n
}

// takeAll takes what waits and counts it, what was dropped before it included. Every record has to be readable.
func takeAll(t *testing.T, sub *core.Subscription) (n uint64) {
	t.Helper()
	var d core.Delivery
	for sub.Take(&d, 1<<20) {
		for _, piece := range d.Pieces {
			var response tinybrokerv1.SubscribeResponse
			if err := proto.Unmarshal(piece, &response); err != nil {
				t.Errorf("% x came: %v", piece, err)
			}
		}
		n += uint64(d.Count) + d.DroppedBefore
		sub.Settle(&d, true)
	}
	return n
}

// FuzzPublish sends any bytes as a request of Publish. What is accepted reaches a subscriber as it was, and nothing else does.
func FuzzPublish(f *testing.F) {
	for _, m := range []*tinybrokerv1.PublishRequest{
		{Topic: "a.b", Payload: []byte("x"), MaxWait: durationpb.New(time.Millisecond), Key: "k", Headers: map[string]string{"a": "b"}},
		{Topic: "a b"}, {Topic: "$tb.event.x"}, {},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	station := newFuzzStation(f)
	f.Fuzz(func(t *testing.T, request []byte) {
		sub, err := station.broker.Subscribe(core.SubscribeOptions{Patterns: []string{"**"}, Capacity: 8})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var response tinybrokerv1.PublishResponse
		err = station.conn.Invoke(ctx, tinybrokerv1.BrokerService_Publish_FullMethodName, &rawFrame{bufs: sliceOf(request)}, &response, grpc.ForceCodecV2(newRawCodec()))
		var want tinybrokerv1.PublishRequest
		readable := proto.Unmarshal(request, &want) == nil
		switch code := status.Code(err); {
		case code != codes.OK && code != codes.InvalidArgument:
			t.Errorf("%v", err)
		case code == codes.OK && !(readable && response.GetReceivers() == 1):
			t.Errorf("accepted for %d receivers; protobuf reads it: %v", response.GetReceivers(), readable)
		case code == codes.OK:
			var d core.Delivery
			if !sub.Take(&d, 1<<20) || d.Count != 1 {
				t.Errorf("%d messages came", d.Count)
				break
			}
			var got tinybrokerv1.SubscribeResponse
			if err := proto.Unmarshal(d.Pieces[0], &got); err != nil || got.GetMessages()[0].GetTopic() != want.GetTopic() || !bytes.Equal(got.GetMessages()[0].GetPayload(), want.GetPayload()) {
				t.Errorf("%v came of %v: %v", &got, &want, err)
			}
			sub.Settle(&d, true)
		case takeAll(t, sub) != 0:
			t.Error("refused, and it came")
		}
		sub.Close()
		station.wantNothingLeft(t)
	})
}
