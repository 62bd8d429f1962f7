package rpc

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/protobuf/types/known/durationpb"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// TestUnreadReceipts: a publisher who does not read its receipts is not read either, which is nobody else's trouble.
func TestUnreadReceipts(t *testing.T) {
	station := newStation(t, nil)
	stream := openPublisher(t, station.stub(t, frozenOptions()...))
	sent := make(chan uint64, 1)
	progress := make(chan struct{}, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		n := uint64(0)
		for ctx.Err() == nil && stream.Send(&tinybrokerv1.PublishStreamRequest{Messages: []*tinybrokerv1.Message{{Topic: "a", Payload: make([]byte, 100)}}}) == nil {
			n++
			select {
			case progress <- struct{}{}:
			default:
			}
		}
		sent <- n
	}()
	for blocked := false; !blocked; {
		select {
		case <-progress:
		case <-time.After(500 * time.Millisecond):
			blocked = true
		}
	}
	published := station.broker.Stats().Published
	other := station.stub(t)
	for range 100 {
		publishOne(t, other, "b", nil)
	}
	if n := station.broker.Stats().Published; n != published+100 {
		t.Errorf("%d more messages were read from a publisher that does not read", n-published-100)
	}
	stop()
	through := uint64(0)
	for {
		select {
		case n := <-sent:
			if err := stream.CloseSend(); err != nil {
				t.Fatal(err)
			}
			for through < n {
				through = receipt(t, stream).GetAcceptedThrough()
			}
			return
		default:
			through = receipt(t, stream).GetAcceptedThrough()
		}
	}
}

// TestPublisherGoesAway: a reset in the middle of a wait leaves nothing behind, and what was confirmed is delivered.
func TestPublisherGoesAway(t *testing.T) {
	station := newStation(t, nil)
	reader := station.stub(t, frozenOptions()...)
	sub := open(t, reader, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"**"}, Capacity: 8})
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := station.stub(t).PublishStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(50) {
		err := stream.Send(&tinybrokerv1.PublishStreamRequest{
			Messages: []*tinybrokerv1.Message{{Topic: "a", Payload: numbered(i, 16<<10)}}, MaxWait: durationpb.New(time.Hour),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the publisher waits", func() bool { return station.broker.Stats().QueuedMessages >= 6 })
	confirmed := receipt(t, stream).GetAcceptedThrough()
	cancel()
	for i, m := range sub.take(t, int(confirmed)) {
		if n := numberOf(t, m.GetPayload()); n != uint64(i) {
			t.Fatalf("message %d came, want %d", n, i)
		}
	}
	sub.cancel()
	eventually(t, "nothing is left behind", func() bool {
		st := station.broker.Stats()
		return st.Memory == 0 && st.Subscriptions == 0
	})
}

// refusedFrame is a short frame with a long receipt: every other message is refused.
func refusedFrame() *tinybrokerv1.PublishStreamRequest {
	frame := &tinybrokerv1.PublishStreamRequest{}
	for range 1500 {
		frame.Messages = append(frame.Messages, &tinybrokerv1.Message{Topic: "b b"}, &tinybrokerv1.Message{Topic: "a"})
	}
	return frame
}

// TestUnreadReceiptsAreBounded: of a client that reads nothing, with many publish streams, whether they go on or have ended, with what waits behind them.
func TestUnreadReceiptsAreBounded(t *testing.T) {
	for _, ended := range []bool{false, true} {
		t.Run(fmt.Sprint("ended ", ended), func(t *testing.T) {
			station := newStation(t, func(o *core.Options, _ *ServerOptions) { o.MaxMemory = 8 << 20 })
			in := station.server.inbound
			before := memoryInUse()
			var most int64
			for range 5 {
				c := dialHTTP2(t, station, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
				go func() { _ = c.read(func(http2.Frame) bool { return false }) }()
				for range 40 {
					id, err := c.call(tinybrokerv1.BrokerService_PublishStream_FullMethodName, refusedFrame())
					if err == nil {
						err = c.WriteData(id, ended, nil)
					}
					if err != nil {
						break // the connection was closed for it
					}
				}
				time.Sleep(200 * time.Millisecond) // for the receipts, as far as they are made
				most = max(most, memoryInUse()-before)
			}
			if most > in.limit+10<<20 {
				t.Errorf("%d MiB in use, %d accounted for", most>>20, in.held.Load()>>20)
			}
		})
	}
}

// TestReceiptsOfAnEndedStream: those of a publisher that has ended its stream and does not read on are kept for some time, and no longer.
func TestReceiptsOfAnEndedStream(t *testing.T) {
	station := newStation(t, func(_ *core.Options, o *ServerOptions) { o.times.linger = 300 * time.Millisecond })
	c := dialHTTP2(t, station, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	go func() { _ = c.read(func(http2.Frame) bool { return false }) }()
	id, err := c.call(tinybrokerv1.BrokerService_PublishStream_FullMethodName, &tinybrokerv1.PublishStreamRequest{})
	if err == nil {
		err = c.WriteData(id, true, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stream is there", func() bool { return station.server.inbound.calls.Load() == 1 })
	eventually(t, "the connection is closed", func() bool { return station.server.Connections() == 0 })
	if lines := station.log.with(t, "connection closed: the receipts of an ended publish stream were not read"); len(lines) != 1 {
		t.Errorf("the log says %v", lines)
	}
	eventually(t, "nothing is left", func() bool { return station.server.inbound.calls.Load() == 0 })
}

// TestCompressedReceipts: a client that compresses cannot leave more receipts unread than others.
func TestCompressedReceipts(t *testing.T) {
	station := newStation(t, nil)
	c := dialHTTP2(t, station, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	go func() { _ = c.read(func(http2.Frame) bool { return false }) }()
	c.more = [][2]string{{"grpc-encoding", "gzip"}}
	frame := &tinybrokerv1.PublishStreamRequest{Messages: []*tinybrokerv1.Message{{Topic: "a"}}}
	id, err := c.call(tinybrokerv1.BrokerService_PublishStream_FullMethodName, frame)
	for range 3 * maxPending {
		if err == nil {
			err = c.message(id, frame)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	published := func() uint64 { return station.broker.Stats().Published }
	eventually(t, "as much is published as may be", func() bool { return published() > maxPending })
	time.Sleep(200 * time.Millisecond)
	if n := published(); n > maxPending+1 {
		t.Errorf("%d receipts are made", n)
	}
}

// TestRevokedPublisherDoesNotRead: the call of a publisher that does not take its receipts ends with its right to publish, too.
func TestRevokedPublisherDoesNotRead(t *testing.T) {
	station := newStation(t, func(_ *core.Options, o *ServerOptions) {
		o.Identities = identitiesOf(t, sweepIdentities)
		o.times.linger = time.Second
	})
	c := dialHTTP2(t, station, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	go func() { _ = c.read(func(http2.Frame) bool { return false }) }()
	c.more = [][2]string{{"authorization", "Bearer everything"}}
	for range 3 {
		id, err := c.call(tinybrokerv1.BrokerService_PublishStream_FullMethodName, refusedFrame())
		for range 20 {
			if err == nil {
				err = c.message(id, refusedFrame())
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	in := station.server.inbound
	eventually(t, "they publish", func() bool { return in.calls.Load() == 3 && station.broker.Stats().Refused >= 1000 })
	station.server.UseIdentities(identitiesOf(t, strings.ReplaceAll(sweepIdentities, "HASH:everything", "HASH:other")))
	eventually(t, "no call is left", func() bool { return in.calls.Load() == 0 })
}
