package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

func TestPublishAndSubscribe(t *testing.T) {
	c := newSite(t, nil).client(t, nil)
	sub := subscribe(t, c, SubscribeOptions{ID: "reader", Patterns: []string{"orders.*"}})
	opened := <-sub.opened
	if opened.SubscriptionID != "reader" || opened.Capacity != 65536 || opened.CapacityBytes != 32<<20 || opened.Overflow != core.OverflowEvict {
		t.Errorf("opened with %+v", opened)
	}
	sent := core.Message{
		Topic: "orders.created", Payload: []byte{0, 255, '\n'}, Key: "k", Headers: map[string]string{"a": "b", "": ""},
		PublishTime: time.Date(2026, 7, 1, 12, 0, 0, 345, time.UTC),
	}
	if n, err := c.Publish(within(t, 5*time.Second), &sent, 0); n != 1 || err != nil {
		t.Fatalf("publish: %d receivers, %v", n, err)
	}
	if n, err := c.Publish(within(t, 5*time.Second), &core.Message{Topic: "elsewhere"}, time.Second); n != 0 || err != nil {
		t.Fatalf("publish without a receiver: %d receivers, %v", n, err)
	}
	got := sub.take(t, 1)[0]
	if got.Topic != sent.Topic || !bytes.Equal(got.Payload, sent.Payload) || got.Key != sent.Key || len(got.Headers) != 2 ||
		got.Headers["a"] != "b" || !got.PublishTime.Equal(sent.PublishTime) || got.Sequence != 1 || got.Attempt != 1 || got.More {
		t.Errorf("sent %+v, got %+v", sent, got)
	}
}

func TestUnaryErrors(t *testing.T) {
	c := newSite(t, nil).client(t, nil)
	for _, test := range []struct {
		name string
		m    core.Message
		want error
	}{
		{"empty topic", core.Message{}, core.ErrTopicInvalid},
		{"bad topic", core.Message{Topic: "a b"}, core.ErrTopicInvalid},
		{"topic is no text", core.Message{Topic: "a\xff"}, core.ErrTopicInvalid},
		{"long topic", core.Message{Topic: string(bytes.Repeat([]byte("x"), 1<<20))}, core.ErrTopicInvalid},
		{"key is no text", core.Message{Topic: "a", Key: "\xff"}, core.ErrProtocol},
		{"header is no text", core.Message{Topic: "a", Headers: map[string]string{"\xff": ""}}, core.ErrProtocol},
		{"too large", core.Message{Topic: "a", Payload: make([]byte, 1<<20)}, core.ErrMessageTooLarge},
		{"far too large", core.Message{Topic: "a", Payload: make([]byte, 5<<20)}, core.ErrMessageTooLarge},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := c.Publish(within(t, 5*time.Second), &test.m, 0)
			if !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			var answered *Error
			if !errors.As(err, &answered) || len(err.Error()) > maxText {
				t.Errorf("%T with %d bytes of text", err, len(err.Error()))
			}
		})
	}
	if _, err := c.Publish(within(t, 5*time.Second), &core.Message{Topic: "a", Payload: make([]byte, 1<<20-1)}, 0); err != nil {
		t.Errorf("a message of exactly the limit: %v", err)
	}
}

func TestSubscribeErrors(t *testing.T) {
	c := newSite(t, nil).client(t, nil)
	for _, test := range []struct {
		name string
		o    SubscribeOptions
		want error
	}{
		{"no pattern", SubscribeOptions{}, core.ErrPatternInvalid},
		{"bad pattern", SubscribeOptions{Patterns: []string{"a.[b"}}, core.ErrPatternInvalid},
		{"bad id", SubscribeOptions{Patterns: []string{"a"}, ID: "a\nb"}, core.ErrProtocol},
		{"bad policy", SubscribeOptions{Patterns: []string{"a"}, Overflow: core.OverflowReject}, core.ErrProtocol},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := c.Subscribe(within(t, 5*time.Second), test.o, func(*Delivery) error { return nil })
			if !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

func TestHandlerEndsSubscribe(t *testing.T) {
	c := newSite(t, nil).client(t, nil)
	enough := errors.New("enough")
	ctx := within(t, 5*time.Second)
	opened := make(chan struct{})
	result := make(chan error, 1)
	n := 0
	go func() {
		result <- c.Subscribe(ctx, SubscribeOptions{Patterns: []string{"**"}, OnOpened: func(Opened) { close(opened) }}, func(*Delivery) error {
			if n++; n == 3 {
				return enough
			}
			return nil
		})
	}()
	<-opened
	for range 10 {
		if _, err := c.Publish(ctx, &core.Message{Topic: "t"}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-result; err != enough || n != 3 { //nolint:errorlint // as it is, not wrapped
		t.Errorf("%d messages handled, then %v", n, err)
	}
}

func TestSubscribeEndsWithContext(t *testing.T) {
	c := newSite(t, nil).client(t, nil)
	sub := subscribe(t, c, SubscribeOptions{Patterns: []string{"**"}})
	sub.cancel()
	if err := <-sub.result; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestStatsAndHealth(t *testing.T) {
	c := newSite(t, nil).client(t, nil)
	ctx := within(t, 5*time.Second)
	subscribe(t, c, SubscribeOptions{Patterns: []string{"a"}})
	for _, topic := range []string{"a", "a", "b"} {
		if _, err := c.Publish(ctx, &core.Message{Topic: topic}, 0); err != nil {
			t.Fatal(err)
		}
	}
	stats, err := c.Stats(ctx)
	if err != nil || stats.Subscriptions != 1 || stats.Published != 3 || stats.Unrouted != 1 || stats.RunID == "" {
		t.Errorf("%+v, %v", stats, err)
	}
	if serving, err := c.Health(ctx); !serving || err != nil {
		t.Errorf("serving %v, %v", serving, err)
	}
}

func TestCallsWithoutBroker(t *testing.T) {
	site := newSite(t, nil)
	c := site.client(t, nil)
	site.kill(t)
	ctx := within(t, 10*time.Second)
	calls := map[string]func() error{
		"publish": func() error { _, err := c.Publish(ctx, &core.Message{Topic: "a"}, 0); return err },
		"health":  func() error { _, err := c.Health(ctx); return err },
		"stats":   func() error { _, err := c.Stats(ctx); return err },
		"publisher": func() error {
			_, err := c.Publisher(ctx, PublisherOptions{})
			return err
		},
		"subscribe": func() error {
			return c.Subscribe(ctx, SubscribeOptions{Patterns: []string{"a"}}, func(*Delivery) error { return nil })
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			var unreachable *UnreachableError
			err := call()
			if !errors.As(err, &unreachable) {
				t.Fatalf("got %v", err)
			}
			// The first call may meet the connection as it breaks.
			if cause := unreachable.Err.Error(); cause != "connection refused" && cause != "connection closed" {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestReady: what is published after OnOpened arrives, always.
func TestReady(t *testing.T) {
	site := newSite(t, nil)
	reader, writer := site.client(t, nil), site.client(t, nil)
	ctx := within(t, 30*time.Second)
	for i := range 300 {
		topic := fmt.Sprintf("ready.%d", i)
		sub := subscribe(t, reader, SubscribeOptions{Patterns: []string{topic}})
		if n, err := writer.Publish(ctx, &core.Message{Topic: topic}, 0); n != 1 || err != nil {
			t.Fatalf("round %d: %d receivers, %v", i, n, err)
		}
		sub.take(t, 1)
		sub.cancel()
	}
}
