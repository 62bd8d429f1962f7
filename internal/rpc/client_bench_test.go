package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// benchBroker serves a broker on a loopback port.
func benchBroker(b *testing.B) (address string) {
	b.Helper()
	o := core.DefaultOptions()
	o.Encoding = Encoding{}
	broker, err := core.New(o)
	if err != nil {
		b.Fatal(err)
	}
	server := NewServer(broker, DefaultServerOptions())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			b.Error(err)
		}
		if err := <-served; err != nil {
			b.Error(err)
		}
	})
	return l.Addr().String()
}

func benchClient(b *testing.B, address string) *Client {
	b.Helper()
	c, err := Dial(b.Context(), ClientOptions{Target: address})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	})
	return c
}

// BenchmarkEndToEnd is the way of one message from a publisher over loopback TCP through the broker to its subscribers:
// encoded, confirmed, delivered and decoded, by everybody in one process.
func BenchmarkEndToEnd(b *testing.B) {
	for _, c := range []struct{ size, subs int }{{16, 0}, {16, 1}, {128, 1}, {1024, 1}, {128, 4}, {128, 16}} {
		b.Run(fmt.Sprintf("size=%d/subs=%d", c.size, c.subs), func(b *testing.B) {
			address := benchBroker(b)
			total := uint64(b.N)
			enough := errors.New("enough")
			results := make(chan error, c.subs)
			opened := make(chan struct{}, c.subs)
			for range c.subs {
				reader := benchClient(b, address)
				go func() {
					results <- reader.Subscribe(context.Background(), SubscribeOptions{
						Patterns: []string{"bench.*"}, OnOpened: func(Opened) { opened <- struct{}{} },
					}, func(d *Delivery) error {
						if len(d.Payload) != c.size || d.Topic != "bench.topic" {
							return fmt.Errorf("message %q with %d bytes", d.Topic, len(d.Payload))
						}
						if d.Sequence == total {
							return enough
						}
						return nil
					})
				}()
			}
			for range c.subs {
				<-opened
			}
			p, err := benchClient(b, address).Publisher(b.Context(), PublisherOptions{MaxWait: 10 * time.Second})
			if err != nil {
				b.Fatal(err)
			}
			m := core.Message{Topic: "bench.topic", Payload: make([]byte, c.size)}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if _, err := p.Publish(b.Context(), &m); err != nil {
					b.Fatal(err)
				}
			}
			if err := p.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
			for range c.subs {
				if err := <-results; !errors.Is(err, enough) {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
		})
	}
}

// BenchmarkRoundTrip is the time of one message alone, there and its receipt back.
func BenchmarkRoundTrip(b *testing.B) {
	c := benchClient(b, benchBroker(b))
	m := core.Message{Topic: "bench.topic", Payload: make([]byte, 128)}
	b.Run("stream", func(b *testing.B) {
		p, err := c.Publisher(b.Context(), PublisherOptions{})
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if _, err := p.Publish(b.Context(), &m); err != nil {
				b.Fatal(err)
			}
			if err := p.Flush(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		if err := p.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
	})
	b.Run("unary", func(b *testing.B) {
		for b.Loop() {
			if _, err := c.Publish(b.Context(), &m, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
}
