package rpc

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// probe is a subscriber and a publisher of 100 messages a second who want to notice nothing of what a test does.
type probe struct {
	stop func() (worst time.Duration)
}

func startProbe(t testing.TB, station *station) *probe {
	t.Helper()
	stub := station.stub(t)
	sub := openPatterns(t, stub, "probe.*")
	stop := make(chan struct{})
	var worst time.Duration
	var running sync.WaitGroup
	running.Go(func() {
		for n := uint64(0); ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
			sent := time.Now()
			r, err := stub.Publish(t.Context(), &tinybrokerv1.PublishRequest{Topic: "probe.p", Payload: numbered(n, 0)})
			if err != nil || r.GetReceivers() != 1 {
				t.Errorf("probe %d: %d receivers, %v", n, r.GetReceivers(), err)
				return
			}
			got, err := sub.Recv()
			if err != nil || len(got.GetMessages()) != 1 || numberOf(t, got.GetMessages()[0].GetPayload()) != n {
				t.Errorf("probe %d: received %v, %v", n, got, err)
				return
			}
			worst = max(worst, time.Since(sent))
		}
	})
	p := &probe{stop: sync.OnceValue(func() time.Duration {
		close(stop)
		running.Wait()
		return worst
	})}
	t.Cleanup(func() { p.stop() })
	return p
}

// checkGoroutines reports goroutines that are still there some time after what started them.
func checkGoroutines(t testing.TB, before int) {
	t.Helper()
	eventually(t, "goroutines are at their baseline", func() bool { return runtime.NumGoroutine() <= before+20 })
}

func TestOddSubscriptions(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	publishOne(t, stub, "warm.up", nil)
	p := startProbe(t, station)
	before := runtime.NumGoroutine()
	request := func(r *tinybrokerv1.SubscribeRequest) []*tinybrokerv1.SubscribeRequest {
		return []*tinybrokerv1.SubscribeRequest{r}
	}
	openWith := func(o *tinybrokerv1.OpenSubscription) []*tinybrokerv1.SubscribeRequest {
		if o.TopicPatterns == nil {
			o.TopicPatterns = []string{"a"}
		}
		return request(&tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Open{Open: o}})
	}
	ack := &tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Ack{Ack: &tinybrokerv1.Ack{}}}
	unknownArm := &tinybrokerv1.SubscribeRequest{}
	unknownArm.ProtoReflect().SetUnknown(appendField(nil, 99, "x"))
	nilOpen := &tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Open{}}
	for name, test := range map[string]struct {
		requests []*tinybrokerv1.SubscribeRequest
		reason   string
	}{
		"half-close at once":   {nil, "PROTOCOL"},
		"empty request":        {request(&tinybrokerv1.SubscribeRequest{}), "PROTOCOL"},
		"unknown arm":          {request(unknownArm), "PROTOCOL"},
		"open of nothing":      {request(nilOpen), "PATTERN_INVALID"},
		"ack first":            {request(ack), "PROTOCOL"},
		"leave first":          {request(&tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Leave{}}), "PROTOCOL"},
		"open twice":           {append(openWith(&tinybrokerv1.OpenSubscription{}), openRequest("b")), "PROTOCOL"},
		"ack on broadcast":     {append(openWith(&tinybrokerv1.OpenSubscription{}), ack), "PROTOCOL"},
		"then an empty one":    {append(openWith(&tinybrokerv1.OpenSubscription{}), &tinybrokerv1.SubscribeRequest{}), "PROTOCOL"},
		"MULTI with a group":   {openWith(&tinybrokerv1.OpenSubscription{Mode: 1, ConsumerGroup: "g"}), "PROTOCOL"},
		"SINGLE without one":   {openWith(&tinybrokerv1.OpenSubscription{Mode: 2}), "PROTOCOL"},
		"unknown mode":         {openWith(&tinybrokerv1.OpenSubscription{Mode: 77}), "PROTOCOL"},
		"negative mode":        {openWith(&tinybrokerv1.OpenSubscription{Mode: -1}), "PROTOCOL"},
		"unknown policy":       {openWith(&tinybrokerv1.OpenSubscription{Overflow: 77}), "PROTOCOL"},
		"negative policy":      {openWith(&tinybrokerv1.OpenSubscription{Overflow: -1}), "PROTOCOL"},
		"REJECT on broadcast":  {openWith(&tinybrokerv1.OpenSubscription{Overflow: 4}), "PROTOCOL"},
		"unknown ack mode":     {openWith(&tinybrokerv1.OpenSubscription{AckMode: 77}), "PROTOCOL"},
		"negative ack mode":    {openWith(&tinybrokerv1.OpenSubscription{AckMode: -2}), "PROTOCOL"},
		"EXPLICIT on MULTI":    {openWith(&tinybrokerv1.OpenSubscription{AckMode: 1}), "PROTOCOL"},
		"id with a control":    {openWith(&tinybrokerv1.OpenSubscription{SubscriptionId: "a\x00"}), "PROTOCOL"},
		"long id":              {openWith(&tinybrokerv1.OpenSubscription{SubscriptionId: strings.Repeat("i", 129)}), "PROTOCOL"},
		"client name with LF":  {openWith(&tinybrokerv1.OpenSubscription{ClientName: "a\nb"}), "PROTOCOL"},
		"one empty pattern":    {openWith(&tinybrokerv1.OpenSubscription{TopicPatterns: []string{""}}), "PATTERN_INVALID"},
		"10 000 same patterns": {openWith(&tinybrokerv1.OpenSubscription{TopicPatterns: strings.Fields(strings.Repeat("a ", 10_000))}), "PATTERN_INVALID"},
	} {
		t.Run(name, func(t *testing.T) {
			asked := time.Now()
			stream, err := stub.Subscribe(within(t, 10*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range test.requests {
				_ = stream.Send(r)
			}
			if test.requests == nil {
				_ = stream.CloseSend()
			}
			for err == nil {
				_, err = stream.Recv()
			}
			checkStatus(t, err, codes.InvalidArgument, test.reason)
			if d := time.Since(asked); d > time.Second {
				t.Errorf("took %s", d)
			}
		})
	}
	checkGoroutines(t, before)
	if n := station.broker.Stats().Subscriptions; n != 1 {
		t.Errorf("%d subscriptions besides the probe", n-1)
	}
	p.stop()
}

// TestMutations: whatever the bytes, every call ends with a status of the contract or goes on as if nothing had been.
func TestMutations(t *testing.T) {
	station := newStation(t, nil)
	conn := station.dial(t)
	publishOne(t, tinybrokerv1.NewBrokerServiceClient(conn), "warm.up", nil)
	p := startProbe(t, station)
	before := runtime.NumGoroutine()
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible
	for _, call := range []struct {
		method string
		model  proto.Message
		desc   *grpc.StreamDesc
	}{
		{tinybrokerv1.BrokerService_Publish_FullMethodName, &tinybrokerv1.PublishRequest{
			Topic: "a.b", Payload: []byte("payload"), Headers: map[string]string{"k": "v"}, Key: "key",
		}, &grpc.StreamDesc{}},
		{tinybrokerv1.BrokerService_PublishStream_FullMethodName, &tinybrokerv1.PublishStreamRequest{
			Messages: []*tinybrokerv1.Message{{Topic: "a.b", Payload: []byte("1")}, {Topic: "a.b", Payload: []byte("2")}, {Topic: "c", Key: "k"}},
		}, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}},
		{tinybrokerv1.BrokerService_Subscribe_FullMethodName, &tinybrokerv1.SubscribeRequest{
			Request: &tinybrokerv1.SubscribeRequest_Open{Open: &tinybrokerv1.OpenSubscription{
				SubscriptionId: "id", TopicPatterns: []string{"x.*", "!x.y"}, ClientName: "client", Capacity: 12,
			}},
		}, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}},
		{tinybrokerv1.AdminService_Watch_FullMethodName, &tinybrokerv1.WatchRequest{}, &grpc.StreamDesc{ServerStreams: true}},
	} {
		model, err := proto.Marshal(call.model)
		if err != nil {
			t.Fatal(err)
		}
		for range 250 {
			request := mutate(random, model)
			if err := callWith(t, conn, call.desc, call.method, request); err != nil && status.Code(err) != codes.InvalidArgument {
				t.Fatalf("%s of % x: %v", call.method, request, err)
			}
		}
	}
	checkGoroutines(t, before)
	p.stop()
}

func mutate(random *rand.Rand, model []byte) []byte {
	b := append([]byte(nil), model...)
	for range 1 + random.IntN(4) {
		switch i := random.IntN(len(b) + 1); random.IntN(4) {
		case 0:
			b = append(b[:i:i], append([]byte{byte(random.Uint32())}, b[i:]...)...)
		case 1:
			b = b[:i]
		case 2:
			b = append(b, protowire.AppendVarint(nil, random.Uint64())...)
		default:
			if i < len(b) {
				b[i] ^= 1 << random.IntN(8)
			}
		}
	}
	return b
}

// callWith sends one request, half-closes, and returns how the call ended; nil when something good came back first.
func callWith(t testing.TB, conn *grpc.ClientConn, desc *grpc.StreamDesc, method string, request []byte) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stream, err := conn.NewStream(ctx, desc, method, grpc.ForceCodecV2(newRawCodec()))
	if err != nil {
		return err
	}
	if err := stream.SendMsg(&rawFrame{bufs: sliceOf(request)}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	_ = stream.CloseSend()
	err = stream.RecvMsg(&rawFrame{})
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// TestOddMetadata: header names and sizes that no client of ours sends end in a status.
func TestOddMetadata(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	p := startProbe(t, station)
	for name, md := range map[string]metadata.MD{
		"a megabyte": metadata.Pairs("x", strings.Repeat("v", 1<<20)),
		"many":       {"many": make([]string, 10_000)},
		"binary":     metadata.Pairs("x-bin", "\x00\xff"),
	} {
		ctx := metadata.NewOutgoingContext(within(t, 10*time.Second), md)
		_, err := stub.Publish(ctx, &tinybrokerv1.PublishRequest{Topic: "a"})
		if (err == nil) != (name == "binary") || status.Code(err) == codes.DeadlineExceeded {
			t.Errorf("%s: %v", name, err)
		}
	}
	p.stop()
}
