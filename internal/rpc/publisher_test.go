package rpc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// receiptLog collects receipts and checks that they follow each other.
type receiptLog struct {
	t *testing.T

	mu       sync.Mutex
	last     uint64
	unrouted uint64
	refused  map[uint64]error
}

func newReceiptLog(t *testing.T) *receiptLog {
	t.Helper()
	return &receiptLog{t: t, refused: make(map[uint64]error)}
}

func (l *receiptLog) add(r Receipt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.First != l.last+1 || r.Last < r.First {
		l.t.Errorf("receipt for %d to %d after one for %d", r.First, r.Last, l.last)
	}
	l.last = r.Last
	l.unrouted += r.Unrouted
	for i := r.First; r.Err != nil && i <= r.Last; i++ {
		l.refused[i] = r.Err
	}
}

func newPublisher(t *testing.T, c *Client, o PublisherOptions) *Publisher {
	t.Helper()
	p, err := c.Publisher(within(t, 10*time.Second), o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustPublish(t *testing.T, p *Publisher, topic string, payload []byte) uint64 {
	t.Helper()
	position, err := p.Publish(within(t, 20*time.Second), &core.Message{Topic: topic, Payload: payload})
	if err != nil {
		t.Fatalf("publish: %v", err)
	}
	return position
}

func closePublisher(t *testing.T, p *Publisher) {
	t.Helper()
	if err := p.Close(within(t, 20*time.Second)); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestPublisherKeepsOrder(t *testing.T) {
	c := newSite(t, nil).client(t, nil)
	sub := subscribe(t, c, SubscribeOptions{Patterns: []string{"n.*"}})
	receipts := newReceiptLog(t)
	p := newPublisher(t, c, PublisherOptions{OnReceipt: receipts.add, MaxWait: 5 * time.Second})
	const n = 50_000
	ctx := within(t, 30*time.Second)
	for i := 1; i <= n; i++ {
		topic := "n.even"
		if i%3 == 1 {
			topic = "n.odd"
		}
		position, err := p.Publish(ctx, &core.Message{Topic: topic, Payload: strconv.AppendInt(nil, int64(i), 10)})
		if err != nil || position != uint64(i) {
			t.Fatalf("message %d: position %d, %v", i, position, err)
		}
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if p.confirmed() != n || receipts.last != n || receipts.unrouted != 0 || len(receipts.refused) != 0 {
		t.Errorf("%d confirmed, receipts up to %d, %d unrouted, %d refused", p.confirmed(), receipts.last, receipts.unrouted, len(receipts.refused))
	}
	for i, d := range sub.take(t, n) {
		if string(d.Payload) != strconv.Itoa(i+1) || d.Sequence != uint64(i+1) {
			t.Fatalf("message %d: payload %q, delivery number %d", i+1, d.Payload, d.Sequence)
		}
	}
	closePublisher(t, p)
	closePublisher(t, p)
	if _, err := p.Publish(ctx, &core.Message{Topic: "n.x"}); !errors.Is(err, ErrPublisherClosed) {
		t.Errorf("publish after close: %v", err)
	}
}

// TestPublisherSendsAtOnce: a message waits for no other.
func TestPublisherSendsAtOnce(t *testing.T) {
	c := newSite(t, nil).client(t, nil)
	confirmed := make(chan Receipt, 1)
	p := newPublisher(t, c, PublisherOptions{OnReceipt: func(r Receipt) { confirmed <- r }})
	for i := range uint64(20) {
		mustPublish(t, p, "alone", nil)
		if r := <-confirmed; r != (Receipt{First: i + 1, Last: i + 1, Unrouted: 1}) {
			t.Errorf("message %d: %+v", i+1, r)
		}
	}
	closePublisher(t, p)
}

func TestPublisherReportsRefusals(t *testing.T) {
	c := newSite(t, func(o *core.Options) { o.MaxMessageSize = 1000 }).client(t, nil)
	sub := subscribe(t, c, SubscribeOptions{Patterns: []string{"**"}})
	receipts := newReceiptLog(t)
	p := newPublisher(t, c, PublisherOptions{OnReceipt: receipts.add})
	large := make([]byte, 5<<20) // more than the transport takes
	want := map[uint64]error{}
	good := 0
	for round := range 3 {
		for _, m := range []struct {
			topic   string
			payload []byte
			err     error
		}{
			{"good", nil, nil},
			{"bad topic", nil, core.ErrTopicInvalid},
			{"bad..topic", nil, core.ErrTopicInvalid},
			{"good", nil, nil},
			{"good", make([]byte, 1000), core.ErrMessageTooLarge},
			{"good", large, core.ErrMessageTooLarge},
			{"$tb.mine", nil, core.ErrTopicInvalid},
			{"good", nil, nil},
		} {
			position := mustPublish(t, p, m.topic, m.payload)
			if m.err != nil {
				want[position] = m.err
			} else {
				good++
			}
		}
		if round == 1 {
			if err := p.Flush(within(t, 10*time.Second)); err != nil {
				t.Fatal(err)
			}
		}
	}
	closePublisher(t, p)
	for position, err := range want {
		if !errors.Is(receipts.refused[position], err) {
			t.Errorf("message %d: refused for %v, want %v", position, receipts.refused[position], err)
		}
	}
	if len(receipts.refused) != len(want) || receipts.last != 24 {
		t.Errorf("%d refused, want %d; receipts up to %d", len(receipts.refused), len(want), receipts.last)
	}
	if ds := sub.take(t, good); ds[good-1].Sequence != uint64(good) {
		t.Errorf("last delivery %+v", ds[good-1])
	}
}

// TestPublisherSurvivesRestart: what the broker that died had not confirmed goes to the next one, in order and without a hole.
func TestPublisherSurvivesRestart(t *testing.T) {
	site := newSite(t, nil)
	var events eventLog
	c := site.client(t, func(o *ClientOptions) { o.OnConnection = events.add })
	receipts := newReceiptLog(t)
	half := make(chan struct{})
	p := newPublisher(t, c, PublisherOptions{MaxInFlight: 5000, OnReceipt: func(r Receipt) {
		receipts.add(r)
		if r.Last >= 10_000 && half != nil {
			close(half)
			half = nil
		}
	}})
	const n = 50_000
	published := make(chan struct{})
	halfway := half
	go func() {
		defer close(published)
		for i := 1; i <= n; i++ {
			if _, err := p.Publish(t.Context(), &core.Message{Topic: "n", Payload: strconv.AppendInt(nil, int64(i), 10)}); err != nil {
				t.Errorf("message %d: %v", i, err)
				return
			}
		}
	}()
	<-halfway
	first := site.broker
	site.kill(t)
	confirmed := p.confirmed()
	site.start(t)
	sub := subscribe(t, site.client(t, nil), SubscribeOptions{Patterns: []string{"n"}})
	<-published
	closePublisher(t, p)

	if got := first.Stats().Published + site.broker.Stats().Published; got < n {
		t.Errorf("the brokers took %d messages, want %d at least", got, n)
	}
	if got := site.broker.Stats().Published; got > n-confirmed {
		t.Errorf("the second broker took %d messages, the first had confirmed %d of %d", got, confirmed, n)
	}
	if receipts.last != n || len(receipts.refused) > 0 {
		t.Errorf("receipts up to %d, %d refused", receipts.last, len(receipts.refused))
	}
	expected := 0
	for _, d := range sub.take(t, int(site.broker.Stats().Published-site.broker.Stats().Unrouted)) {
		i, err := strconv.Atoi(string(d.Payload))
		if err != nil || expected > 0 && i != expected {
			t.Fatalf("message %q, expected %d (%v)", d.Payload, expected, err)
		}
		expected = i + 1
	}
	if expected != 0 && expected != n+1 {
		t.Errorf("the last message was %d", expected-1)
	}
	if lost, back := events.counts(); lost != 1 || back != 1 {
		t.Errorf("told of %d losses and %d returns: %v", lost, back, events.all)
	}
}

type eventLog struct {
	mu  sync.Mutex
	all []ConnectionEvent
}

func (l *eventLog) add(e ConnectionEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !e.Waiting {
		l.all = append(l.all, e)
	}
}

func (l *eventLog) counts() (lost, back int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.all {
		if e.Lost {
			lost++
		} else {
			back++
		}
	}
	return lost, back
}

func TestPublisherGivesUp(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*ClientOptions)
		after  time.Duration
	}{
		{"no reconnect", func(o *ClientOptions) { o.NoReconnect = true }, 0},
		{"reconnect timeout", func(o *ClientOptions) { o.ReconnectTimeout = 30 * time.Second }, 30 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				site := newSite(t, nil)
				c := site.client(t, test.change)
				p := newPublisher(t, c, PublisherOptions{})
				for range 3 {
					mustPublish(t, p, "a", nil)
				}
				if err := p.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				site.kill(t)
				if test.after > 0 {
					synctest.Wait()
					mustPublish(t, p, "a", nil)
					mustPublish(t, p, "a", nil)
				}
				<-p.Done()
				if d := time.Since(start); d.Round(time.Second) != test.after {
					t.Errorf("gave up after %v, want %v", d, test.after)
				}
				err := p.Close(t.Context())
				var unconfirmed *UnconfirmedError
				var unreachable *UnreachableError
				if !errors.As(err, &unconfirmed) || !errors.As(err, &unreachable) || !unreachable.Lost || unconfirmed.First != 4 {
					t.Fatalf("got %#v", err)
				}
				if test.after > 0 && (unconfirmed.Last != 5 || !strings.Contains(err.Error(), "connection refused; messages 4 to 5 are unconfirmed")) {
					t.Errorf("got %v", err)
				}
				if _, err := p.Publish(t.Context(), &core.Message{Topic: "a"}); !errors.Is(err, unconfirmed) {
					t.Errorf("publish: %v", err)
				}
				if err := p.Flush(t.Context()); test.after > 0 && !errors.Is(err, unconfirmed) {
					t.Errorf("flush: %v", err)
				}
			})
		})
	}
}

// TestPublisherWindow: with nobody there, Publish blocks once the window is full.
func TestPublisherWindow(t *testing.T) {
	for _, test := range []struct {
		name    string
		o       PublisherOptions
		payload int
		want    int
	}{
		{"messages", PublisherOptions{MaxInFlight: 100}, 10, 100},
		{"bytes", PublisherOptions{}, 1 << 20, 16},
		{"one large", PublisherOptions{}, 20 << 20, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				site := newSite(t, nil)
				c := site.client(t, nil)
				p := newPublisher(t, c, test.o)
				site.kill(t)
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				n := 0
				payload := make([]byte, test.payload)
				for ; ; n++ {
					if _, err := p.Publish(ctx, &core.Message{Topic: "a", Payload: payload}); err != nil {
						if !errors.Is(err, context.DeadlineExceeded) {
							t.Error(err)
						}
						break
					}
				}
				if n != test.want {
					t.Errorf("%d messages went into the window, want %d", n, test.want)
				}
				closing, giveUp := context.WithTimeout(t.Context(), 2*time.Second)
				defer giveUp()
				var unconfirmed *UnconfirmedError
				if err := p.Close(closing); !errors.As(err, &unconfirmed) || unconfirmed.First != 1 || unconfirmed.Last != uint64(n) {
					t.Errorf("close: %v", err)
				}
			})
		})
	}
}

// TestPublisherAcrossDrain: a broker that goes in order loses nothing, and the next one gets what came later.
func TestPublisherAcrossDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := newSite(t, nil)
		var events eventLog
		c := site.client(t, func(o *ClientOptions) { o.OnConnection = events.add })
		receipts := newReceiptLog(t)
		p := newPublisher(t, c, PublisherOptions{OnReceipt: receipts.add})
		mustPublish(t, p, "a", nil)
		site.drain(t, time.Minute)
		mustPublish(t, p, "a", nil)
		time.Sleep(90 * time.Second)
		site.start(t)
		closePublisher(t, p)
		if receipts.last != 2 {
			t.Errorf("receipts up to %d", receipts.last)
		}
		if lost, back := events.counts(); lost != 1 || back != 1 {
			t.Errorf("told of %d losses and %d returns", lost, back)
		}
		if outage := events.all[1].Outage; outage < 90*time.Second || outage > 96*time.Second {
			t.Errorf("back after %v", outage)
		}
	})
}

// TestCloseWhileAway: a publisher with nothing unconfirmed does not need the connection to end.
func TestCloseWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := newSite(t, nil)
		p := newPublisher(t, site.client(t, nil), PublisherOptions{})
		site.kill(t)
		synctest.Wait()
		start := time.Now()
		closePublisher(t, p)
		if d := time.Since(start); d > 0 {
			t.Errorf("close took %v", d)
		}
	})
}

// TestClientCloseEndsPublishers: also one that is looking for its broker.
func TestClientCloseEndsPublishers(t *testing.T) {
	for _, away := range []bool{false, true} {
		t.Run(fmt.Sprintf("away=%v", away), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				site := newSite(t, nil)
				c, err := Dial(t.Context(), site.clientOptions())
				if err != nil {
					t.Fatal(err)
				}
				p := newPublisher(t, c, PublisherOptions{})
				if away {
					site.kill(t)
					synctest.Wait()
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
				select {
				case <-p.Done():
				default:
					t.Error("the publisher lives on")
				}
				if _, err := p.Publish(t.Context(), &core.Message{Topic: "a"}); !errors.Is(err, context.Canceled) {
					t.Errorf("publish: %v", err)
				}
			})
		})
	}
}

func TestUnconfirmedError(t *testing.T) {
	cause := errors.New("lost")
	for want, err := range map[string]*UnconfirmedError{
		"lost":                                  {First: 8, Last: 7, Err: cause},
		"lost; message 7 is unconfirmed":        {First: 7, Last: 7, Err: cause},
		"lost; messages 7 to 9 are unconfirmed": {First: 7, Last: 9, Err: cause},
	} {
		if err.Error() != want || !errors.Is(err, cause) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// confirmed returns the position up to which all messages are dealt with.
func (p *Publisher) confirmed() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.window.confirmed
}
