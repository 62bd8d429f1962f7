package core

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestGroupsUnderEverythingAtOnce lets members join under each other's names, take, answer at random, stall and leave, groups and lanes
// expire, dead letters and publishers come, and the broker close, all at once. Nothing may be held at the end.
func TestGroupsUnderEverythingAtOnce(t *testing.T) {
	for name, linger := range map[string]time.Duration{"no linger": 0, "linger": 2 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			b := newBroker(t, func(o *Options) {
				o.GroupLinger = linger
				o.GroupCapacity = 200
				o.SendTimeout = 5 * time.Millisecond
				o.MaxMemory = 1 << 20
			})
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			defer cancel()
			var wg sync.WaitGroup
			for i := range 6 {
				wg.Go(func() { unrulyMembers(ctx, t, b, rand.New(rand.NewPCG(1, uint64(i)))) })
			}
			for i := range 2 {
				wg.Go(func() { publishAtRandom(ctx, t, b, rand.New(rand.NewPCG(2, uint64(i)))) })
			}
			for i := range 4 {
				wg.Go(func() { unrulySubscribers(ctx, t, b, rand.New(rand.NewPCG(4, uint64(i)))) })
			}
			for ctx.Err() == nil {
				for _, st := range b.Groups() {
					if st.Pending < 0 || st.InFlight < 0 {
						t.Errorf("negative gauge: %+v", st)
					}
				}
				time.Sleep(time.Millisecond)
			}
			b.Drain(time.Now().Add(20 * time.Millisecond))
			time.Sleep(20 * time.Millisecond)
			b.Close()
			wg.Wait()
			for until := time.Now().Add(5 * time.Second); b.Stats().Memory > 0 && time.Now().Before(until); {
				time.Sleep(time.Millisecond) // a group's clock may still be telling what it has done
			}
			wantMemory(t, b, 0)
			checkBooks(t, b)
		})
	}
}

// unrulySubscribers subscribes over and over, and is as often frozen as at work.
func unrulySubscribers(ctx context.Context, t *testing.T, b *Broker, rng *rand.Rand) {
	for ctx.Err() == nil {
		s, err := b.Subscribe(SubscribeOptions{
			ID:       []string{"", "x", "y"}[rng.IntN(3)],
			Patterns: [][]string{{"**"}, {"job.a"}, {"$tb.**"}}[rng.IntN(3)],
			Capacity: []int{0, 50}[rng.IntN(2)],
			Overflow: []OverflowPolicy{OverflowEvict, OverflowDropOldest, OverflowDropNewest}[rng.IntN(3)],
		})
		if err != nil {
			if !b.isDraining() {
				t.Error(err)
			}
			return
		}
		var d Delivery
		for range rng.IntN(30) {
			select {
			case <-s.Wake():
			case <-s.Done():
			case <-time.After(time.Millisecond):
			}
			if !s.Take(&d, []int64{1, 300, 64 << 10}[rng.IntN(3)]) {
				continue
			}
			var h Hold
			d.Hold(&h)
			written := rng.IntN(20) > 0
			s.Settle(&d, written)
			if rng.IntN(50) == 0 {
				time.Sleep(2 * idleHolder / 3)
			}
			h.Release()
			if !written {
				break
			}
		}
		s.Close()
	}
}

// unrulyMembers joins one member after the other; each may be replaced by another at any time.
func unrulyMembers(ctx context.Context, t *testing.T, b *Broker, rng *rand.Rand) {
	patterns := [][]string{{"job.*"}, {"job.a"}, {"job.b", "$tb.dlq.*"}, {"**"}, {"$tb.**"}}
	for ctx.Err() == nil {
		i := rng.IntN(3)
		deadline := time.Duration(i) * time.Millisecond
		m, err := b.Join(JoinOptions{
			Group:       "g" + strconv.Itoa(i),
			ID:          []string{"", "x", "y"}[rng.IntN(3)],
			Patterns:    patterns[rng.IntN(len(patterns))],
			MaxInFlight: 1 + rng.IntN(8),
			Settings: GroupSettings{
				Ack:         []AckMode{AckExplicit, AckExplicit, AckNone}[i],
				Overflow:    []OverflowPolicy{OverflowReject, OverflowDropOldest, OverflowDropNewest}[i],
				AckDeadline: &deadline,
				MaxAttempts: 3,
			},
		})
		if err != nil {
			if !b.isDraining() {
				t.Error(err)
			}
			return
		}
		answers := rand.New(rand.NewPCG(3, rng.Uint64()))
		done := make(chan struct{})
		var answering sync.WaitGroup
		answering.Go(func() { answerAtRandom(m, answers, done) })
		takeAtRandom(m, rng)
		close(done)
		if rng.IntN(2) == 0 {
			m.Leave()
		}
		answering.Wait()
		m.Close()
	}
}

func takeAtRandom(m *Member, rng *rand.Rand) {
	var d Delivery
	for range rng.IntN(200) {
		if m.Take(&d, 300) {
			records(&d)
			if rng.IntN(50) == 0 {
				time.Sleep(6 * time.Millisecond) // more than the send timeout
			}
			var h Hold
			if rng.IntN(2) == 0 {
				d.Hold(&h)
			}
			m.Settle(&d, rng.IntN(10) > 0)
			h.Release()
			continue
		}
		select {
		case <-m.Wake():
		case <-m.Done():
		case <-time.After(100 * time.Microsecond):
		}
	}
}

func answerAtRandom(m *Member, rng *rand.Rand, done <-chan struct{}) {
	for n := uint64(0); ; n++ {
		select {
		case <-done:
			return
		case <-m.Done():
			return
		default:
		}
		r := SequenceRange{n, n + uint64(rng.IntN(3))}
		d := time.Duration(rng.IntN(2)) * time.Millisecond
		switch rng.IntN(6) {
		case 0:
			m.Nack(Nack{Delay: &d}, r)
		case 1:
			m.Nack(Nack{Action: NackRelease}, r)
		case 2:
			m.Nack(Nack{Action: NackReject}, r)
		case 3:
			m.Extend(d, r)
		default:
			m.Ack(r)
		}
		if rng.IntN(20) == 0 {
			time.Sleep(50 * time.Microsecond)
		}
	}
}

func publishAtRandom(ctx context.Context, t *testing.T, b *Broker, rng *rand.Rand) {
	for ctx.Err() == nil {
		n := 1 + rng.IntN(30)
		posts := make([]post, n, n+1)
		for i := range posts {
			posts[i] = post{[]string{"job.a", "job.b", "job.c"}[rng.IntN(3)], "payload", []string{"", "k", "l", "m"}[rng.IntN(4)]}
		}
		if rng.IntN(4) == 0 {
			posts = append(posts, post{topic: "nobody", payload: strings.Repeat("x", rng.IntN(200_000))})
		}
		batch := batchOf(posts...)
		batch.MaxWait = time.Duration(rng.IntN(2)) * time.Millisecond
		if err := b.Publish(context.Background(), batch); err != nil {
			if !b.isDraining() {
				t.Error(err)
			}
			return
		}
	}
}
