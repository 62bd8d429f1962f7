//go:build unix

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// soakListener is a broadcast subscription that takes notes.
type soakListener struct {
	s       *soak
	client  *rpc.Client
	options rpc.SubscribeOptions
	slow    bool // sleeps now and then, until it is evicted or loses messages

	mu        sync.Mutex
	epochs    []*soakEpoch
	shared    []soakMark
	evictions int
	dropped   uint64
}

func (l *soakListener) id() string { return l.options.ID }

// run subscribes until ctx ends; again when an operator has ended the subscription.
func (l *soakListener) run(ctx context.Context) {
	l.options.OnOpened = func(rpc.Opened) { l.begin() }
	l.options.OnEnded = func(core.Ending) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.evictions++
	}
	l.options.ClientName = "soak"
	rng := rand.New(rand.NewPCG(l.s.seed, uint64(len(l.id()))))
	for ctx.Err() == nil {
		err := l.client.Subscribe(ctx, l.options, func(d *rpc.Delivery) error {
			l.note(d)
			if l.slow && !l.s.atRest.Load() && rng.IntN(300) == 0 {
				select {
				case <-time.After(time.Duration(1+rng.IntN(3)) * time.Second):
				case <-l.s.resting():
				case <-ctx.Done():
				}
			}
			return nil
		})
		if !l.s.again(ctx, l.id(), err) {
			return
		}
	}
}

// again reports whether a subscription that has ended is to be opened again: an operator has closed it, or the link was down just then.
func (s *soak) again(ctx context.Context, id string, err error) bool {
	ended, _ := errors.AsType[*core.EndedError](err)
	_, unreachable := errors.AsType[*rpc.UnreachableError](err)
	switch {
	case ctx.Err() != nil:
		return false
	case ended != nil && ended.Reason == core.EndKicked:
	case unreachable:
		time.Sleep(100 * time.Millisecond)
	default:
		s.fault("%s: subscribe: %v", id, err)
		return false
	}
	return true
}

// reached reports whether the last of these numbers have come on the present stream.
func (l *soakListener) reached(numbers map[string]int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	got := l.epochs[len(l.epochs)-1].got
	for sender, n := range numbers {
		if !slices.Contains(got[sender], n) {
			return false
		}
	}
	return true
}

// begin takes note of a new stream.
func (l *soakListener) begin() {
	e := newSoakEpoch(l.id(), l.options.Overflow != core.OverflowEvict)
	e.opened = l.s.begun()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epochs = append(l.epochs, e)
}

func (l *soakListener) note(d *rpc.Delivery) {
	sender, n, err := readSoakText(d.Topic, d.Key, string(d.Payload))
	if err != nil {
		l.s.fault("%s: %v", l.id(), err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.epochs[len(l.epochs)-1]
	e.got[sender] = append(e.got[sender], n)
	e.dropped += d.DroppedBefore
	l.dropped += d.DroppedBefore
	if d.Topic == soakSharedTopic {
		l.shared = append(l.shared, soakMark{sender, n})
	}
}

// hasCome reports whether the last number of every sender that is still there has come.
func (l *soakListener) hasCome(last map[string]int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return epochHas(l.epochs, last)
}

func epochHas(epochs []*soakEpoch, last map[string]int) bool {
	if len(epochs) == 0 {
		return false
	}
	got := epochs[len(epochs)-1].got
	for sender, n := range last {
		numbers := got[sender]
		if len(numbers) == 0 || numbers[len(numbers)-1] != n {
			return false
		}
	}
	return true
}

// closeRound hands out the round's notes and begins new ones. Everybody is at rest.
func (l *soakListener) closeRound(begun map[string]int) (epochs []*soakEpoch, shared []soakMark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	epochs, shared = l.epochs, l.shared
	fresh := newSoakEpoch(l.id(), epochs[len(epochs)-1].drops)
	fresh.opened, fresh.quiet = begun, true
	l.epochs, l.shared = []*soakEpoch{fresh}, nil
	epochs[len(epochs)-1].open = true
	return epochs, shared
}
