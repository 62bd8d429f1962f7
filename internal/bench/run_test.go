package bench

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// site is a broker on a loopback port.
type site struct {
	broker  *core.Broker
	address string
}

func newSite(t *testing.T, change func(*core.Options)) *site {
	t.Helper()
	o := core.DefaultOptions()
	o.Encoding = rpc.Encoding{}
	if change != nil {
		change(&o)
	}
	broker, err := core.New(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := rpc.NewServer(broker, rpc.DefaultServerOptions())
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := errors.Join(server.Shutdown(ctx), <-served); err != nil {
			t.Error(err)
		}
	})
	return &site{broker: broker, address: l.Addr().String()}
}

func (s *site) dial(ctx context.Context) (*rpc.Client, error) {
	return rpc.Dial(ctx, rpc.ClientOptions{Target: s.address})
}

func options() Options {
	return Options{Publishers: 1, Subscribers: 1, Size: 64, Topics: 1, Messages: 3000, MaxWait: 10 * time.Second}
}

func TestRun(t *testing.T) {
	for _, test := range []struct {
		name      string
		change    func(*Options)
		delivered int64
	}{
		{"one to one", func(*Options) {}, 3000},
		{"smallest", func(o *Options) { o.Size = MinSize }, 3000},
		{"nobody", func(o *Options) { o.Subscribers = 0 }, 0},
		{"three to four", func(o *Options) { o.Publishers, o.Subscribers = 3, 4 }, 12000},
		{"topics", func(o *Options) { o.Topics = 100 }, 3000},
		{"warm-up", func(o *Options) { o.Warmup = 50 * time.Millisecond }, 3000},
		{"group", func(o *Options) { o.Subscribers, o.Group, o.Ack = 3, "g", core.AckExplicit }, 3000},
		{"group, warm-up, small window", func(o *Options) {
			o.Publishers, o.Subscribers, o.Group, o.MaxInFlight, o.Warmup = 2, 3, "g", 2, 20*time.Millisecond
		}, 3000},
		{"group without acks", func(o *Options) { o.Subscribers, o.Group, o.Ack = 3, "g", core.AckNone }, 3000},
		{"large", func(o *Options) { o.Size, o.Messages = 100<<10, 100 }, 100},
	} {
		t.Run(test.name, func(t *testing.T) {
			site := newSite(t, nil)
			o := options()
			test.change(&o)
			r, err := Run(t.Context(), o, site.dial)
			if err != nil {
				t.Fatal(err)
			}
			if !r.Clean() || r.Published != o.Messages || r.Delivered != test.delivered || r.Latency.TotalCount() != test.delivered {
				t.Errorf("%+v, %d latencies", r, r.Latency.TotalCount())
			}
			if r.Publishing <= 0 || (test.delivered > 0) != (r.Delivering > 0) {
				t.Errorf("published in %v, delivered in %v", r.Publishing, r.Delivering)
			}
		})
	}
}

// TestRunByTheClock: a schedule is kept, and its times are what latency is counted from.
func TestRunByTheClock(t *testing.T) {
	site := newSite(t, nil)
	o := options()
	o.Messages, o.Duration, o.Rate, o.Publishers = 0, 300*time.Millisecond, 1000, 3
	var told atomic.Int64
	o.Progress = func(p Progress) {
		told.Add(1)
		if p.Done < 0 || p.Done > 1 || p.Elapsed <= 0 || p.Warmup {
			t.Errorf("progress %+v", p)
		}
	}
	r, err := Run(t.Context(), o, site.dial)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Clean() || r.Published != 300 || r.Delivered != 300 {
		t.Errorf("%+v", r)
	}
	if r.Publishing < 290*time.Millisecond {
		t.Errorf("published in %v", r.Publishing)
	}
	if told.Load() == 0 {
		t.Error("no progress was told")
	}
}

// TestRunThroughAStall: what waits for its turn since the broker is slow has waited since it was to be sent.
func TestRunThroughAStall(t *testing.T) {
	site := newSite(t, nil)
	o := options()
	o.Messages, o.Rate = 200, 1000
	const stall = 150 * time.Millisecond
	dials := 0
	dial := func(ctx context.Context) (*rpc.Client, error) {
		dials++
		if dials == 1 {
			return site.dial(ctx)
		}
		return rpc.Dial(ctx, rpc.ClientOptions{Target: stallingProxy(t, site.address, stall)})
	}
	r, err := Run(t.Context(), o, dial)
	if err != nil {
		t.Fatal(err)
	}
	if latency := time.Duration(r.Latency.ValueAtPercentile(50)); !r.Clean() || latency < stall/3 {
		t.Errorf("p50 %v, %+v", latency, r)
	}
}

// stallingProxy passes connections on, and stops for a while after the first few hundred bytes of a publisher's messages.
func stallingProxy(t *testing.T, to string, stall time.Duration) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var ended [3]chan struct{}
	for i := range ended {
		ended[i] = make(chan struct{})
	}
	t.Cleanup(func() {
		l.Close()
		for _, c := range ended {
			<-c
		}
	})
	pass := func(to, from net.Conn, limit int, done chan struct{}) {
		defer close(done)
		defer to.Close()
		defer from.Close()
		buf := make([]byte, 4096)
		for passed := 0; ; {
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			if passed += n; passed > limit {
				time.Sleep(stall)
				limit = 1 << 30
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
	}
	go func() {
		defer close(ended[0])
		client, err := l.Accept()
		if err != nil {
			close(ended[1])
			close(ended[2])
			return
		}
		server, err := net.Dial("tcp", to)
		if err != nil {
			t.Error(err)
			client.Close()
			close(ended[1])
			close(ended[2])
			return
		}
		go pass(server, client, 1000, ended[1])
		go pass(client, server, 1<<30, ended[2])
	}()
	return l.Addr().String()
}

// TestRunCountsEvictions: a subscription that the broker ends is reported with what it has missed.
func TestRunCountsEvictions(t *testing.T) {
	site := newSite(t, nil)
	o := options()
	o.Messages, o.Duration, o.Rate, o.Subscribers = 0, 300*time.Millisecond, 1000, 2
	var kicked atomic.Bool
	o.Progress = func(Progress) {
		if kicked.Swap(true) {
			return
		}
		snapshot, err := site.broker.Observe(core.Query{View: core.ViewSubscriptions})
		if err != nil || len(snapshot.Subscriptions) != 2 {
			t.Errorf("%v, %+v", err, snapshot)
			return
		}
		if err := site.broker.CloseSubscription(snapshot.Subscriptions[0].ID); err != nil {
			t.Error(err)
		}
	}
	r, err := Run(t.Context(), o, site.dial)
	if err != nil {
		t.Fatal(err)
	}
	if r.Clean() || r.Evicted != 1 || r.Lost == 0 || r.Delivered+r.Lost != 2*r.Published {
		t.Errorf("%+v", r)
	}
}

func TestRunCountsRefusals(t *testing.T) {
	site := newSite(t, func(o *core.Options) { o.MaxMessageSize = 100 })
	o := options()
	o.Size, o.Messages = 200, 50
	r, err := Run(t.Context(), o, site.dial)
	if err != nil {
		t.Fatal(err)
	}
	if r.Clean() || r.Refused != 50 || r.Lost != 0 || r.Delivered != 0 || !errors.Is(r.Refusal, core.ErrMessageTooLarge) {
		t.Errorf("%+v", r)
	}
}

func TestRunErrors(t *testing.T) {
	site := newSite(t, func(o *core.Options) { o.MaxSubscriptions = 2 })
	o := options()
	o.Subscribers = 3
	if _, err := Run(t.Context(), o, site.dial); !errors.Is(err, core.ErrQuota) {
		t.Errorf("too many subscriptions: %v", err)
	}
	o = options()
	no := errors.New("no")
	if _, err := Run(t.Context(), o, func(context.Context) (*rpc.Client, error) { return nil, no }); !errors.Is(err, no) {
		t.Errorf("no connection: %v", err)
	}
	// The broker learns a little later that the subscribers of the first run have gone.
	for end := time.Now().Add(10 * time.Second); site.broker.Stats().Subscriptions > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the subscriptions of the first run are still open")
		}
	}
	o.Messages, o.Duration = 0, time.Hour
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	o.Progress = func(Progress) { cancel(stop) }
	if _, err := Run(ctx, o, site.dial); !errors.Is(err, stop) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestValidate(t *testing.T) {
	for text, change := range map[string]func(*Options){
		"publishers":   func(o *Options) { o.Publishers = 0 },
		"subscribers":  func(o *Options) { o.Subscribers = -1 },
		"no subscrib":  func(o *Options) { o.Group, o.Subscribers = "g", 0 },
		"size":         func(o *Options) { o.Size = MinSize - 1 },
		"topics":       func(o *Options) { o.Topics = 0 },
		"one of":       func(o *Options) { o.Messages = 0 },
		"one of mess":  func(o *Options) { o.Duration = time.Second },
		"negative":     func(o *Options) { o.Rate = -1 },
		"group":        func(o *Options) { o.Group = "a.b" },
		"is negative":  func(o *Options) { o.Subscribers = -2 },
		"can be negat": func(o *Options) { o.MaxWait = -1 },
	} {
		o := options()
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	o := options()
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
}
