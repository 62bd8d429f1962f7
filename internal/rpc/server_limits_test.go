package rpc

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

func sliceOf(b []byte) mem.BufferSlice { return mem.BufferSlice{mem.SliceBuffer(b)} }

// TestMessageSizeLimit: topic, key, headers and payload count, and the limit is exact.
func TestMessageSizeLimit(t *testing.T) {
	shapes := map[string]func(size int) *tinybrokerv1.PublishRequest{
		"payload": func(n int) *tinybrokerv1.PublishRequest {
			return &tinybrokerv1.PublishRequest{Topic: "abc", Payload: make([]byte, n-3)}
		},
		"key": func(n int) *tinybrokerv1.PublishRequest {
			return &tinybrokerv1.PublishRequest{Topic: "abc", Key: strings.Repeat("k", n-3)}
		},
		"header": func(n int) *tinybrokerv1.PublishRequest {
			return &tinybrokerv1.PublishRequest{Topic: "abc", Headers: map[string]string{"name": strings.Repeat("v", n-3-4)}}
		},
		"all": func(n int) *tinybrokerv1.PublishRequest {
			return &tinybrokerv1.PublishRequest{Topic: "abc", Key: "key", Headers: map[string]string{"name": "value"}, Payload: make([]byte, n-3-3-9)}
		},
		"many headers": func(n int) *tinybrokerv1.PublishRequest {
			r := &tinybrokerv1.PublishRequest{Topic: "abc", Headers: map[string]string{}}
			n -= 3
			for i := 0; n > 64; i++ {
				name := fmt.Sprintf("%08d", i)
				r.Headers[name] = name
				n -= 16
			}
			r.Payload = make([]byte, n)
			return r
		},
	}
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			limit := 64 << 10
			if name == "payload" {
				limit = 1 << 20 // the default
			}
			stub := newStation(t, func(o *core.Options, _ *ServerOptions) { o.MaxMessageSize = limit }).stub(t)
			sub := openPatterns(t, stub, "**")
			for _, d := range []int{-1, 0} {
				r := shape(limit + d)
				if _, err := stub.Publish(t.Context(), r); err != nil {
					t.Fatalf("limit %+d: %v", d, err)
				}
				got := sub.take(t, 1)[0]
				if !bytes.Equal(got.GetPayload(), r.GetPayload()) || got.GetKey() != r.GetKey() || len(got.GetHeaders()) != len(r.GetHeaders()) {
					t.Fatalf("limit %+d: another message arrived", d)
				}
			}
			_, err := stub.Publish(t.Context(), shape(limit+1))
			checkStatus(t, err, codes.InvalidArgument, "MESSAGE_TOO_LARGE")
		})
	}
}

// TestFarTooLarge: what the transport of a stock server would refuse with RESOURCE_EXHAUSTED, inviting to try again, is
// told for what it is, on every road in.
func TestFarTooLarge(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	for _, size := range []int{2 << 20, 4<<20 + 1, 15 << 20} {
		payload := make([]byte, size)
		_, err := stub.Publish(within(t, 20*time.Second), &tinybrokerv1.PublishRequest{Topic: "a", Payload: payload})
		checkStatus(t, err, codes.InvalidArgument, "MESSAGE_TOO_LARGE")

		stream, err := stub.PublishStream(within(t, 20*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&tinybrokerv1.PublishStreamRequest{Messages: []*tinybrokerv1.Message{{Topic: "a", Payload: payload}}})
		receipt, err := stream.Recv()
		if err == nil { // small enough to be a frame: the message alone is refused
			f := receipt.GetFailures()
			if size >= 4<<20 || len(f) != 1 || f[0].GetPosition() != 1 || f[0].GetReason() != "MESSAGE_TOO_LARGE" || receipt.GetAcceptedThrough() != 1 {
				t.Errorf("%d bytes: %v", size, receipt)
			}
			continue
		}
		checkStatus(t, err, codes.InvalidArgument, "MESSAGE_TOO_LARGE")
	}
	_, err := stub.Publish(within(t, 20*time.Second), &tinybrokerv1.PublishRequest{Topic: "a", Payload: make([]byte, 5<<20)}, grpc.UseCompressor(gzip.Name))
	checkStatus(t, err, codes.InvalidArgument, "MESSAGE_TOO_LARGE")
	if m := station.broker.Stats().Memory; m != 0 {
		t.Errorf("%d bytes held", m)
	}
}

// TestLargeEncoding: a message of no size at all, but with an encoding that grows past what its readers take, is refused.
func TestLargeEncoding(t *testing.T) {
	const limit = 64 << 10
	station := newStation(t, func(o *core.Options, _ *ServerOptions) { o.MaxMessageSize = limit })
	conn := station.dial(t)
	sub := openPatterns(t, station.stub(t), "**")
	headers := func(n int) []byte {
		b := appendField(nil, fieldTopic, "a")
		for range n {
			b = appendField(b, fieldHeaders, "")
		}
		return b
	}
	if err := rawPublish(within(t, 20*time.Second), conn, headers(limit)); err != nil {
		t.Fatal(err)
	}
	if got := sub.take(t, 1)[0]; proto.Size(got) == 0 || got.GetTopic() != "a" {
		t.Errorf("got %d bytes on %q", proto.Size(got), got.GetTopic())
	}
	checkStatus(t, rawPublish(within(t, 20*time.Second), conn, headers(limit+limit/2)), codes.InvalidArgument, "MESSAGE_TOO_LARGE")
}

// TestBoundedTexts: clients that take 8 KiB of headers learn what was wrong with a megabyte.
func TestBoundedTexts(t *testing.T) {
	station := newStation(t, nil)
	clients := map[string]tinybrokerv1.BrokerServiceClient{
		"stock":               station.stub(t),
		"header limit of 8 K": station.stub(t, grpc.WithMaxHeaderListSize(8<<10)),
	}
	long := map[string]string{
		"letters":  strings.Repeat("x", 1<<20-100),
		"controls": strings.Repeat("\x01", 1<<20-100),
		"wide":     strings.Repeat("ü", 1<<19-100),
		"percents": strings.Repeat("%", 1<<20-100),
	}
	for name, stub := range clients {
		for kind, text := range long {
			t.Run(name+"/"+kind, func(t *testing.T) {
				_, err := stub.Publish(within(t, 20*time.Second), &tinybrokerv1.PublishRequest{Topic: text})
				checkStatus(t, err, codes.InvalidArgument, "TOPIC_INVALID")
				_, err = tryOpen(within(t, 20*time.Second), stub, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{text}})
				checkStatus(t, err, codes.InvalidArgument, "PATTERN_INVALID")
				for _, o := range []*tinybrokerv1.OpenSubscription{
					{SubscriptionId: text, TopicPatterns: []string{"a"}},
					{ClientName: text, TopicPatterns: []string{"a"}},
					{ConsumerGroup: text, TopicPatterns: []string{"a"}},
				} {
					_, err = tryOpen(within(t, 20*time.Second), stub, o)
					checkStatus(t, err, codes.InvalidArgument, "PROTOCOL")
				}
			})
		}
		t.Run(name+"/many bad patterns", func(t *testing.T) {
			patterns := make([]string, 10_000)
			for i := range patterns {
				patterns[i] = fmt.Sprintf("a.[%d", i)
			}
			_, err := tryOpen(within(t, 20*time.Second), stub, &tinybrokerv1.OpenSubscription{TopicPatterns: patterns})
			checkStatus(t, err, codes.InvalidArgument, "PATTERN_INVALID")
		})
	}
}

// TestUnknownMethodNames: a method that does not exist is not told its whole name, whatever that is.
func TestUnknownMethodNames(t *testing.T) {
	station := newStation(t, nil)
	conn := dialHTTP2(t, station)
	conn.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	long := strings.Repeat("x", 12_000)
	for _, name := range []string{"", "/", "x", long, "/" + long, "/a/" + long, "/" + long + "/a", "/tinybroker.v1.BrokerService/" + long, "tinybroker.v1.BrokerService/Publish"} {
		id, err := conn.begin(name)
		if err != nil {
			t.Fatal(err)
		}
		var headers *http2.MetaHeadersFrame
		if err := conn.read(func(f http2.Frame) bool {
			h, ok := f.(*http2.MetaHeadersFrame)
			if ok && h.StreamID == id {
				headers = h
			}
			return headers != nil
		}); err != nil {
			t.Fatal(err)
		}
		fields := map[string]string{}
		for _, f := range headers.Fields {
			fields[f.Name] = f.Value
		}
		if text := fields["grpc-message"]; fields["grpc-status"] != fmt.Sprint(uint32(codes.Unimplemented)) || len(text) > maxText+3*len(ellipsis) {
			t.Errorf("%.40q: status %s, %d bytes of text", name, fields["grpc-status"], len(text))
		}
	}
}

// TestRefusedCallsLeaveNothingBehind: calls that are refused before they have begun, with deadlines that are far away. gRPC would keep a timer for each
// until then, whatever becomes of their connection.
func TestRefusedCallsLeaveNothingBehind(t *testing.T) {
	station := newStation(t, func(_ *core.Options, so *ServerOptions) { so.Identities = identitiesOf(t, sweepIdentities) })
	const calls = 20_000
	for _, test := range []struct {
		method string
		code   codes.Code
	}{
		{"/no.such/Method", codes.Unimplemented},
		{"/tinybroker.v1.BrokerService/NoSuchMethod", codes.Unimplemented},
		{tinybrokerv1.BrokerService_PublishStream_FullMethodName, codes.Unauthenticated},
	} {
		t.Run(test.method, func(t *testing.T) {
			before := memoryInUse()
			c := dialHTTP2(t, station)
			c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
			c.more = [][2]string{{"grpc-timeout", "99999999H"}}
			ended := make(chan error, 1)
			go func() {
				n := 0
				ended <- c.read(func(f http2.Frame) bool {
					if rst, ok := f.(*http2.RSTStreamFrame); ok && rst.ErrCode == http2.ErrCodeRefusedStream {
						n++ // there were maxStreams of them at once
					}
					if h, ok := f.(*http2.MetaHeadersFrame); ok && h.StreamEnded() {
						n++
						if want := (hpack.HeaderField{Name: "grpc-status", Value: fmt.Sprint(uint32(test.code))}); !slices.Contains(h.Fields, want) {
							t.Errorf("ended with %v", h.Fields)
						}
					}
					return n == calls
				})
			}()
			for range calls {
				if _, err := c.begin(test.method); err != nil {
					t.Fatal(err)
				}
			}
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			_ = c.Close()
			eventually(t, "the connection is gone", func() bool { return station.server.Connections() == 0 })
			if left := memoryInUse() - before; left > calls*100 {
				t.Errorf("%d bytes are left of each call", left/calls)
			}
		})
	}
}
