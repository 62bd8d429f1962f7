package core

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// modelSub is what a subscription must be like, in slices and loops.
type modelSub struct {
	real     *Subscription
	patterns *PatternSet
	policy   OverflowPolicy
	capacity int
	queue    []string
	before   map[string]uint64 // messages dropped just before this one
	dropped  uint64            // after the last one queued
	taken    uint64
	lost     uint64
	evicted  bool
}

// offer is what the broker does with a run that one frame brings, when nobody waits.
func (m *modelSub) offer(posts []string) (took bool) {
	if m.evicted {
		return false
	}
	switch {
	case len(m.queue)+len(posts) <= m.capacity:
		m.push(posts)
		return true
	case m.policy == OverflowEvict:
		m.evicted = true
		m.lost = uint64(len(m.queue) + len(posts))
		m.queue = nil
		return false
	case m.policy == OverflowDropNewest:
		fit := m.capacity - len(m.queue)
		m.push(posts[:fit])
		m.dropped += uint64(len(posts) - fit)
		return fit > 0
	}
	all := append(slices.Clone(m.queue), posts...)
	gone := all[:len(all)-m.capacity]
	sum := uint64(0)
	m.push(posts)
	for _, g := range gone {
		sum += 1 + m.before[g]
		delete(m.before, g)
	}
	m.queue = m.queue[len(gone):]
	m.before[m.queue[0]] += sum
	return true
}

func (m *modelSub) push(posts []string) {
	if len(posts) == 0 {
		return
	}
	if m.dropped > 0 {
		m.before[posts[0]] += m.dropped
		m.dropped = 0
	}
	m.queue = append(m.queue, posts...)
}

// TestAgainstANaiveModel takes random steps with a broker and a model of it and compares them after each.
func TestAgainstANaiveModel(t *testing.T) {
	patterns := []string{"**", "a.*", "a.**", "a.b", "*.b", "b", "{a,b}.c", "a.?", "[ab].b", "!a.b", "!b.**", "a*", "**.c", "x"}
	topics := []string{"a", "b", "a.b", "a.c", "b.c", "a.b.c", "b.b", "ab", "c", "a.x.c"}
	for seed := range uint64(8) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			b := newBroker(t, nil)
			var subs []*modelSub
			next := 0
			for range 2500 {
				switch op := rng.IntN(10); {
				case op == 0 && len(subs) < 30:
					subs = append(subs, modelSubscribe(t, b, rng, patterns))
				case op == 1 && len(subs) > 0:
					i := rng.IntN(len(subs))
					subs[i].real.Close()
					subs = slices.Delete(subs, i, i+1)
				case op < 6:
					next = modelPublish(t, b, rng, topics, subs, next)
				case len(subs) > 0:
					modelTake(t, rng, subs[rng.IntN(len(subs))])
				}
				subs = slices.DeleteFunc(subs, func(m *modelSub) bool {
					if m.evicted {
						wantEnded(t, m.real, EndEvicted, m.lost)
					}
					return m.evicted
				})
			}
			for _, m := range subs {
				for len(m.queue) > 0 {
					modelTake(t, rng, m)
				}
			}
			wantMemory(t, b, 0)
			st := b.Stats()
			if st.QueuedMessages != 0 {
				t.Errorf("%d messages queued at the end", st.QueuedMessages)
			}
		})
	}
}

func modelSubscribe(t *testing.T, b *Broker, rng *rand.Rand, patterns []string) *modelSub {
	m := &modelSub{
		policy:   OverflowPolicy(1 + rng.IntN(3)),
		capacity: 1 + rng.IntN(40),
		before:   map[string]uint64{},
	}
	chosen := []string{patterns[rng.IntN(9)]}
	for range rng.IntN(3) {
		chosen = append(chosen, patterns[rng.IntN(len(patterns))])
	}
	var err error
	if m.patterns, err = ParsePatterns(chosen); err != nil {
		t.Fatal(err)
	}
	m.real = subscribe(t, b, SubscribeOptions{Patterns: chosen, Overflow: m.policy, Capacity: m.capacity})
	return m
}

func modelPublish(t *testing.T, b *Broker, rng *rand.Rand, topics []string, subs []*modelSub, next int) int {
	var posts []post
	for range 1 + rng.IntN(4) {
		topic := topics[rng.IntN(len(topics))]
		for range 1 + rng.IntN(3) {
			posts = append(posts, post{topic: topic, payload: strconv.Itoa(next)})
			next++
		}
	}
	batch := batchOf(posts...)
	// Runs of up to 12 messages into queues of at least 1: no batch may count on being waited for.
	done := make(chan struct{})
	go func() {
		defer close(done)
		publishBatchNoGrace(b, batch)
	}()
	<-done
	for i := range batch.Runs {
		r := &batch.Runs[i]
		receivers := 0
		for _, m := range subs {
			if m.patterns.Match(string(r.Topic)) && m.offer(payloads(postsOf(posts, batch.Runs[:i], r.Count))) {
				receivers++
			}
		}
		if r.Err != nil || r.Accepted != r.Count || r.Receivers != receivers {
			t.Fatalf("run on %s came back as %+v, want %d receivers", r.Topic, *r, receivers)
		}
	}
	return next
}

// publishBatchNoGrace publishes as one who has used up the grace that a large frame gets.
func publishBatchNoGrace(b *Broker, batch *Batch) {
	f := newFrame(&b.memory, batch.Data)
	p := &publication{id: b.publications.Add(1), frame: f, now: b.clock.Now()}
	_ = b.publishRuns(context.Background(), p, batch.Runs)
	f.release()
}

func postsOf(posts []post, before []Run, n int) []post {
	skip := 0
	for _, r := range before {
		skip += r.Count
	}
	return posts[skip : skip+n]
}

func modelTake(t *testing.T, rng *rand.Rand, m *modelSub) {
	var d Delivery
	if !m.real.Take(&d, int64(1+rng.IntN(40))) {
		if len(m.queue) > 0 {
			t.Fatalf("nothing to take, want %v", m.queue)
		}
		return
	}
	got := records(&d)
	if len(got) > len(m.queue) || !slices.Equal(got, m.queue[:len(got)]) {
		t.Fatalf("took %v, want from the front of %v", got, m.queue)
	}
	if d.FirstSequence != m.taken+1 {
		t.Fatalf("delivery number %d, want %d", d.FirstSequence, m.taken+1)
	}
	for i, g := range got {
		want := m.before[g]
		if i == 0 && d.DroppedBefore != want || i > 0 && want != 0 {
			t.Fatalf("delivery %v says %d dropped before it, the model has %d before message %d", got, d.DroppedBefore, want, i)
		}
		delete(m.before, g)
	}
	m.taken += uint64(len(got))
	m.queue = m.queue[len(got):]
	m.real.Settle(&d, true)
}

// TestSubscribersVanishWhilePublishersPublish is about interleavings: what every subscription delivers is contiguous for
// each publisher, and nothing is held when all are gone.
func TestSubscribersVanishWhilePublishersPublish(t *testing.T) {
	b := newBroker(t, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	for p := range 4 {
		wg.Go(func() { publishUntil(ctx, t, b, p) })
	}
	for i := range 8 {
		wg.Go(func() { churnUntil(ctx, t, b, i) })
	}
	wg.Wait()
	st := b.Stats()
	if st.Subscriptions != 0 || st.Memory != 0 || st.Refused != 0 {
		t.Errorf("at the end: %+v", st)
	}
	if st.Evictions == 0 || st.Delivered == 0 {
		t.Errorf("%d evictions and %d deliveries: the test shows nothing", st.Evictions, st.Delivered)
	}
}

func publishUntil(ctx context.Context, t *testing.T, b *Broker, p int) {
	topics := []string{"load.a", "load.b", "load.c.d", "other"}
	for n := 0; ctx.Err() == nil; {
		var posts []post
		for i := range 1 + n%7 {
			posts = append(posts, post{topic: topics[(n/3+i)%3], payload: fmt.Sprintf("%d:%d", p, n+i)})
		}
		n += len(posts)
		batch := batchOf(posts...)
		batch.MaxWait = time.Duration(p%2) * time.Millisecond
		if err := b.Publish(context.Background(), batch); err != nil {
			t.Error(err)
			return
		}
	}
}

func churnUntil(ctx context.Context, t *testing.T, b *Broker, i int) {
	for round := 0; ctx.Err() == nil; round++ {
		s, err := b.Subscribe(SubscribeOptions{
			ID:       []string{"", "shared"}[i%2],
			Patterns: []string{"load.**"},
			Overflow: OverflowPolicy(1 + i%2),
			Capacity: 1 + i*20,
		})
		if err != nil {
			t.Error(err)
			return
		}
		readSome(t, s, i, round%50)
		s.Close()
	}
}

// readSome takes up to n deliveries and checks that each publisher's messages come without holes, or with as many as
// were said to be dropped in all.
func readSome(t *testing.T, s *Subscription, i, n int) {
	var d Delivery
	last := map[string]int{}
	for range n {
		if !s.Take(&d, 64<<10) {
			select {
			case <-s.Wake():
			case <-s.Done():
				return
			case <-time.After(time.Millisecond):
			}
			continue
		}
		for _, m := range records(&d) {
			p, number, _ := strings.Cut(m, ":")
			got, _ := strconv.Atoi(number)
			want, seen := last[p]
			if seen && (got < want+1 || got > want+1 && s.Overflow() == OverflowEvict) {
				t.Errorf("subscription %d: publisher %s's message %d follows %d", i, p, got, want)
			}
			last[p] = got
		}
		s.Settle(&d, true)
	}
}
