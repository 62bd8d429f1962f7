package core

import "time"

// history is how many samples are kept: with one a second, a minute.
const history = 60

// meter remembers what was added to a counter between samples. All meters of a broker are sampled together, so that
// their rings turn together and one list of times serves them all. The zero value has seen nothing.
type meter struct {
	last uint64 // the counter at the last sample
	ring *[history]uint32
	idle int // samples in a row that brought nothing
}

// sample takes the counter's new value into slot i. A counter at rest costs no ring.
func (m *meter) sample(i int, counter uint64) {
	var added uint64
	if counter > m.last { // a delivery that broke off is taken back
		added = counter - m.last
	}
	m.last = counter
	if added == 0 {
		if m.ring == nil {
			return
		}
		if m.idle++; m.idle >= history {
			m.ring, m.idle = nil, 0
			return
		}
	} else {
		m.idle = 0
		if m.ring == nil {
			m.ring = new([history]uint32)
		}
	}
	m.ring[i] = uint32(min(added, 1<<32-1))
}

// sampler holds the times of the samples and the meters of the broker's totals. Guarded by Broker.sampleMu.
type sampler struct {
	taken int // samples so far
	times [history]time.Duration
	last  time.Time

	in, inBytes, out, outBytes, evictions, dropped meter
}

// slot is where the newest sample is.
func (s *sampler) slot() int { return (s.taken - 1) % history }

// rates turns what a meter remembers into rates.
func (s *sampler) rates(m *meter) Rates {
	if s.taken == 0 || m.ring == nil {
		return Rates{}
	}
	var r Rates
	if d := s.times[s.slot()]; d > 0 {
		r.Second = float64(m.ring[s.slot()]) / d.Seconds()
	}
	var sum uint64
	var span time.Duration
	for i := range min(s.taken, history) {
		sum += uint64(m.ring[i])
		span += s.times[i]
	}
	if span > 0 {
		r.Minute = float64(sum) / span.Seconds()
	}
	return r
}

// sum is what a meter remembers in all.
func (m *meter) sum() (n uint64) {
	if m.ring != nil {
		for _, v := range m.ring {
			n += uint64(v)
		}
	}
	return n
}

// series is what a meter remembers, the oldest first.
func (s *sampler) series(m *meter) []uint32 {
	n := min(s.taken, history)
	if n == 0 || m.ring == nil {
		return nil
	}
	out := make([]uint32, n)
	for i := range out {
		out[i] = m.ring[(s.taken-n+i)%history]
	}
	return out
}

// Sample measures what has happened since the last call. The owner of the broker calls it once a second; rates and
// histories in snapshots come from it, divided by the time that has really passed. It may be called
// concurrently with everything.
func (b *Broker) Sample() {
	b.sampleMu.Lock()
	defer b.sampleMu.Unlock()
	s := &b.sampler
	now := b.clock.Now()
	if s.last.IsZero() {
		s.last = b.started
	}
	elapsed := now.Sub(s.last)
	if elapsed <= 0 {
		return
	}
	s.last = now
	s.taken++
	i := s.slot()
	s.times[i] = elapsed
	c := &b.counters
	s.in.sample(i, c.published.Load())
	s.inBytes.sample(i, c.publishedBytes.Load())
	s.out.sample(i, c.deliveredAll())
	s.outBytes.sample(i, c.deliveredBytes.Load())
	s.evictions.sample(i, c.evictions())
	s.dropped.sample(i, c.droppedAll())
	b.router.sample(i)
	for _, consumer := range b.consumers() {
		consumer.sample(i)
	}
	for _, g := range b.allGroups() {
		g.sample(i)
	}
}

func (r *router) sample(i int) {
	for n := range r.shards {
		sh := &r.shards[n]
		sh.mu.Lock()
		for _, rt := range sh.routes {
			rt.inMeter.sample(i, rt.in)
			rt.inBytesMeter.sample(i, rt.inBytes)
			rt.outMeter.sample(i, rt.out)
		}
		sh.mu.Unlock()
	}
}

func (s *Subscription) sample(i int) {
	s.mu.Lock()
	if s.queue.len == 0 || s.sequence != s.outMeter.last {
		s.waited = 0
	} else {
		s.waited++
	}
	s.outMeter.sample(i, s.sequence)
	s.mu.Unlock()
}

func (m *Member) sample(i int) {
	m.group.mu.Lock()
	m.outMeter.sample(i, m.sequence)
	m.group.mu.Unlock()
}

func (g *group) sample(i int) {
	g.mu.Lock()
	g.outMeter.sample(i, g.counters.delivered)
	g.mu.Unlock()
}
