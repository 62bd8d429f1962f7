package rpc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// TestLastLeavesAsTheNextJoins: whoever was told `opened` gets what is published from then on.
func TestLastLeavesAsTheNextJoins(t *testing.T) {
	const groups, rounds = 5, 200
	station := newStation(t, func(o *core.Options, _ *ServerOptions) { o.GroupLinger = 0 })
	client := station.stub(t)
	joinStock(t, client, &tinybrokerv1.OpenSubscription{ConsumerGroup: "warm"}).cancel()
	before := runtime.NumGoroutine()
	var running sync.WaitGroup
	for g := range groups {
		running.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 19))
			topic := fmt.Sprint("job.", g)
			o := func() *tinybrokerv1.OpenSubscription {
				return &tinybrokerv1.OpenSubscription{ConsumerGroup: fmt.Sprint("g", g), TopicPatterns: []string{topic}}
			}
			ctx := t.Context()
			member, err := tryOpen(ctx, client, o())
			if err != nil {
				t.Error(err)
				return
			}
			for round := range rounds {
				left := make(chan struct{})
				leaver, jitter := member, time.Duration(rng.IntN(2000))*time.Microsecond
				go func() {
					defer close(left)
					time.Sleep(jitter)
					if round%2 == 0 {
						leaver.cancel()
						return
					}
					_ = leaver.Send(leaveRequest())
					_ = leaver.CloseSend()
					_, _, _ = readOn(leaver)
					leaver.cancel()
				}()
				time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond)
				if member, err = tryOpen(ctx, client, o()); err != nil {
					t.Errorf("round %d: %v", round, err)
					return
				}
				if _, err := client.Publish(ctx, &tinybrokerv1.PublishRequest{Topic: topic, Payload: []byte(fmt.Sprint(round))}); err != nil {
					t.Errorf("round %d: %v", round, err)
					return
				}
				// The leaver, while it was there, may have been given the message. Then it comes back.
				if !receives(member, fmt.Sprint(round)) {
					t.Errorf("group %d, round %d: nothing came", g, round)
					return
				}
				<-left
			}
			member.cancel()
		})
	}
	running.Wait()
	eventually(t, "all groups are gone", func() bool {
		return len(station.broker.Groups()) == 0 && station.broker.Stats().Subscriptions == 0 && station.broker.Stats().Memory == 0
	})
	eventually(t, "all goroutines are gone", func() bool { return runtime.NumGoroutine() <= before })
}

// receives reads on until a payload comes, acknowledging everything, for 5 s at most.
func receives(s *stockStream, payload string) bool {
	timeout := time.AfterFunc(5*time.Second, s.cancel)
	defer timeout.Stop()
	for {
		r, err := s.Recv()
		if err != nil {
			return false
		}
		found := false
		for _, m := range r.GetMessages() {
			found = found || string(m.GetPayload()) == payload
		}
		if n := uint64(len(r.GetMessages())); n > 0 {
			_ = s.Send(&tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Ack{
				Ack: &tinybrokerv1.Ack{Ranges: span(r.GetFirstSequence(), r.GetFirstSequence()+n-1)},
			}})
		}
		if found {
			return true
		}
	}
}

// TestOneWriterAStream: acks, nacks, extensions and leaving come from many goroutines, with streams that end at any time; every
// message arrives whole.
func TestOneWriterAStream(t *testing.T) {
	station := newStation(t, func(o *core.Options, _ *ServerOptions) {
		o.AckDeadline, o.MaxAttempts = 200*time.Millisecond, 1<<16 // extensions every 67 ms
	})
	const streams, messages = 20, 20_000
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	joinStock(t, station.stub(t), &tinybrokerv1.OpenSubscription{MaxInFlight: 1}).cancel() // the group is there before its messages
	var members sync.WaitGroup
	for i := range streams {
		client, err := Dial(ctx, ClientOptions{Target: station.addr})
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(uint64(i), 46))
		members.Go(func() {
			defer client.Close()
			for ctx.Err() == nil {
				life, end := context.WithTimeout(ctx, time.Duration(20+rng.IntN(200))*time.Millisecond)
				err := client.Subscribe(life, SubscribeOptions{Group: "g", Patterns: []string{"**"}, Parallel: 1 + i%4}, func(d *Delivery) error {
					n := numberOf(t, d.Payload)
					switch {
					case n%50 == 0:
						time.Sleep(3 * time.Millisecond)
					case n%50 == 1 && d.Attempt == 1:
						return &NackError{core.Nack{Delay: new(time.Duration(0))}}
					case n%50 == 2 && rand.N(2) == 0:
						return &NackError{core.Nack{Action: core.NackRelease}}
					case n%500 == 3:
						return ErrStop
					}
					return nil
				})
				end()
				if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
					t.Errorf("Subscribe returned %v", err)
				}
			}
		})
	}
	publishNumbered(t, station, "a", messages)
	eventually(t, "all are acknowledged", func() bool { return groupBooks(t, station.broker, "g").Acked == messages })
	cancel()
	members.Wait()
	st := station.wantGroup(t, messages, 0, 0)
	if st.Members != 0 || st.Accepted != messages || st.Redelivered == 0 {
		t.Errorf("%+v", st)
	}
}

// publishNumbered publishes messages 0 to n-1 as fast as the group takes them.
func publishNumbered(t *testing.T, station *station, topic string, n uint64) {
	t.Helper()
	p := newPublisher(t, station.newClient(t), PublisherOptions{MaxWait: time.Minute})
	ctx := within(t, 5*time.Minute)
	for i := range n {
		if _, err := p.Publish(ctx, &core.Message{Topic: topic, Payload: numbered(i, 0)}); err != nil {
			t.Fatalf("publish: %v", err)
		}
	}
	closePublisher(t, p)
}

// newClient returns our client with a connection of its own.
func (s *station) newClient(t testing.TB, options ...grpc.DialOption) *Client {
	t.Helper()
	c, err := Dial(t.Context(), ClientOptions{Target: s.addr, DialOptions: options})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// life is one stream of a churning member: what was handled on it, and whether it was cut. Else the member has left.
type life struct {
	handled []handledOnce
	cut     bool
}

type handledOnce struct{ number, attempt uint32 }

// churner is a member of a group that is cut, stopped, started and left all the time.
type churner struct {
	t       *testing.T
	station *station
	wire    cuttable
	handled *handledNumbers

	mu    sync.Mutex
	lives []*life
	dying bool // cut for good: also a life that begins now is cut
}

// handledNumbers counts how often each number was handled.
type handledNumbers struct {
	times    []atomic.Uint32
	distinct atomic.Int64
}

const churnInFlight = 100

// run is a member's process: it subscribes until ctx ends or, unless it may reconnect, the connection is lost.
func (c *churner) run(ctx context.Context, parallel int, reconnect bool) {
	client, err := Dial(ctx, ClientOptions{
		Target: c.station.addr, Wait: true, NoReconnect: !reconnect, DialOptions: []grpc.DialOption{c.wire.option()},
		OnConnection: func(e ConnectionEvent) {
			if !e.Waiting {
				c.isCut()
			}
		},
	})
	if err != nil {
		if ctx.Err() == nil {
			c.t.Errorf("dial: %v", err)
		}
		return
	}
	defer client.Close()
	err = client.Subscribe(ctx, SubscribeOptions{
		Group: "g", Patterns: []string{"n"}, MaxInFlight: churnInFlight, Parallel: parallel,
		OnOpened: func(Opened) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.lives = append(c.lives, &life{cut: c.dying})
		},
	}, c.handle)
	if unreachable := new(UnreachableError); errors.As(err, &unreachable) {
		c.isCut()
	} else if !errors.Is(err, context.Canceled) {
		c.t.Errorf("Subscribe returned %v", err)
	}
}

// isCut notes that the stream there is, if there is one, is not left.
func (c *churner) isCut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.lives); n > 0 {
		c.lives[n-1].cut = true
	}
}

// cut ends the connection under the member.
func (c *churner) cut(forGood bool) {
	c.mu.Lock()
	c.dying = forGood
	c.mu.Unlock()
	c.isCut()
	c.wire.cut()
}

func (c *churner) handle(d *Delivery) error {
	n := numberOf(c.t, d.Payload)
	c.mu.Lock()
	l := c.lives[len(c.lives)-1]
	l.handled = append(l.handled, handledOnce{uint32(n), d.Attempt})
	c.mu.Unlock()
	if c.handled.times[n].Add(1) == 1 {
		c.handled.distinct.Add(1)
	}
	return nil
}

// The ways in which a churning member ends.
const (
	isCut = iota
	isStopped
	leaves
	comesBack // is cut, comes back, and leaves
	waysToEnd
)

// live is a member's process from its start to its end.
func (c *churner) live(ctx context.Context, rng *rand.Rand, way int, pace time.Duration) {
	wait := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	life, end := context.WithCancel(ctx)
	defer end()
	c.wire.run()
	done := make(chan struct{})
	parallel := 1 + 3*rng.IntN(2)
	go func() {
		defer close(done)
		c.run(life, parallel, way == comesBack)
	}()
	wait(pace/2 + time.Duration(rng.Int64N(int64(pace))))
	if ctx.Err() == nil {
		switch way {
		case isCut:
			c.cut(true)
		case isStopped:
			c.wire.stop()
			wait(pace * 4)
			c.wire.run()
			c.cut(true)
		case comesBack:
			c.cut(false)
			wait(pace * 4)
		}
	}
	end()
	<-done
	c.mu.Lock()
	c.dying = false
	c.mu.Unlock()
}

// TestGroupChurn: numbered messages through a group of four, while its members are cut off, stopped, started and made to leave.
// Every number is handled and acknowledged, only those in flight at a member that was cut more than once, and the books balance
// whenever somebody looks. With TINYBROKER_LONG=1 it takes a million messages.
func TestGroupChurn(t *testing.T) {
	total, pace := 150_000, 50*time.Millisecond
	if os.Getenv("TINYBROKER_LONG") != "" {
		total, pace = 1_000_000, 200*time.Millisecond
	}
	station := newStation(t, func(o *core.Options, _ *ServerOptions) { o.MaxAttempts, o.GroupLinger = 1<<16, time.Hour })
	joinStock(t, station.stub(t), &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"n"}}).cancel() // the group is there before its messages
	handled := &handledNumbers{times: make([]atomic.Uint32, total)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var churners []*churner
	var running sync.WaitGroup
	var ways [waysToEnd]atomic.Int64
	for i := range 4 {
		c := &churner{t: t, station: station, handled: handled}
		churners = append(churners, c)
		rng := rand.New(rand.NewPCG(uint64(i), 24))
		running.Go(func() {
			for way := i; ctx.Err() == nil; way++ {
				ways[way%waysToEnd].Add(1)
				c.live(ctx, rng, way%waysToEnd, pace)
			}
		})
	}
	running.Go(func() { sampleBooks(ctx, t, station) })
	before := runtime.NumGoroutine()
	begun := time.Now()
	publishNumbered(t, station, "n", uint64(total))
	end := time.Now().Add(20 * time.Second)
	for groupBooks(t, station.broker, "g").Acked < uint64(total) && time.Now().Before(end) {
		time.Sleep(5 * time.Millisecond)
	}
	took := time.Since(begun)
	goroutines := runtime.NumGoroutine()
	cancel()
	running.Wait()
	st := groupBooks(t, station.broker, "g")
	if st.Accepted != uint64(total) || st.Acked != uint64(total) || st.InFlight != 0 || st.Pending != 0 || st.DeadLetters != 0 || st.Dropped != 0 {
		t.Errorf("at the end: %+v", st)
	}
	if n := handled.distinct.Load(); n != int64(total) {
		t.Errorf("%d of %d numbers were handled", n, total)
	}
	again := wantDuplicatesOfCutMembersOnly(t, churners)
	if goroutines > before+200 {
		t.Errorf("%d goroutines at the end, %d at the beginning", goroutines, before)
	}
	t.Logf("%d messages in %v, %.0f a second; members cut %d times, stopped %d, left %d, come back %d; %d delivered again, %d handled again",
		total, took.Round(time.Millisecond), float64(total)/took.Seconds(),
		ways[isCut].Load(), ways[isStopped].Load(), ways[leaves].Load(), ways[comesBack].Load(), st.Redelivered, again)
}

// sampleBooks looks at the books of group g until ctx ends: they balance, and no counter falls.
func sampleBooks(ctx context.Context, t *testing.T, station *station) {
	last := core.GroupStats{}
	for ctx.Err() == nil {
		st := groupBooks(t, station.broker, "g")
		if st.Accepted < last.Accepted || st.Acked < last.Acked || st.Redelivered < last.Redelivered || st.Dropped+st.DeadLetters > 0 {
			t.Errorf("%+v after %+v", st, last)
		}
		last = st
		time.Sleep(2 * time.Millisecond)
	}
}

// wantDuplicatesOfCutMembersOnly looks at every number that was handled more than once. All but one of those deliveries were
// in flight at a member when it was cut, which are never more than it may have. It returns how many there are.
func wantDuplicatesOfCutMembersOnly(t *testing.T, churners []*churner) (again int) {
	t.Helper()
	type handling struct {
		handledOnce
		by *life
	}
	counted := map[uint32]handling{} // the one whose ack the broker has
	lost := map[*life]int{}
	for _, c := range churners {
		for _, l := range c.lives {
			for _, h := range l.handled {
				this := handling{h, l}
				other, twice := counted[h.number]
				if twice && (this.by.cut && !other.by.cut || this.by.cut == other.by.cut && this.attempt < other.attempt) {
					this, other = other, this
				}
				if counted[h.number] = this; twice {
					lost[other.by]++
					again++
				}
			}
		}
	}
	for l, n := range lost {
		if n > churnInFlight || !l.cut {
			t.Errorf("%d of %d that a member has handled were handled again; cut: %v", n, len(l.handled), l.cut)
		}
	}
	return again
}
