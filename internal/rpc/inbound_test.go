package rpc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// sendPart begins a call with the first part of a message of size bytes.
func (c *http2Client) sendPart(method string, size, part int) error {
	stream, err := c.begin(method)
	if err != nil {
		return err
	}
	data := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(size)), make([]byte, part)...)
	for chunk := range slices.Chunk(data, 16<<10) {
		if err := c.WriteData(stream, false, chunk); err != nil {
			return err
		}
	}
	return nil
}

// TestHalfSentMessages: messages that are never sent to their end, on many streams of many connections, are bounded together. The broker
// lets go of those that have waited longest, says why, and serves everybody else.
func TestHalfSentMessages(t *testing.T) {
	station := newStation(t, func(o *core.Options, _ *ServerOptions) { o.MaxMemory = 16 << 20 })
	limit := station.server.inbound.limit
	p := startProbe(t, station)
	large := station.stub(t)
	publishOne(t, large, "warm.up", make([]byte, 1<<20-100))
	before := memoryInUse()
	const connections, streams, part = 5, 30, 700 << 10
	var told, misled atomic.Int64
	var clients []*http2Client
	for range connections {
		c := dialHTTP2(t, station)
		clients = append(clients, c)
		c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		go func() {
			_ = c.read(func(f http2.Frame) bool {
				if h, ok := f.(*http2.MetaHeadersFrame); ok && h.StreamEnded() {
					if slices.Contains(h.Fields, hpack.HeaderField{Name: "grpc-status", Value: "8"}) {
						told.Add(1)
					} else {
						misled.Add(1)
					}
				}
				return false
			})
		}()
		for i := range streams {
			method := []string{
				tinybrokerv1.BrokerService_PublishStream_FullMethodName, tinybrokerv1.BrokerService_Subscribe_FullMethodName,
				tinybrokerv1.BrokerService_Publish_FullMethodName,
			}[i%3]
			if err := c.sendPart(method, 1<<20, part); err != nil {
				t.Fatal(err)
			}
		}
		publishOne(t, large, "large", make([]byte, 1<<20-100))
		if held := station.server.inbound.held.Load(); held > limit {
			t.Fatalf("%d bytes held, the limit is %d", held, limit)
		}
	}
	least := (connections*streams*part - limit) / part
	defer func() {
		t.Logf("told %d, least %d, held %d, calls %d", told.Load(), least, station.server.inbound.held.Load(), station.server.inbound.calls.Load())
	}()
	eventually(t, "enough of them are ended, and told why", func() bool { return told.Load() >= least })
	if n := misled.Load(); n > 0 {
		t.Errorf("%d calls ended with something else", n)
	}
	methods := map[any]bool{}
	for _, line := range station.log.with(t, "call refused") {
		if methods[line["method"]] = true; line["why"] != errInbound.Error() {
			t.Errorf("%v", line)
		}
	}
	if len(methods) != 3 {
		t.Errorf("the log tells of refused calls of %v", methods)
	}
	if used := memoryInUse() - before; used > limit+connections*(400<<10)+(8<<20) {
		t.Errorf("%d MiB in use, %d accounted for", used>>20, station.server.inbound.held.Load()>>20)
	}
	p.stop()
	for _, c := range clients {
		_ = c.Close()
	}
	eventually(t, "only the probe's subscription is left", func() bool {
		return station.server.inbound.held.Load() == 0 && station.server.inbound.calls.Load() == 1
	})
}

// TestUnreadRequests: what a client sends behind messages that the broker does not get to, since nobody takes its answers, is bounded too.
func TestUnreadRequests(t *testing.T) {
	station := newStation(t, func(o *core.Options, _ *ServerOptions) { o.MaxMemory = 16 << 20 })
	in := station.server.inbound
	before := memoryInUse()
	c := dialHTTP2(t, station, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	go func() { _ = c.read(func(http2.Frame) bool { return false }) }()
	frame := bytes.Repeat([]byte{0, 0, 0, 0, 0}, 3000) // empty messages, each with a receipt
	for range 60 {
		stream, err := c.begin(tinybrokerv1.BrokerService_PublishStream_FullMethodName)
		for i := 0; err == nil && i < 60; i++ {
			err = c.WriteData(stream, false, frame)
		}
		if err != nil {
			break
		}
	}
	// gRPC would keep what came on such a stream until the receipts have been taken, ended or not.
	eventually(t, "the connection is closed", func() bool { return in.calls.Load() == 0 })
	if held := in.held.Load(); held > in.limit {
		t.Errorf("%d bytes held", held)
	}
	if used := memoryInUse() - before; used > 2*in.limit {
		t.Errorf("%d MiB in use, %d accounted for", used>>20, in.held.Load()>>20)
	}
}

// TestRequestsAreSettled: after any kind of traffic nothing is held, though the connections and their streams are still there.
func TestRequestsAreSettled(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	sub := openPatterns(t, stub, "s.*")
	stream := openPublisher(t, stub)
	squeezed, err := stub.PublishStream(within(t, 20*time.Second), grpc.UseCompressor(gzip.Name))
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible
	n := 0
	for i := range 60 {
		size := random.IntN(1 << (4 + i%16))
		messages := make([]*tinybrokerv1.Message, 1+random.IntN(4))
		for j := range messages {
			messages[j] = &tinybrokerv1.Message{Topic: "s.a", Payload: make([]byte, size)}
		}
		s := stream
		if i%3 == 0 {
			s = squeezed
		}
		sendFrame(t, s, messages...)
		receipt(t, s)
		publishOne(t, stub, "s.b", messages[0].GetPayload())
		n += len(messages) + 1
		sub.take(t, len(messages)+1)
	}
	in := station.server.inbound
	eventually(t, "nothing is held", func() bool { return in.held.Load() == 0 })
	if calls := in.calls.Load(); calls != 3 {
		t.Errorf("%d calls are known", calls)
	}

	// By hand: messages cut anywhere, several in a frame, padding.
	c := dialHTTP2(t, station)
	go func() { _ = c.read(func(http2.Frame) bool { return false }) }()
	id, err := c.begin(tinybrokerv1.BrokerService_PublishStream_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	var data []byte
	for i := range 200 {
		body, err := proto.Marshal(&tinybrokerv1.PublishStreamRequest{Messages: []*tinybrokerv1.Message{{Topic: "s.c", Payload: make([]byte, i*i%977)}}})
		if err != nil {
			t.Fatal(err)
		}
		data = append(append(data, binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body)))...), body...)
	}
	for len(data) > 0 {
		k := min(len(data), random.IntN(3000))
		if err := c.WriteDataPadded(id, false, data[:k], make([]byte, random.IntN(256))); err != nil {
			t.Fatal(err)
		}
		data = data[k:]
	}
	sub.take(t, 200)
	eventually(t, "nothing is held", func() bool { return in.held.Load() == 0 })
}

// TestCallsAreBounded: over all connections together.
func TestCallsAreBounded(t *testing.T) {
	station := newStation(t, func(o *core.Options, so *ServerOptions) { o.MaxSubscriptions, so.MaxConnections = 2, 2 })
	stub := station.stub(t)
	open := 0
	for {
		stream, err := stub.PublishStream(within(t, 20*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&tinybrokerv1.PublishStreamRequest{}); err == nil {
			_, err = stream.Recv()
			if err != nil {
				checkStatus(t, err, codes.ResourceExhausted, "QUOTA")
				break
			}
		}
		if open++; open > 100 {
			t.Fatal("no limit")
		}
	}
	if open != 2+2*callsPerConnection {
		t.Errorf("%d calls", open)
	}
}

// TestResetPace: a burst costs nothing, more costs time, and a pause makes up for it.
func TestResetPace(t *testing.T) {
	var p resetPace
	now := time.Now()
	for i := range resetBurst {
		if wait := p.reset(now); wait != 0 {
			t.Fatalf("reset %d waits %s", i, wait)
		}
	}
	for range 1000 {
		wait := p.reset(now)
		if wait != resetInterval {
			t.Fatalf("one more waits %s", wait)
		}
		now = now.Add(wait)
	}
	now = now.Add(resetBurst / 2 * resetInterval)
	for range resetBurst / 2 {
		if wait := p.reset(now); wait != 0 {
			t.Fatalf("after a pause it waits %s", wait)
		}
	}
	if p.reset(now) == 0 {
		t.Fatal("the pause made up for more than it was long")
	}
}

// TestOldCallsEndAtOnce: closing a thousand subscriptions that have lived for a while is not slowed down.
func TestOldCallsEndAtOnce(t *testing.T) {
	station := newStation(t, nil)
	conn := dialHTTP2(t, station)
	go func() { _ = conn.read(func(http2.Frame) bool { return false }) }()
	const n = 1000
	var ids []uint32
	for range n {
		id, err := conn.call(tinybrokerv1.BrokerService_Subscribe_FullMethodName, openRequest("a"))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	subscriptions := func() int { return station.broker.Stats().Subscriptions }
	eventually(t, "all are there", func() bool { return subscriptions() == n })
	time.Sleep(resetYoung)
	for _, id := range ids {
		if err := conn.WriteRSTStream(id, http2.ErrCodeCancel); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all are gone", func() bool { return subscriptions() == 0 })
	in := station.server.inbound
	in.mu.Lock()
	defer in.mu.Unlock()
	for f := range in.flows {
		if !f.pace.paid.IsZero() {
			t.Error("they were taken for young ones")
		}
	}
}

// TestFrameWalk: the same frames in whatever pieces.
func TestFrameWalk(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // reproducible
	var wire bytes.Buffer
	wire.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&wire, nil)
	var want []string
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 300 {
		stream := uint32(2*i + 1)
		switch random.IntN(6) {
		case 0:
			check(framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}))
		case 1:
			check(framer.WritePing(false, [8]byte{1}))
		case 2:
			head := make([]byte, 1+random.IntN(50))
			check(framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head, EndHeaders: true, PadLength: uint8(random.IntN(9))}))
			want = append(want, fmt.Sprint("call ", stream))
		case 3:
			check(framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: make([]byte, 5)}))
			check(framer.WriteContinuation(stream, false, make([]byte, random.IntN(9))))
			check(framer.WriteContinuation(stream, true, make([]byte, random.IntN(9))))
			want = append(want, fmt.Sprint("call ", stream))
		case 4:
			n := random.IntN(40)
			check(framer.WriteData(stream, false, make([]byte, n)))
			want = append(want, fmt.Sprint("data ", stream, " ", n))
		case 5:
			n := random.IntN(40)
			check(framer.WriteDataPadded(stream, true, make([]byte, n), make([]byte, random.IntN(9))))
			want = append(want, fmt.Sprint("data ", stream, " ", n))
		}
	}
	for range 200 {
		walk := newFrameWalk()
		var got []string
		data := -1
		flush := func() {
			if data >= 0 {
				got = append(got, fmt.Sprint("data ", walk.stream, " ", data))
			}
			data = -1
		}
		for rest := wire.Bytes(); len(rest) > 0; {
			piece := rest[:1+random.IntN(min(len(rest), 1<<random.IntN(10)))]
			rest = rest[len(piece):]
			for len(piece) > 0 {
				event, n := walk.next(piece)
				if n < 1 || n > len(piece) {
					t.Fatalf("went on by %d of %d", n, len(piece))
				}
				piece = piece[n:]
				switch event {
				case frameBegins:
					if walk.isData() {
						data = 0
					}
				case dataComes:
					data += n
				case headerEnds:
					got = append(got, fmt.Sprint("call ", walk.call))
				}
				if walk.left == 0 && walk.have == 0 {
					flush()
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%d events, want %d", len(got), len(want))
		}
	}
}

// TestHeaderThatEndsWithNothing: a header may end with an empty frame. The calls that begin so, many of them in one piece, are known like others.
func TestHeaderThatEndsWithNothing(t *testing.T) {
	station := newStation(t, nil)
	c := dialHTTP2(t, station)
	var out bytes.Buffer
	framer := c.Framer
	c.Framer = http2.NewFramer(&out, nil)
	const calls, part = 10, 10 << 10
	for range calls {
		c.emptyEnd = true
		if err := c.sendPart(tinybrokerv1.BrokerService_PublishStream_FullMethodName, 1<<20, part); err != nil {
			t.Fatal(err)
		}
	}
	c.Framer = framer
	go func() { _ = c.read(func(http2.Frame) bool { return false }) }()
	if _, err := c.Write(out.Bytes()); err != nil {
		t.Fatal(err)
	}
	in := station.server.inbound
	eventually(t, "all that was sent is accounted for", func() bool { return in.held.Load() >= calls*part })
	if n := in.calls.Load(); n != calls {
		t.Errorf("%d calls are known", n)
	}
	_ = c.Close()
	eventually(t, "nothing is held", func() bool { return in.held.Load() == 0 && in.calls.Load() == 0 })
}

// TestWhoWaitsForMemoryTakesMemory: what publishers with patience have sent, and the broker has no room for yet, is bounded like what they have sent in
// part.
func TestWhoWaitsForMemoryTakesMemory(t *testing.T) {
	t.Run("plain", func(t *testing.T) { checkWaiting(t) })
	t.Run("compressed", func(t *testing.T) { checkWaiting(t, grpc.UseCompressor(gzip.Name)) })
}

func checkWaiting(t *testing.T, options ...grpc.CallOption) {
	t.Helper()
	station := newStation(t, func(o *core.Options, _ *ServerOptions) {
		o.MaxMemory, o.GroupCapacityBytes = 8<<20, 8<<20
	})
	in := station.server.inbound
	stub := station.stub(t)
	member := open(t, stub, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"w"}, ConsumerGroup: "g", MaxInFlight: 1})
	var err error
	for err == nil {
		_, err = stub.Publish(within(t, 10*time.Second), &tinybrokerv1.PublishRequest{Topic: "w", Payload: make([]byte, 1<<20-100)})
	}
	before := memoryInUse()
	frame, err := proto.Marshal(&tinybrokerv1.PublishStreamRequest{
		MaxWait:  durationpb.New(time.Minute),
		Messages: []*tinybrokerv1.Message{{Topic: "w", Payload: make([]byte, 1<<20-100)}, {Topic: "w", Payload: make([]byte, 1<<20-100)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	const publishers = 60
	ended := make(chan error, publishers)
	for range publishers {
		stream, err := stub.PublishStream(within(t, 20*time.Second), append(options, grpc.ForceCodecV2(newRawCodec()))...)
		if err == nil {
			err = stream.SendMsg(frameOfBytes(frame))
		}
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := stream.Recv()
			ended <- err
		}()
		time.Sleep(20 * time.Millisecond) // for the broker to have read it
	}
	checkStatus(t, <-ended, codes.ResourceExhausted, "BROKER_MEMORY")
	if used := memoryInUse() - before; used > in.limit+station.broker.Options().MaxMemory+publishers*(512<<10) {
		t.Errorf("%d MiB in use, %d accounted for", used>>20, in.held.Load()>>20)
	}
	member.cancel()
}

// TestUnreadAnswers: a client that takes no answers to its calls, which have ended for the broker and not for the transport, is bounded like one whose calls
// are open.
func TestUnreadAnswers(t *testing.T) {
	for method, request := range map[string]proto.Message{
		tinybrokerv1.BrokerService_Publish_FullMethodName: &tinybrokerv1.PublishRequest{Topic: "a"},
		healthgrpc.Health_Check_FullMethodName:            &healthgrpc.HealthCheckRequest{},
	} {
		t.Run(method, func(t *testing.T) {
			station := newStation(t, func(o *core.Options, _ *ServerOptions) { o.MaxMemory = 8 << 20 })
			in := station.server.inbound
			before := memoryInUse()
			for range 3 {
				c := dialHTTP2(t, station, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
				go func() { _ = c.read(func(http2.Frame) bool { return false }) }()
				for range 1500 {
					c.more = [][2]string{{"something", fmt.Sprint(rand.Int64()) + string(bytes.Repeat([]byte("x"), 10<<10))}}
					id, err := c.call(method, request)
					if err == nil {
						err = c.WriteData(id, true, nil)
					}
					if err != nil {
						break // the connection was closed for it
					}
				}
			}
			eventually(t, "what is there is accounted for, and bounded", func() bool {
				used, held, calls := memoryInUse()-before, in.held.Load(), in.calls.Load()
				t.Logf("%d MiB in use, %d accounted for, %d calls", used>>20, held>>20, calls)
				return held <= in.limit && used <= held+calls*(8<<10)+4<<20
			})
		})
	}
}

// TestAnswersThatNobodyWants: a call is over when its client has taken the answer, does not want it any more, or is gone.
func TestAnswersThatNobodyWants(t *testing.T) {
	station := newStation(t, nil)
	in := station.server.inbound
	c := dialHTTP2(t, station, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	go func() { _ = c.read(func(http2.Frame) bool { return false }) }()
	publish := func() uint32 {
		id, err := c.call(tinybrokerv1.BrokerService_Publish_FullMethodName, &tinybrokerv1.PublishRequest{Topic: "a"})
		if err == nil {
			err = c.WriteData(id, true, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	calls := func(n int64) func() bool { return func() bool { return in.calls.Load() == n } }
	wanted, unwanted := publish(), publish()
	_ = publish()
	eventually(t, "they are published", func() bool { return station.broker.Stats().Published == 3 })
	time.Sleep(100 * time.Millisecond) // for their handlers to return
	if !calls(3)() {
		t.Errorf("%d calls are known", in.calls.Load())
	}
	if err := c.WriteWindowUpdate(wanted, 1000); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first is over", calls(2))
	if err := c.WriteRSTStream(unwanted, http2.ErrCodeCancel); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second is over", calls(1))
	_ = c.Close()
	eventually(t, "the third is over", calls(0))
}
