package core

import (
	"slices"
	"time"
)

// Observe returns a snapshot of what q asks for. Its cost grows with the number of topics or subscriptions there are, whatever the limit;
// none of it is paid by publishers. The error wraps ErrProtocol.
func (b *Broker) Observe(q Query) (*Snapshot, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	if q.Limit == 0 {
		q.Limit = DefaultLimit
	}
	snap := &Snapshot{Broker: b.Stats()}
	b.sampleMu.Lock()
	s := b.sampler // meters share their rings with the broker's: read under the lock only
	snap.Rates = BrokerRates{
		In:              s.rates(&s.in),
		InBytes:         s.rates(&s.inBytes),
		Out:             s.rates(&s.out),
		OutBytes:        s.rates(&s.outBytes),
		InHistory:       s.series(&s.in),
		OutHistory:      s.series(&s.out),
		EvictionsMinute: s.evictions.sum(),
		DroppedMinute:   s.dropped.sum(),
	}
	b.sampleMu.Unlock()
	views := map[View]func(*Query, *Snapshot, *sampler){
		ViewTopics:        b.observeTopics,
		ViewSubscriptions: b.observeSubscriptions,
		ViewGroups:        b.observeGroups,
		ViewMembers:       b.observeMembers,
		ViewEvictions:     b.observeEvictions,
	}
	var shown []View
	switch q.View {
	case ViewTotals:
	case ViewOverview:
		shown = []View{ViewTopics, ViewSubscriptions, ViewGroups, ViewEvictions}
	case ViewAll:
		shown = []View{ViewTopics, ViewSubscriptions, ViewGroups, ViewMembers, ViewEvictions}
	default:
		shown = []View{q.View}
	}
	for _, v := range shown {
		views[v](&q, snap, &s)
	}
	return snap, nil
}

func (b *Broker) observeTopics(q *Query, snap *Snapshot, s *sampler) {
	t := topicTables.Get().(*table[TopicStats])
	defer t.free(topicTables)
	t.all = slices.Grow(t.all, snap.Broker.Topics)
	byReceivers := q.Sort == "subs" || q.Sort == "groups"
	for i := range b.router.shards {
		sh := &b.router.shards[i]
		sh.mu.Lock()
		for topic, rt := range sh.routes {
			if rt.in > 0 && !ownTopic(topic) {
				row := rt.stats(topic, s)
				if byReceivers {
					b.router.lookup(sh, []byte(topic)).countReceivers(&row)
				}
				t.all = append(t.all, row)
			}
		}
		sh.mu.Unlock()
	}
	snap.Topics, snap.Rows.Topics = t.pick(q, topicSortings,
		func(names []string, t *TopicStats) []string { return append(names, t.Topic) },
		func(t *TopicStats) string { return t.Topic })
	for i := range snap.Topics {
		b.router.describe(&snap.Topics[i], s)
	}
}

// describe adds what is worth its cost only for rows that are shown: the history, and who receives the topic now. The
// remembered receivers of a topic at rest may be outdated.
func (r *router) describe(t *TopicStats, s *sampler) {
	topic := []byte(t.Topic)
	sh := r.shardOf(topic)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if rt, ok := sh.routes[t.Topic]; ok {
		t.History = s.series(&rt.inMeter)
		r.lookup(sh, topic).countReceivers(t)
	}
}

func (rt *route) countReceivers(t *TopicStats) {
	t.Subscriptions, t.Groups = 0, 0
	for _, r := range rt.receivers {
		if _, isGroup := r.(*groupRoute); isGroup {
			t.Groups++
		} else {
			t.Subscriptions++
		}
	}
}

func (rt *route) stats(topic string, s *sampler) TopicStats {
	return TopicStats{
		Topic:         topic,
		InMsgs:        rt.in,
		InBytes:       rt.inBytes,
		OutMsgs:       rt.out,
		LastPublished: rt.last,
		In:            s.rates(&rt.inMeter),
		InBytesPS:     s.rates(&rt.inBytesMeter),
		Out:           s.rates(&rt.outMeter),
	}
}

// subscriptionRow is a row before it is known whether it will be shown: its Patterns are not filled in.
type subscriptionRow struct {
	SubscriptionStats
	patterns *PatternSet
}

func (b *Broker) observeSubscriptions(q *Query, snap *Snapshot, s *sampler) {
	t := subscriptionTables.Get().(*table[subscriptionRow])
	defer t.free(subscriptionTables)
	all := b.consumers()
	t.all = slices.Grow(t.all, len(all))
	for _, c := range all {
		e := c.point()
		if q.ID != "" && e.id != q.ID || q.Topic != "" && !(e.patterns.Match(q.Topic) && e.access.Receive.Match(q.Topic)) {
			continue
		}
		st := c.stats(s)
		if q.View == ViewOverview && st.Group != "" {
			continue // they all share their group's queue
		}
		if q.Group == "" || st.Group == q.Group {
			t.all = append(t.all, subscriptionRow{st, e.patterns})
		}
	}
	shown, count := t.pick(q, subscriptionRowSortings,
		func(names []string, t *subscriptionRow) []string {
			return t.patterns.appendTexts(append(names, t.ID, t.Client, t.Peer, t.Group))
		},
		func(t *subscriptionRow) string { return t.ID })
	snap.Rows.Subscriptions = count
	snap.Subscriptions = make([]SubscriptionStats, len(shown))
	for i := range shown {
		shown[i].Patterns = shown[i].patterns.Strings()
		if q.ID == "" {
			shown[i].Patterns = shownPatterns(shown[i].Patterns)
		}
		snap.Subscriptions[i] = shown[i].SubscriptionStats
	}
}

func (e *endpoint) stats() SubscriptionStats {
	return SubscriptionStats{
		ID:      e.id,
		Client:  e.client,
		Peer:    e.peer,
		State:   StateActive,
		Created: e.created,
	}
}

func (s *Subscription) stats(sm *sampler) SubscriptionStats {
	st := s.endpoint.stats()
	queued, bytes := s.Queued()
	st.Queued, st.QueuedBytes, st.Capacity = int(queued), bytes, int(s.capacity)
	st.Overflow = s.overflow
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.waited >= stalledSamples && s.queue.len > 0:
		st.State = StateStalled
	case s.over(3):
		st.State = StateLagging
	}
	st.Delivered, st.Dropped = s.sequence, s.dropped
	st.Out = sm.rates(&s.outMeter)
	return st
}

func (m *Member) stats(sm *sampler) SubscriptionStats {
	st := m.endpoint.stats()
	g := m.group
	queued, bytes := g.fill.load()
	st.Group, st.Overflow = g.name, g.settings.Overflow
	st.Queued, st.QueuedBytes, st.Capacity = int(queued), bytes, int(g.capacity)
	g.mu.Lock()
	defer g.mu.Unlock()
	st.State = m.stateLocked()
	st.InFlight, st.Delivered = m.inFlight, m.sequence
	st.Out = sm.rates(&m.outMeter)
	return st
}

// stalledSamples is how many samples in a row must find messages waiting and none taken for a subscription to be shown
// as stalled: with two, the wait has lasted for at least the time between samples.
const stalledSamples = 2

// stalledAfter is how long a member may take nothing of what is being written before it is shown as stalled.
const stalledAfter = time.Second

func (m *Member) stateLocked() string {
	switch {
	case m.leaving:
		return StateLeaving
	case m.writing > 0 && m.broker.clock.Now().Sub(m.lastProgress()) >= stalledAfter:
		return StateStalled
	}
	return StateActive
}

func (b *Broker) observeGroups(q *Query, snap *Snapshot, s *sampler) {
	t := groupTables.Get().(*table[GroupStats])
	defer t.free(groupTables)
	for _, g := range b.allGroups() {
		if q.Group == "" || g.name == q.Group {
			t.all = append(t.all, g.stats(s))
		}
	}
	snap.Groups, snap.Rows.Groups = t.pick(q, groupSortings,
		func(names []string, t *GroupStats) []string { return append(names, t.Name) },
		func(t *GroupStats) string { return t.Name })
}

func (b *Broker) observeMembers(q *Query, snap *Snapshot, s *sampler) {
	t := memberTables.Get().(*table[MemberStats])
	defer t.free(memberTables)
	for _, g := range b.allGroups() {
		if q.Group == "" || g.name == q.Group {
			t.all = append(t.all, g.memberStats(s)...)
		}
	}
	if q.ID != "" {
		t.all = slices.DeleteFunc(t.all, func(m MemberStats) bool { return m.ID != q.ID })
	}
	snap.Members, snap.Rows.Members = t.pick(q, memberSortings,
		func(names []string, t *MemberStats) []string {
			return append(append(names, t.ID, t.Client, t.Peer, t.Group), t.Patterns...)
		},
		func(t *MemberStats) string { return t.ID })
	for i := range snap.Members {
		if q.ID == "" {
			snap.Members[i].Patterns = shownPatterns(snap.Members[i].Patterns)
		}
	}
}

func (g *group) memberStats(s *sampler) []MemberStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []MemberStats
	var acked uint64
	for _, l := range g.lanes {
		for _, m := range l.members {
			acked += m.acked
			all = append(all, MemberStats{
				ID:          m.id,
				Client:      m.client,
				Peer:        m.peer,
				Group:       g.name,
				Patterns:    m.patterns.Strings(),
				State:       m.stateLocked(),
				InFlight:    m.inFlight,
				MaxInFlight: m.maxInFlight,
				Delivered:   m.sequence,
				Acked:       m.acked,
				LastAck:     m.lastAck,
				Created:     m.created,
				Out:         s.rates(&m.outMeter),
			})
		}
	}
	for i := range all {
		if acked > 0 {
			all[i].Share = float64(all[i].Acked) / float64(acked)
		}
	}
	return all
}

func (b *Broker) observeEvictions(q *Query, snap *Snapshot, _ *sampler) {
	t := evictionTables.Get().(*table[EvictionStats])
	defer t.free(evictionTables)
	b.mu.Lock()
	t.all = append(t.all, b.evictions.all()...)
	b.mu.Unlock()
	snap.Evictions, snap.Rows.Evictions = t.pick(q, evictionSortings,
		func(names []string, t *EvictionStats) []string {
			return append(append(names, t.ID, t.Client, t.Peer, t.Group, t.Reason), t.Patterns...)
		},
		func(t *EvictionStats) string { return t.ID })
}

// CloseSubscription ends a subscription or membership on an operator's behalf. ErrNotFound: there is none of that id.
func (b *Broker) CloseSubscription(id string) error {
	b.mu.Lock()
	c, ok := b.subscriptions[id]
	b.mu.Unlock()
	if !ok {
		return ErrNotFound
	}
	c.end(EndKicked)
	return nil
}
