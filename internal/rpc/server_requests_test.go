package rpc

import (
	"bytes"
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// rawSubscribe opens a subscription and returns its stream, which sends rawFrames.
func rawSubscribe(t *testing.T, conn *grpc.ClientConn, o *tinybrokerv1.OpenSubscription, options ...grpc.CallOption) grpc.ClientStream {
	t.Helper()
	stream, err := conn.NewStream(within(t, 30*time.Second), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		tinybrokerv1.BrokerService_Subscribe_FullMethodName, append(options, grpc.ForceCodecV2(newRawCodec()))...)
	if err == nil {
		err = stream.SendMsg(&tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Open{Open: o}})
	}
	if err == nil {
		err = stream.RecvMsg(new(tinybrokerv1.SubscribeResponse))
	}
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// allocated is how much was ever allocated.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// TestManyRanges: a request may be full of ranges, which take two bytes and are read where they are. A longer one is refused.
func TestManyRanges(t *testing.T) {
	station := newStation(t, nil)
	conn := station.dial(t)
	member := &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"a"}, ConsumerGroup: "g"}
	stream := rawSubscribe(t, conn, member)
	full := bytes.Repeat([]byte{fieldRanges<<3 | 2, 0}, maxSubscriberRequest/2-4)
	for _, kind := range []protowire.Number{fieldAck, fieldNack, fieldExtend} {
		if err := stream.SendMsg(frameOfBytes(appendField(nil, kind, string(full)))); err != nil {
			t.Fatal(err)
		}
	}
	want := uint64(3 * len(full) / 2)
	eventually(t, "all of them have been dealt with", func() bool { return station.broker.Groups()[0].Ineffective == want })

	before := allocated()
	for range 10 {
		if _, _, err := readRequest(appendField(nil, fieldAck, string(full))); err != nil {
			t.Fatal(err)
		}
	}
	if took := (allocated() - before) / 10; took > 3*maxSubscriberRequest {
		t.Errorf("reading a request of %d bytes takes %d", len(full), took)
	}

	for _, options := range [][]grpc.CallOption{nil, {grpc.UseCompressor(gzip.Name)}} {
		stream = rawSubscribe(t, conn, member, options...)
		if err := stream.SendMsg(frameOfBytes(appendField(nil, fieldAck, string(full)+string(full)))); err != nil {
			t.Fatal(err)
		}
		checkStatus(t, stream.RecvMsg(new(tinybrokerv1.SubscribeResponse)), codes.InvalidArgument, "PROTOCOL")
	}
}

// TestOtherRequestsAreShort: of the services that answer with what they were asked, or keep it for as long as the call is open.
func TestOtherRequestsAreShort(t *testing.T) {
	station := newStation(t, nil)
	conn := station.dial(t)
	for _, method := range []string{
		tinybrokerv1.AdminService_Watch_FullMethodName, tinybrokerv1.AdminService_CloseSubscription_FullMethodName,
		healthgrpc.Health_Check_FullMethodName, healthgrpc.Health_Watch_FullMethodName, healthgrpc.Health_List_FullMethodName,
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
	} {
		ask := func(request []byte, options ...grpc.CallOption) error {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method,
				append(options, grpc.ForceCodecV2(newRawCodec()))...)
			if err == nil {
				err = stream.SendMsg(frameOfBytes(request))
			}
			if err == nil {
				err = stream.CloseSend()
			}
			if err != nil {
				return err
			}
			return stream.RecvMsg(new(rawFrame))
		}
		long := appendField(nil, 99, string(make([]byte, 2*maxOtherRequest)))
		t.Run(method, func(t *testing.T) {
			checkStatus(t, ask(long), codes.InvalidArgument, "PROTOCOL")
			checkStatus(t, ask(long, grpc.UseCompressor(gzip.Name)), codes.InvalidArgument, "PROTOCOL")
			checkStatus(t, ask([]byte{0xff}), codes.InvalidArgument, "PROTOCOL")
		})
	}
}

// FuzzReadRequest holds the reader of subscribers' requests against protobuf itself.
func FuzzReadRequest(f *testing.F) {
	rs := []*tinybrokerv1.SequenceRange{{First: 1}, {}, {Last: 7}, {First: 9, Last: 3}, {First: 1 << 63, Last: 1<<64 - 1}}
	var all [][]byte
	for _, r := range []*tinybrokerv1.SubscribeRequest{
		{Request: &tinybrokerv1.SubscribeRequest_Ack{Ack: &tinybrokerv1.Ack{Ranges: rs}}},
		{Request: &tinybrokerv1.SubscribeRequest_Nack{Nack: &tinybrokerv1.Nack{Ranges: rs[:2], Action: 3, Reason: "no", Delay: durationpb.New(5)}}},
		{Request: &tinybrokerv1.SubscribeRequest_Extend{Extend: &tinybrokerv1.ExtendDeadline{Ranges: rs[1:], Deadline: durationpb.New(time.Hour)}}},
		{Request: &tinybrokerv1.SubscribeRequest_Leave{Leave: &tinybrokerv1.Leave{}}},
		openRequest("a", "b"),
		{},
	} {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, b)
	}
	for _, a := range all {
		for _, b := range all {
			// Several of them: the last counts, and those of one kind are one.
			f.Add(slices.Concat(a, b))
			f.Add(slices.Concat(a, appendField(nil, 77, "x"), b, a))
		}
	}
	f.Add(appendField(nil, fieldAck, "\x0a\x01\x08"))
	f.Add(appendField(nil, fieldAck, "\x0a\x02\x0a\x00"))
	f.Add(appendField(nil, fieldAck, "\x08\x05"))
	f.Add([]byte{fieldAck << 3, 5})
	f.Fuzz(func(t *testing.T, frame []byte) {
		var want tinybrokerv1.SubscribeRequest
		unmarshalErr := proto.Unmarshal(frame, &want)
		got, ranges, err := readRequest(frame)
		if (err != nil) != (unmarshalErr != nil) {
			t.Fatalf("%v, protobuf says %v", err, unmarshalErr)
		}
		if err != nil {
			return
		}
		wanted := slices.Concat(rangesFromProto(want.GetAck().GetRanges()), rangesFromProto(want.GetNack().GetRanges()), rangesFromProto(want.GetExtend().GetRanges()))
		if read := slices.Collect(ranges); !slices.Equal(read, wanted) {
			t.Fatalf("ranges %v, protobuf says %v", read, wanted)
		}
		switch r := want.GetRequest().(type) {
		case *tinybrokerv1.SubscribeRequest_Ack:
			r.Ack.Ranges = nil
		case *tinybrokerv1.SubscribeRequest_Nack:
			r.Nack.Ranges = nil
		case *tinybrokerv1.SubscribeRequest_Extend:
			r.Extend.Ranges = nil
		}
		if !proto.Equal(got, &want) {
			t.Fatalf("read %v, protobuf says %v", got, &want)
		}
	})
}
