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
	lanes        atomic.Int64 // of all groups
	latency      latency
	onExpired    atomic.Pointer[func(Expired)]

	// gate is held for reading by every Publish, so that Drain can wait for those under way.
	gate     sync.RWMutex
	draining chan struct{} // closed when draining begins
	restless atomic.Int64  // groups that may yet cause dead letters, while it drains

	mu            sync.Mutex
	subscriptions map[string]consumer
	groups        map[string]*group
	gone          groupCounters // of the groups that are no more
	evictions     evictionLog
	watchers      []consumer // stay, while the broker drains, for what groups may yet cause

	reclaimMu sync.Mutex // held while memory is made free
	reclaims  time.Time  // not before then again, since nothing was found
	compacted time.Time  // when compact last found nothing

	sampleMu sync.Mutex
	sampler  sampler
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
		subscriptions: make(map[string]consumer),
		groups:        make(map[string]*group),
	}, nil
}

// Options returns the limits in force.
func (b *Broker) Options() Options { return b.options }

// RunID names this run of the broker: it is another one after every start.
func (b *Broker) RunID() string { return b.runID }

// Subscribe registers a broadcast subscription. Every message whose Publish begins after its return is queued for it, until it ends.
// The caller owns it, takes its messages and must Close it.
//
// Errors: ErrPatternInvalid, ErrProtocol for a bad name or setting, ErrNotAllowed, ErrQuota, ErrDraining.
func (b *Broker) Subscribe(o SubscribeOptions) (*Subscription, error) {
	s, err := b.newSubscription(o)
	if err != nil {
		return nil, err
	}
	replaced, err := b.register(s, func() error {
		b.router.add(s.patterns, s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	b.welcome(s, replaced)
	return s, nil
}

func (b *Broker) newSubscription(o SubscribeOptions) (*Subscription, error) {
	e, err := b.newEndpoint(o.ID, o.Client, o.Peer, o.Patterns, o.Access)
	if err != nil {
		return nil, err
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
		intake: intake{
			encoding:      b.encoding,
			overflow:      o.Overflow,
			capacity:      int64(o.Capacity),
			capacityBytes: b.options.ConsumerCapacityBytes,
		},
		endpoint: e,
	}, nil
}

// Join makes a member of a consumer group, which comes into being with its first one. Every message whose Publish begins after its
// return and that matches its patterns is for the group. The caller owns the member, takes its messages and must Close it.
//
// Errors: as Subscribe; ErrGroupConfig when the group exists with other settings.
func (b *Broker) Join(o JoinOptions) (*Member, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	e, err := b.newEndpoint(o.ID, o.Client, o.Peer, o.Patterns, o.Access)
	if err != nil {
		return nil, err
	}
	m := &Member{endpoint: e, maxInFlight: o.MaxInFlight}
	if m.maxInFlight == 0 {
		m.maxInFlight = b.options.MaxInFlight
	}
	created := false
	replaced, err := b.register(m, func() error {
		created, err = b.joinLocked(m, o)
		return err
	})
	if err != nil {
		return nil, err
	}
	if created {
		b.emit("group.created", groupEvent{Group: o.Group})
	}
	b.welcome(m, replaced)
	return m, nil
}

// joinLocked finds or founds the group. b.mu is held, so that no group can expire meanwhile.
func (b *Broker) joinLocked(m *Member, o JoinOptions) (created bool, err error) {
	g := b.groups[o.Group]
	if isNew := g == nil || !g.knows(m.patterns, m.access.Receive); isNew && b.lanes.Load() >= int64(b.options.MaxSubscriptions) {
		return false, fmt.Errorf("%w: %d groups, and members of groups with patterns of their own, wait for somebody to come back", ErrQuota, b.lanes.Load())
	}
	if g == nil {
		created = true
		g = newGroup(b, o.Group, o.Settings.effective(&b.options))
		b.groups[o.Group] = g
	} else if err := g.settings.agree(g.name, o.Settings, &b.options); err != nil {
		return false, err
	}
	g.mu.Lock()
	l, isNew := g.joinLocked(m)
	g.mu.Unlock()
	if isNew {
		b.router.add(l.patterns, l)
	}
	return created, nil
}

// register puts c into the books: add makes it known to the router. It returns the consumer whose name it took over.
func (b *Broker) register(c consumer, add func() error) (replaced consumer, err error) {
	e := c.point()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isDraining() {
		return nil, ErrDraining
	}
	if e.id == "" {
		e.id = b.freeIDLocked()
	}
	replaced = b.subscriptions[e.id]
	if replaced != nil && replaced.point().access.Identity != e.access.Identity {
		return nil, fmt.Errorf("%w: to take over subscription %s, which is somebody else's", ErrNotAllowed, quoteShort(e.id))
	}
	if replaced == nil && len(b.subscriptions) >= b.options.MaxSubscriptions {
		return nil, fmt.Errorf("%w: %d subscriptions are open", ErrQuota, len(b.subscriptions))
	}
	if !b.chargePatterns(e.patterns) {
		return nil, fmt.Errorf("%w: memory is full, and the patterns take %d bytes", ErrQuota, e.patterns.Size())
	}
	if err := add(); err != nil {
		b.freePatterns(e.patterns)
		return nil, err
	}
	e.previous = b.evictions.tell(e.id, e.access.Identity)
	b.subscriptions[e.id] = c
	b.counters.opened.Add(1)
	return replaced, nil
}

// welcome finishes what register has begun, without the lock.
func (b *Broker) welcome(c, replaced consumer) {
	if replaced != nil {
		replaced.end(EndReplaced)
	}
	b.emit("subscription.opened", openedEvent{who: whoIs(c)})
}

// forget takes an ended consumer off the books. Only the first call has an effect.
func (b *Broker) forget(c consumer) {
	e := c.point()
	b.mu.Lock()
	if e.forgotten {
		b.mu.Unlock()
		return
	}
	e.forgotten = true
	if b.subscriptions[e.id] == c {
		delete(b.subscriptions, e.id)
	}
	ending := c.Ending()
	evicted := ending.Reason == EndEvicted || ending.Reason == EndStalled
	if evicted {
		b.evictions.add(EvictionStats{
			Time:     b.clock.Now(),
			ID:       e.id,
			Client:   e.client,
			Peer:     e.peer,
			Patterns: shownPatterns(e.patterns.Strings()),
			Group:    groupOf(c),
		}, e.access.Identity, ending)
		b.counters.evicted[ending.evictReason()].Add(1)
	}
	b.counters.ended[ending.Reason].Add(1)
	b.mu.Unlock()
	if s, ok := c.(*Subscription); ok {
		b.router.remove(s.patterns, s)
	}
	b.freePatterns(e.patterns)
	b.farewell(c, ending, evicted)
}

// groupOf returns the group of a member, and nothing for a broadcast subscription.
func groupOf(c consumer) string {
	if m, ok := c.(*Member); ok {
		return m.Group()
	}
	return ""
}

// amend corrects what is remembered of an eviction.
func (b *Broker) amend(id string, ending Ending) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.evictions.amend(id, ending)
}

// forgetIfEnded is forget for a consumer that may have ended.
func (b *Broker) forgetIfEnded(c consumer) {
	if c.Ending().Reason != EndNone {
		b.forget(c)
	}
}

// CountRefused adds messages that were refused before they got here, for the reason that err tells, to the count of refused ones.
func (b *Broker) CountRefused(err error, n int) { b.counters.refused[refuseReason(err)].Add(uint64(n)) }

// consumers returns all subscriptions and members there are.
func (b *Broker) consumers() []consumer {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]consumer, 0, len(b.subscriptions))
	for _, c := range b.subscriptions {
		all = append(all, c)
	}
	return all
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
