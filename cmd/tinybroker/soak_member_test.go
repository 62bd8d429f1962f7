//go:build unix

package main

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// soakBook collects what the members of a group handle. They write into it before they acknowledge, so that its order is that
// in which things happened.
type soakBook struct {
	mu    sync.Mutex
	group soakGroup
}

func (b *soakBook) write(h soakHandling) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.group.handled = append(b.group.handled, h)
}

// closeRound hands out the round's notes and begins new ones.
func (b *soakBook) closeRound() *soakGroup {
	b.mu.Lock()
	defer b.mu.Unlock()
	done := b.group
	b.group.handled = nil
	return &done
}

// soakMember is a member of a group that takes notes.
type soakMember struct {
	s       *soak
	client  *rpc.Client
	options rpc.SubscribeOptions
	book    *soakBook
	work    time.Duration // how long a message takes, at most
	fickle  bool          // gives some messages back, to be tried again

	mu     sync.Mutex
	stream *soakStream
}

func (m *soakMember) run(ctx context.Context) {
	m.options.OnOpened = func(rpc.Opened) {
		m.spoil()
		m.mu.Lock()
		m.stream = &soakStream{name: m.options.ID}
		m.mu.Unlock()
	}
	m.options.ClientName = "soak"
	rng := rand.New(rand.NewPCG(m.s.seed, uint64(len(m.options.ID))))
	for ctx.Err() == nil {
		err := m.client.Subscribe(ctx, m.options, func(d *rpc.Delivery) error { return m.handle(d, rng) })
		m.spoil()
		if !m.s.again(ctx, m.options.ID, err) {
			return
		}
	}
}

// spoil takes note that what the present stream has handled may not have been acknowledged.
func (m *soakMember) spoil() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stream != nil {
		m.book.mu.Lock()
		m.stream.unclean = true
		m.book.mu.Unlock()
	}
}

// renew makes what was spoilt count no longer, all being at rest.
func (m *soakMember) renew() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stream = &soakStream{name: m.options.ID}
}

func (m *soakMember) handle(d *rpc.Delivery, rng *rand.Rand) error {
	sender, n, err := readSoakText(d.Topic, d.Key, string(d.Payload))
	if err != nil {
		m.s.fault("%s: %v", m.options.ID, err)
		return nil
	}
	if m.book.group.rejects && m.s.isPoison(sender, n) {
		return &rpc.NackError{Nack: core.Nack{Action: core.NackReject, Reason: "poison"}}
	}
	storm := !m.s.atRest.Load()
	if m.fickle && storm && d.Attempt < 3 && rng.IntN(15) == 0 {
		delay := 50 * time.Millisecond
		return &rpc.NackError{Nack: core.Nack{Action: core.NackRetry, Delay: &delay}}
	}
	if m.work > 0 && storm {
		time.Sleep(rand.N(m.work))
	}
	m.mu.Lock()
	stream := m.stream
	m.mu.Unlock()
	m.book.write(soakHandling{sender: sender, n: n, key: strings.Clone(d.Key), attempt: int(d.Attempt), stream: stream})
	return nil
}
