package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

const (
	evicted  = tinybrokerv1.CloseReason_CLOSE_REASON_EVICTED
	stalled  = tinybrokerv1.CloseReason_CLOSE_REASON_STALLED
	replaced = tinybrokerv1.CloseReason_CLOSE_REASON_REPLACED
	kicked   = tinybrokerv1.CloseReason_CLOSE_REASON_KICKED
	revoked  = tinybrokerv1.CloseReason_CLOSE_REASON_REVOKED
)

// TestSubscriptionSurvivesRestart: it comes back as it was, and tells the loss, the return and what was missed.
func TestSubscriptionSurvivesRestart(t *testing.T) {
	for _, orderly := range []bool{false, true} {
		t.Run(fmt.Sprintf("orderly=%v", orderly), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				site := newSite(t, nil)
				var events eventLog
				c := site.client(t, func(o *ClientOptions) { o.OnConnection = events.add })
				sub := subscribe(t, c, SubscribeOptions{
					Patterns: []string{"a.*", "b.*", "!b.x"}, ClientName: "me", Overflow: core.OverflowDropOldest, Capacity: 17,
				})
				first := <-sub.opened
				send := func(topics ...string) {
					writer := site.client(t, nil)
					for _, topic := range topics {
						if _, err := writer.Publish(t.Context(), &core.Message{Topic: topic}, 0); err != nil {
							t.Fatal(err)
						}
					}
				}
				send("a.1")
				sub.take(t, 1)
				if orderly {
					site.drain(t, time.Minute)
				} else {
					site.kill(t)
				}
				time.Sleep(90 * time.Second)
				site.start(t)
				restarted := time.Now()
				second := <-sub.opened
				if late := time.Since(restarted); late > 5*time.Second {
					t.Errorf("back %v after the broker", late)
				}
				if second.SubscriptionID != first.SubscriptionID || second.Capacity != 17 || second.Overflow != core.OverflowDropOldest ||
					second.BrokerRunID == first.BrokerRunID {
					t.Errorf("opened as %+v, then as %+v", first, second)
				}
				gap := <-sub.gaps
				if !gap.Restarted || gap.Outage < 90*time.Second || gap.Outage > 96*time.Second {
					t.Errorf("gap %+v", gap)
				}
				send("b.x", "c.1", "b.2")
				if d := sub.take(t, 1)[0]; d.Topic != "b.2" || d.Sequence != 1 {
					t.Errorf("after the restart came %+v", d)
				}
				if lost, back := events.counts(); lost != 1 || back != 1 {
					t.Errorf("told of %d losses and %d returns", lost, back)
				}
				if len(sub.endings) != 0 {
					t.Errorf("told of an eviction: %+v", <-sub.endings)
				}
			})
		})
	}
}

// TestSlowSubscriberIsEvicted: what it got is a contiguous prefix; it is told what it lost, and goes on.
func TestSlowSubscriberIsEvicted(t *testing.T) {
	for _, resubscribe := range []bool{true, false} {
		t.Run(fmt.Sprintf("resubscribe=%v", resubscribe), func(t *testing.T) {
			site := newSite(t, func(o *core.Options) { o.ConsumerCapacity = 100 })
			reader := site.client(t, nil)
			p := newPublisher(t, site.client(t, nil), PublisherOptions{})
			ctx := within(t, 20*time.Second)

			release := make(chan struct{})
			reopened := make(chan core.Ending, 1)
			opened := make(chan struct{}, 10)
			var got []int
			var ending core.Ending
			done := errors.New("done")
			result := make(chan error, 1)
			go func() {
				result <- reader.Subscribe(ctx, SubscribeOptions{
					Patterns: []string{"n"}, NoResubscribe: !resubscribe,
					OnOpened: func(Opened) { opened <- struct{}{} },
					OnEnded:  func(e core.Ending) { ending = e; reopened <- e },
				}, func(d *Delivery) error {
					<-release
					i, err := strconv.Atoi(string(d.Payload))
					if err != nil {
						return err
					}
					if i == 0 {
						return done
					}
					got = append(got, i)
					return nil
				})
			}()
			<-opened
			const n = 3000
			payload := make([]byte, 5000) // more than the windows and buffers between them hold
			for i := 1; i <= n; i++ {
				digits := strconv.Itoa(i)
				copy(payload, slices.Repeat([]byte("0"), len(payload)-len(digits)))
				copy(payload[len(payload)-len(digits):], digits)
				if _, err := p.Publish(ctx, &core.Message{Topic: "n", Payload: payload}); err != nil {
					t.Fatal(err)
				}
			}
			closePublisher(t, p)
			close(release)
			if resubscribe {
				<-reopened
				<-opened
				if _, err := reader.Publish(ctx, &core.Message{Topic: "n", Payload: []byte("0")}, 0); err != nil {
					t.Fatal(err)
				}
			}
			err := <-result
			var ended *core.EndedError
			switch {
			case resubscribe && !errors.Is(err, done):
				t.Fatalf("subscribe: %v", err)
			case !resubscribe && !errors.As(err, &ended):
				t.Fatalf("subscribe: %v", err)
			case !resubscribe:
				ending = ended.Ending
			}
			for i, v := range got {
				if v != i+1 {
					t.Fatalf("message %d is number %d", i+1, v)
				}
			}
			if ending.Reason != core.EndEvicted || ending.Lost == 0 || ending.LastSequence != uint64(len(got)) {
				t.Errorf("%d messages came, then %+v", len(got), ending)
			}
		})
	}
}

func TestTakenOverSubscriptionEnds(t *testing.T) {
	site := newSite(t, nil)
	first := subscribe(t, site.client(t, nil), SubscribeOptions{ID: "w1", Patterns: []string{"a"}})
	second := subscribe(t, site.client(t, nil), SubscribeOptions{ID: "w1", Patterns: []string{"a"}})
	var ended *core.EndedError
	if err := <-first.result; !errors.As(err, &ended) || ended.Reason != core.EndReplaced {
		t.Errorf("the first ended with %v", err)
	}
	if n, err := site.client(t, nil).Publish(within(t, 5*time.Second), &core.Message{Topic: "a"}, 0); n != 1 || err != nil {
		t.Errorf("%d receivers, %v", n, err)
	}
	second.take(t, 1)
}

func TestDroppedMessagesAreTold(t *testing.T) {
	site := newSite(t, nil)
	c := site.client(t, nil)
	ctx := within(t, 20*time.Second)
	release := make(chan struct{})
	opened := make(chan struct{})
	enough := errors.New("enough")
	var dropped, received uint64
	result := make(chan error, 1)
	go func() {
		result <- c.Subscribe(ctx, SubscribeOptions{
			Patterns: []string{"n"}, Capacity: 10, Overflow: core.OverflowDropNewest, OnOpened: func(Opened) { close(opened) },
		}, func(d *Delivery) error {
			<-release
			received++
			dropped += d.DroppedBefore
			if d.Sequence != received {
				return fmt.Errorf("delivery number %d is the %d", d.Sequence, received)
			}
			if d.Key == "last" {
				return enough
			}
			return nil
		})
	}()
	<-opened
	p := newPublisher(t, site.client(t, nil), PublisherOptions{})
	const n = 3000
	for range n {
		mustPublish(t, p, "n", make([]byte, 5000))
	}
	closePublisher(t, p)
	close(release)
	// With patience the last message is not dropped.
	if _, err := site.client(t, nil).Publish(ctx, &core.Message{Topic: "n", Key: "last"}, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := <-result; !errors.Is(err, enough) {
		t.Fatal(err)
	}
	if dropped == 0 || received+dropped != n+1 {
		t.Errorf("%d received and %d dropped of %d", received, dropped, n+1)
	}
}

// TestEvictionLoopIsSlow: a client that is evicted again and again comes back ever more slowly, until it has been well for a while.
func TestEvictionLoopIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var well atomic.Bool // whether the next stream lives for a while
		f := &fakeBroker{subscribe: func(_ int, _ *tinybrokerv1.OpenSubscription, stream fakeSubscribeStream) error {
			if err := sendOpened(stream, &tinybrokerv1.Opened{}); err != nil {
				return err
			}
			if well.Swap(false) {
				if err := sleep(stream.Context(), stableAfter); err != nil {
					return err
				}
			}
			return sendClosed(stream, evicted, 1)
		}}
		sub := subscribe(t, f.client(t, nil), SubscribeOptions{Patterns: []string{"a"}})
		time.Sleep(time.Minute)
		f.mu.Lock()
		calls := slices.Clone(f.calls)
		f.calls = nil
		well.Store(true)
		f.mu.Unlock()
		if len(calls) < 10 || len(calls) > 21 || len(sub.endings) != len(calls) {
			t.Errorf("%d evictions in a minute, %d of them told", len(calls), len(sub.endings))
		}
		var gaps []time.Duration
		for i := 1; i < len(calls); i++ {
			gaps = append(gaps, calls[i].Sub(calls[i-1]))
		}
		for i, gap := range gaps {
			if want := min(maxPause, minPause<<min(i, 10)); gap > want || gap < want*4/5 {
				t.Errorf("gap %d is %v, want about %v", i+1, gap, want)
			}
		}
		if gaps[7] == gaps[8] && gaps[8] == gaps[9] {
			t.Errorf("no jitter: %v", gaps)
		}
		time.Sleep(stableAfter + 7*time.Second)
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.calls) < 4 || f.calls[1].Sub(f.calls[0]) > stableAfter+minPause {
			t.Errorf("after a stable minute: calls at %v", f.calls)
		}
	})
}

// TestEndings: what the last frame says, or the trailers, decides what becomes of a subscription.
func TestEndings(t *testing.T) {
	trailer := func(reason tinybrokerv1.CloseReason) metadata.MD {
		return metadata.Pairs(closeReasonTrailer, reason.String(), closeLostTrailer, "7")
	}
	draining := toStatus(core.ErrDraining)
	quota := toStatus(core.ErrQuota)
	denied := status.Error(codes.PermissionDenied, "no")
	for _, test := range []struct {
		name    string
		closed  tinybrokerv1.CloseReason
		trailer metadata.MD
		err     error
		once    bool // NoResubscribe
		again   bool
		told    bool // OnEnded
		gap     bool
		reason  core.EndReason // of the error, when not again
		code    codes.Code
	}{
		{name: "evicted", closed: evicted, again: true, told: true, gap: true},
		{name: "evicted, once", closed: evicted, once: true, reason: core.EndEvicted},
		{name: "stalled", closed: stalled, again: true, told: true, gap: true},
		{name: "replaced", closed: replaced, reason: core.EndReplaced},
		{name: "kicked", closed: kicked, reason: core.EndKicked},
		{name: "revoked", closed: revoked, reason: core.EndRevoked},
		{name: "left", closed: tinybrokerv1.CloseReason_CLOSE_REASON_LEFT, reason: core.EndLeft},
		{name: "unheard of", closed: 99, reason: core.EndClosed},
		{name: "evicted by trailer", trailer: trailer(evicted), again: true, told: true, gap: true},
		{name: "evicted by trailer, once", trailer: trailer(evicted), once: true, reason: core.EndEvicted},
		{name: "replaced by trailer", trailer: trailer(replaced), reason: core.EndReplaced},
		{name: "unheard of by trailer", trailer: metadata.Pairs(closeReasonTrailer, "WHO_KNOWS"), reason: core.EndClosed},
		{name: "shutting down", closed: tinybrokerv1.CloseReason_CLOSE_REASON_SHUTTING_DOWN, err: draining, again: true, gap: true},
		{name: "draining", err: draining, again: true, gap: true},
		{name: "no room", err: quota, again: true, gap: true},
		{name: "nothing said", again: true, gap: true},
		{name: "denied", err: denied, code: codes.PermissionDenied},
		{name: "internal", err: status.Error(codes.Internal, "internal error"), code: codes.Internal},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeBroker{subscribe: func(n int, open *tinybrokerv1.OpenSubscription, stream fakeSubscribeStream) error {
					if n > 1 && open.GetSubscriptionId() != "made-up" {
						return status.Errorf(codes.Internal, "opened again as %q", open.GetSubscriptionId())
					}
					if err := sendOpened(stream, &tinybrokerv1.Opened{BrokerRunId: "r"}); err != nil || n > 1 {
						<-stream.Context().Done()
						return err
					}
					if test.closed != 0 {
						if err := sendClosed(stream, test.closed, 7); err != nil {
							return err
						}
					}
					stream.SetTrailer(test.trailer)
					return test.err
				}}
				sub := subscribe(t, f.client(t, nil), SubscribeOptions{Patterns: []string{"a"}, NoResubscribe: test.once})
				time.Sleep(10 * time.Second)
				if again := len(sub.opened) == 2; again != test.again {
					t.Errorf("opened %d times", len(sub.opened))
				}
				if told := len(sub.endings) == 1; told != test.told {
					t.Errorf("told of %d endings", len(sub.endings))
				} else if told {
					if e := <-sub.endings; e.Lost != 7 || !e.Reason.Resumable() {
						t.Errorf("told of %+v", e)
					}
				}
				if gap := len(sub.gaps) == 1; gap != test.gap {
					t.Errorf("told of %d gaps", len(sub.gaps))
				} else if gap {
					if g := <-sub.gaps; g.Restarted || g.Evicted != test.told || g.Outage < 0 {
						t.Errorf("gap %+v", g)
					}
				}
				if test.again {
					return
				}
				err := <-sub.result
				var ended *core.EndedError
				if errors.As(err, &ended) != (test.reason != core.EndNone) || ended != nil && ended.Reason != test.reason {
					t.Errorf("ended with %v, want %v", err, test.reason)
				}
				if ended == nil && status.Code(err) != test.code {
					t.Errorf("ended with %v, want %v", err, test.code)
				}
			})
		})
	}
}

// TestEvictionLearntLater: the connection was lost before the last frame could be read, and the next stream tells.
func TestEvictionLearntLater(t *testing.T) {
	for _, once := range []bool{false, true} {
		t.Run(fmt.Sprintf("once=%v", once), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeBroker{subscribe: func(n int, _ *tinybrokerv1.OpenSubscription, stream fakeSubscribeStream) error {
					opened := &tinybrokerv1.Opened{Previous: &tinybrokerv1.Closed{Reason: evicted, Lost: uint64(n)}}
					if err := sendOpened(stream, opened); err != nil {
						return err
					}
					switch n {
					case 1, 2:
						return status.Error(codes.Unavailable, "gone")
					case 3:
						return sendClosed(stream, evicted, 30)
					}
					<-stream.Context().Done()
					return nil
				}}
				sub := subscribe(t, f.client(t, nil), SubscribeOptions{Patterns: []string{"a"}, NoResubscribe: once})
				time.Sleep(time.Minute)
				var lost []uint64
				for len(sub.endings) > 0 {
					lost = append(lost, (<-sub.endings).Lost)
				}
				if once {
					var ended *core.EndedError
					if err := <-sub.result; !errors.As(err, &ended) || ended.Lost != 2 || len(lost) != 0 {
						t.Errorf("%v, told of %v", err, lost)
					}
					return
				}
				// Not the one before the first stream, which is none of ours, and not twice the one that was read.
				if !slices.Equal(lost, []uint64{2, 3, 30}) {
					t.Errorf("told of evictions with %v lost", lost)
				}
			})
		})
	}
}

func TestBrokenFramesEndSubscribe(t *testing.T) {
	message := &tinybrokerv1.Message{Topic: "a"}
	for _, test := range []struct {
		name   string
		frames []*tinybrokerv1.SubscribeResponse
	}{
		{"first frame is no opened", []*tinybrokerv1.SubscribeResponse{{Messages: []*tinybrokerv1.Message{message}, FirstSequence: 1}}},
		{"numbers do not begin at 1", []*tinybrokerv1.SubscribeResponse{
			{Opened: &tinybrokerv1.Opened{}}, {Messages: []*tinybrokerv1.Message{message}, FirstSequence: 2},
		}},
		{"a number is missing", []*tinybrokerv1.SubscribeResponse{
			{Opened: &tinybrokerv1.Opened{}}, {Messages: []*tinybrokerv1.Message{message, message}, FirstSequence: 1},
			{Messages: []*tinybrokerv1.Message{message}, FirstSequence: 4, DroppedBefore: 1},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := &fakeBroker{subscribe: func(_ int, _ *tinybrokerv1.OpenSubscription, stream fakeSubscribeStream) error {
				for _, frame := range test.frames {
					if err := stream.Send(frame); err != nil {
						return err
					}
				}
				<-stream.Context().Done()
				return nil
			}}
			err := f.client(t, nil).Subscribe(within(t, 5*time.Second), SubscribeOptions{Patterns: []string{"a"}}, func(*Delivery) error { return nil })
			if !errors.Is(err, core.ErrProtocol) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestLaggingIsTold(t *testing.T) {
	f := &fakeBroker{subscribe: func(_ int, _ *tinybrokerv1.OpenSubscription, stream fakeSubscribeStream) error {
		if err := sendOpened(stream, &tinybrokerv1.Opened{}); err != nil {
			return err
		}
		return stream.Send(&tinybrokerv1.SubscribeResponse{
			Lagging: &tinybrokerv1.Lagging{Queued: 80, QueuedBytes: 800, Capacity: 100}, FirstSequence: 1,
			Messages: []*tinybrokerv1.Message{{Topic: "a"}},
		})
	}}
	ctx, cancel := context.WithCancel(within(t, 5*time.Second))
	var told Lagging
	err := f.client(t, nil).Subscribe(ctx, SubscribeOptions{Patterns: []string{"a"}, OnLagging: func(l Lagging) { told = l }}, func(*Delivery) error {
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) || told != (Lagging{80, 800, 100}) {
		t.Errorf("%v, told %+v", err, told)
	}
}

// What was dropped at the end of a stream is told once, whether its last frame, its trailers or the next stream tell it.
func TestTheLastDropsReachTheClient(t *testing.T) {
	closed := &tinybrokerv1.Closed{Reason: stalled, Dropped: 7}
	for name, streams := range map[string][]func(fakeSubscribeStream) error{
		"in the last frame": {func(stream fakeSubscribeStream) error {
			if err := sendOpened(stream, &tinybrokerv1.Opened{}); err != nil {
				return err
			}
			stream.SetTrailer(metadata.Pairs(closeReasonTrailer, closed.GetReason().String(), closeDroppedTrailer, "7"))
			return stream.Send(&tinybrokerv1.SubscribeResponse{Closed: closed})
		}},
		"in the trailers": {func(stream fakeSubscribeStream) error {
			stream.SetTrailer(metadata.Pairs(closeReasonTrailer, closed.GetReason().String(), closeDroppedTrailer, "7"))
			return sendOpened(stream, &tinybrokerv1.Opened{})
		}},
		"by the next stream": {func(stream fakeSubscribeStream) error {
			if err := sendOpened(stream, &tinybrokerv1.Opened{}); err != nil {
				return err
			}
			return status.Error(codes.Unavailable, "gone")
		}, func(stream fakeSubscribeStream) error {
			if err := sendOpened(stream, &tinybrokerv1.Opened{Previous: closed}); err != nil {
				return err
			}
			return stream.Send(&tinybrokerv1.SubscribeResponse{Closed: &tinybrokerv1.Closed{Reason: kicked}})
		}},
		"by a broker that goes away": {func(stream fakeSubscribeStream) error {
			if err := sendOpened(stream, &tinybrokerv1.Opened{}); err != nil {
				return err
			}
			err := stream.Send(&tinybrokerv1.SubscribeResponse{Closed: &tinybrokerv1.Closed{
				Reason: tinybrokerv1.CloseReason_CLOSE_REASON_SHUTTING_DOWN, Dropped: 7,
			}})
			return cmp.Or(err, status.Error(codes.Unavailable, "draining"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeBroker{subscribe: func(n int, _ *tinybrokerv1.OpenSubscription, stream fakeSubscribeStream) error {
				if n <= len(streams) {
					return streams[n-1](stream)
				}
				if err := sendOpened(stream, &tinybrokerv1.Opened{}); err != nil {
					return err
				}
				return stream.Send(&tinybrokerv1.SubscribeResponse{Closed: &tinybrokerv1.Closed{Reason: kicked}})
			}}
			var told []uint64
			options := SubscribeOptions{Patterns: []string{"a"}, OnDropped: func(n uint64) { told = append(told, n) }}
			err := f.client(t, nil).Subscribe(within(t, 5*time.Second), options, func(*Delivery) error { return nil })
			if ended, ok := errors.AsType[*core.EndedError](err); !ok || ended.Reason != core.EndKicked || !slices.Equal(told, []uint64{7}) {
				t.Errorf("%v, told %v", err, told)
			}
		})
	}
}

func TestSubscribeGivesUp(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*ClientOptions)
		after  time.Duration
		want   string
	}{
		{"no reconnect", func(o *ClientOptions) { o.NoReconnect = true }, 0, "connection to broker at passthrough:///site lost: connection closed"},
		{"reconnect timeout", func(o *ClientOptions) { o.ReconnectTimeout = 5 * time.Second }, 5 * time.Second, "connection to broker at passthrough:///site lost: connection refused"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				site := newSite(t, nil)
				sub := subscribe(t, site.client(t, test.change), SubscribeOptions{Patterns: []string{"a"}})
				start := time.Now()
				site.kill(t)
				err := <-sub.result
				var unreachable *UnreachableError
				if !errors.As(err, &unreachable) || err.Error() != test.want {
					t.Errorf("got %v", err)
				}
				if d := time.Since(start); d.Round(200*time.Millisecond) != test.after {
					t.Errorf("after %v", d)
				}
			})
		})
	}
}

// TestPartlyConfirmedFrame: a broker that stops in the middle of a frame gets, or its successor does, only the rest again.
func TestPartlyConfirmedFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got [][]string
		f := &fakeBroker{publish: func(n int, stream fakePublishStream) error {
			got = append(got, nil)
			for through := uint64(0); ; {
				frame, err := stream.Recv()
				if err != nil {
					return nil //nolint:nilerr // the client is done
				}
				if frame.GetMaxWait().AsDuration() != time.Second {
					return status.Error(codes.Internal, "max_wait is missing")
				}
				for _, m := range frame.GetMessages() {
					got[n-1] = append(got[n-1], string(m.GetPayload()))
				}
				through += uint64(len(frame.GetMessages()))
				if n < 3 {
					if err := stream.Send(&tinybrokerv1.PublishStreamResponse{AcceptedThrough: 2}); err != nil {
						return err
					}
					return status.Error(codes.Unavailable, "going")
				}
				if err := stream.Send(&tinybrokerv1.PublishStreamResponse{AcceptedThrough: through}); err != nil {
					return err
				}
			}
		}}
		receipts := newReceiptLog(t)
		p := newPublisher(t, f.client(t, nil), PublisherOptions{MaxWait: time.Second, OnReceipt: receipts.add})
		// One frame, since the sender is kept from taking it before it is complete.
		p.mu.Lock()
		for i := range 7 {
			p.window.add(&core.Message{Topic: "a", Payload: []byte(strconv.Itoa(i + 1))})
		}
		p.work.Signal()
		p.mu.Unlock()
		closePublisher(t, p)
		want := [][]string{{"1", "2", "3", "4", "5", "6", "7"}, {"3", "4", "5", "6", "7"}, {"5", "6", "7"}}
		if len(got) != 3 || !slices.EqualFunc(got, want, slices.Equal[[]string]) || receipts.last != 7 {
			t.Errorf("the broker got %v, receipts up to %d", got, receipts.last)
		}
	})
}
