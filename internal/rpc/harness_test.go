package rpc

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// testSite is a place where brokers are started and stopped, one after the other, and clients connect.
type testSite struct {
	options core.Options

	mu       sync.Mutex
	listener *bufconn.Listener // nil: nobody is there
	server   *Server
	broker   *core.Broker
	served   chan error
}

// newSite returns a site with a running broker. The broker is stopped at the test's end.
func newSite(t *testing.T, change func(*core.Options)) *testSite {
	t.Helper()
	s := &testSite{options: core.DefaultOptions()}
	s.options.Encoding = Encoding{}
	if change != nil {
		change(&s.options)
	}
	s.start(t)
	t.Cleanup(func() { s.kill(t) })
	return s
}

func (s *testSite) start(t *testing.T) {
	t.Helper()
	broker, err := core.New(s.options)
	if err != nil {
		t.Fatal(err)
	}
	l := bufconn.Listen(256 << 10)
	server := NewServer(broker, DefaultServerOptions())
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener, s.server, s.broker, s.served = l, server, broker, served
}

// kill ends the broker at once, as if its process had died.
func (s *testSite) kill(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	server, served := s.server, s.served
	s.listener, s.server = nil, nil
	s.mu.Unlock()
	if server == nil {
		return
	}
	// Cutting the connections first keeps the broker from saying anything more.
	server.grpc.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = server.Shutdown(ctx)
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
}

// drain shuts the broker down in order.
func (s *testSite) drain(t *testing.T, patience time.Duration) {
	t.Helper()
	s.mu.Lock()
	server, served := s.server, s.served
	s.listener, s.server = nil, nil
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
}

func (s *testSite) dial(ctx context.Context, _ string) (net.Conn, error) {
	s.mu.Lock()
	l := s.listener
	s.mu.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: "bufconn", Err: refusedError{}}
	}
	return l.DialContext(ctx)
}

type refusedError struct{}

func (refusedError) Error() string { return "connection refused" }

// clientOptions leads to the site.
func (s *testSite) clientOptions() ClientOptions {
	return ClientOptions{Target: "passthrough:///site", DialOptions: []grpc.DialOption{grpc.WithContextDialer(s.dial)}}
}

// client returns a client that is closed at the test's end.
func (s *testSite) client(t *testing.T, change func(*ClientOptions)) *Client {
	t.Helper()
	o := s.clientOptions()
	if change != nil {
		change(&o)
	}
	c, err := Dial(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

// within returns a context for a test that should be over in no time.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// subscription is a Subscribe running beside the test.
type subscription struct {
	deliveries chan Delivery
	opened     chan Opened
	endings    chan core.Ending
	gaps       chan Gap
	result     chan error
	cancel     context.CancelFunc
}

// subscribe runs Subscribe and returns once the subscription is registered.
func subscribe(t *testing.T, c *Client, o SubscribeOptions) *subscription {
	t.Helper()
	s := &subscription{
		deliveries: make(chan Delivery, 100_000),
		opened:     make(chan Opened, 1000),
		endings:    make(chan core.Ending, 1000),
		gaps:       make(chan Gap, 1000),
		result:     make(chan error, 1),
	}
	o.OnOpened = func(opened Opened) { s.opened <- opened }
	o.OnEnded = func(e core.Ending) { s.endings <- e }
	o.OnGap = func(g Gap) { s.gaps <- g }
	ctx, cancel := context.WithCancel(t.Context())
	s.cancel = cancel
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.result <- c.Subscribe(ctx, o, func(d *Delivery) error {
			kept := *d
			kept.Payload = append([]byte(nil), d.Payload...)
			kept.Key = strings.Clone(d.Key)
			kept.Headers = nil
			for k, v := range d.Headers {
				if kept.Headers == nil {
					kept.Headers = make(map[string]string)
				}
				kept.Headers[strings.Clone(k)] = strings.Clone(v)
			}
			s.deliveries <- kept
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	select {
	case opened := <-s.opened:
		s.opened <- opened
	case err := <-s.result:
		if len(s.opened) == 0 {
			t.Fatalf("subscribe: %v", err)
		}
		s.result <- err
	}
	return s
}

// take returns the next n messages.
func (s *subscription) take(t *testing.T, n int) []Delivery {
	t.Helper()
	var ds []Delivery
	timeout := time.After(20 * time.Second)
	for len(ds) < n {
		select {
		case d := <-s.deliveries:
			ds = append(ds, d)
		case err := <-s.result:
			t.Fatalf("subscribe ended after %d of %d messages: %v", len(ds), n, err)
		case <-timeout:
			t.Fatalf("%d of %d messages came", len(ds), n)
		}
	}
	return ds
}
