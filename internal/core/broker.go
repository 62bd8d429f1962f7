package core

import (
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Broker takes messages from publishers and queues them at the subscriptions whose patterns match. It is safe for
// concurrent use. It starts no goroutine of its own.
type Broker struct {
	options  Options
	clock    Clock
	encoding Encoding
	started  time.Time
	runID    string

	memory       memory
	router       *router
	counters     counters
	publications atomic.Uint64

	// gate is held for reading by every Publish, so that Drain can wait for those under way.
	gate     sync.RWMutex
	draining chan struct{} // closed when draining begins

	mu            sync.Mutex
	subscriptions map[string]*Subscription
	evictions     evictionLog
}

// New returns a broker with the given limits.
func New(o Options) (*Broker, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Encoding == nil {
		return nil, fmt.Errorf("encoding: is required")
	}
	if o.Clock == nil {
		o.Clock = SystemClock{}
	}
	return &Broker{
		options:       o,
		clock:         o.Clock,
		encoding:      o.Encoding,
		started:       o.Clock.Now(),
		runID:         newID(12),
		memory:        memory{limit: o.MaxMemory},
		router:        newRouter(),
		draining:      make(chan struct{}),
		subscriptions: make(map[string]*Subscription),
	}, nil
}

// Options returns the limits in force.
func (b *Broker) Options() Options { return b.options }

// RunID names this run of the broker: it is another one after every start.
func (b *Broker) RunID() string { return b.runID }

// Subscribe registers a subscription. Every message whose Publish begins after its return is queued for it, until it ends.
// The caller owns it, takes its messages and must Close it.
//
// Errors: ErrPatternInvalid, ErrProtocol for a bad name or setting, ErrQuota, ErrDraining.
func (b *Broker) Subscribe(o SubscribeOptions) (*Subscription, error) {
	s, err := b.newSubscription(o)
	if err != nil {
		return nil, err
	}
	replaced, err := b.register(s)
	if err != nil {
		return nil, err
	}
	if replaced != nil {
		replaced.end(EndReplaced)
	}
	return s, nil
}

func (b *Broker) newSubscription(o SubscribeOptions) (*Subscription, error) {
	patterns, err := ParsePatterns(o.Patterns)
	if err != nil {
		return nil, err
	}
	for _, n := range []struct{ what, name string }{{"subscription id", o.ID}, {"client name", o.Client}} {
		if n.name == "" {
			continue
		}
		if err := ValidateName(n.what, n.name); err != nil {
			return nil, err
		}
	}
	if o.Overflow == OverflowDefault {
		o.Overflow = OverflowEvict
	}
	if o.Overflow < OverflowEvict || o.Overflow > OverflowDropNewest {
		return nil, fmt.Errorf("%w: overflow policy %s is not for a broadcast subscription", ErrProtocol, o.Overflow)
	}
	if o.Capacity < 0 {
		return nil, fmt.Errorf("%w: capacity %d is negative", ErrProtocol, o.Capacity)
	}
	if o.Capacity == 0 || o.Capacity > b.options.ConsumerCapacity {
		o.Capacity = b.options.ConsumerCapacity
	}
	return &Subscription{
		broker:        b,
		id:            o.ID,
		client:        o.Client,
		peer:          o.Peer,
		patterns:      patterns,
		overflow:      o.Overflow,
		created:       b.clock.Now(),
		capacity:      int64(o.Capacity),
		capacityBytes: b.options.ConsumerCapacityBytes,
		wake:          make(chan struct{}, 1),
		done:          make(chan struct{}),
	}, nil
}

// register makes s known by its name and to the router, and returns the subscription whose name it took over.
func (b *Broker) register(s *Subscription) (replaced *Subscription, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isDraining() {
		return nil, ErrDraining
	}
	if s.id == "" {
		s.id = b.freeIDLocked()
	}
	replaced = b.subscriptions[s.id]
	if replaced == nil && len(b.subscriptions) >= b.options.MaxSubscriptions {
		return nil, fmt.Errorf("%w: %d subscriptions are open", ErrQuota, len(b.subscriptions))
	}
	s.previous = b.evictions.tell(s.id)
	b.subscriptions[s.id] = s
	b.router.add(s)
	return replaced, nil
}

// forget removes an ended subscription. Only the first call has an effect.
func (b *Broker) forget(s *Subscription) {
	b.mu.Lock()
	if s.forgotten {
		b.mu.Unlock()
		return
	}
	s.forgotten = true
	if b.subscriptions[s.id] == s {
		delete(b.subscriptions, s.id)
	}
	if ending := s.Ending(); ending.Reason == EndEvicted || ending.Reason == EndStalled {
		b.evictions.add(s.id, ending)
		b.counters.evictions.Add(1)
	}
	b.mu.Unlock()
	b.router.remove(s)
}

// amend corrects what is remembered of an eviction.
func (b *Broker) amend(id string, ending Ending) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.evictions.amend(id, ending)
}

// Drain stops taking anything new, waits for the publishes under way, which waste no more patience, and lets every
// subscription end as shutting down once its queue has been taken. It does not wait for that. Calling it again changes nothing.
func (b *Broker) Drain() {
	b.mu.Lock()
	if !b.isDraining() {
		close(b.draining)
	}
	b.mu.Unlock()
	b.gate.Lock()
	b.gate.Unlock() //nolint:staticcheck // nothing to do inside: having got the lock means that every publish has returned
	for _, s := range b.snapshot() {
		s.drain()
	}
}

// Close ends every subscription as shutting down, whatever is still queued, after Drain.
func (b *Broker) Close() {
	b.Drain()
	for _, s := range b.snapshot() {
		s.end(EndShuttingDown)
	}
}

// Draining returns a channel that is closed when draining begins.
func (b *Broker) Draining() <-chan struct{} { return b.draining }

// CountRefused adds messages that were refused before they got here to the count of refused ones.
func (b *Broker) CountRefused(n int) { b.counters.refused.Add(uint64(n)) }

func (b *Broker) isDraining() bool {
	select {
	case <-b.draining:
		return true
	default:
		return false
	}
}

func (b *Broker) snapshot() []*Subscription {
	b.mu.Lock()
	defer b.mu.Unlock()
	subs := make([]*Subscription, 0, len(b.subscriptions))
	for _, s := range b.subscriptions {
		subs = append(subs, s)
	}
	return subs
}

func (b *Broker) freeIDLocked() string {
	for {
		if id := newID(10); b.subscriptions[id] == nil {
			return id
		}
	}
}

// newID makes up a name of n letters and digits.
func newID(n int) string { return strings.ToLower(rand.Text()[:n]) }
