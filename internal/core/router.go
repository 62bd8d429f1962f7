package core

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

const (
	routeShards = 64
	// The cache is bounded in topics and, since one topic may have many receivers, in what these take: together at most
	// 32 768 topics, which with their meters take some 25 MB, and 2 million references (32 MB). A shard remembers at least
	// one topic, however many receivers that has.
	shardRoutes     = 512
	shardReferences = 32 << 10
	// sweepEvery is how many removals may leave their traces in outdated routes.
	sweepEvery = 1024
)

// router knows who receives a topic.
//
// Lock order: shard.mu, then router.mu. A shard's lock also orders the publishes of its topics: it is held while one piece is queued at every
// receiver, and never while anybody waits.
type router struct {
	seed   maphash.Seed
	shards [routeShards]shard

	// generation counts the changes of the index; a route is valid while its generation is the current one.
	generation atomic.Uint64

	mu      sync.RWMutex
	index   index[interest]
	removed uint64
}

// shard holds the remembered routes of the topics that hash to it.
type shard struct {
	mu         sync.Mutex
	routes     map[string]*route
	references int        // sum over routes
	followed   int        // those of clients' topics that were published to
	matched    []interest // scratch of lookup, as is groups
	groups     groupRoutes

	_ [64]byte // keeps neighbouring shards' locks off one cache line
}

// route lists the receivers of one topic as of a generation. Guarded by its shard's lock.
type route struct {
	generation uint64
	receivers  []receiver
	groups     int // of the receivers
	references int // what the receivers take, in references: as many as there are, and more for groups

	// What the topic has seen since it is remembered.
	in, inBytes, out                uint64
	last                            time.Time
	inMeter, inBytesMeter, outMeter meter
}

// count adds what was published to topic, whose route is rt.
func (sh *shard) count(rt *route, topic []byte, p *publication, done piece) {
	if rt.in == 0 && done.count > 0 && !ownTopic(topic) {
		sh.followed++
	}
	rt.in += uint64(done.count)
	rt.inBytes += uint64(done.size)
	rt.out += uint64(done.count * done.receivers)
	rt.last = p.now
}

// interest is what the index finds: a *Subscription, or a *lane of a group.
type interest interface {
	// rights says which topics it may receive; nil: all.
	rights() *Permission
	// addTo adds the interest to the receivers of a topic, of which groups are those that are groups.
	addTo(receivers []receiver, groups groupRoutes) []receiver
}

func newRouter() *router {
	r := &router{seed: maphash.MakeSeed()}
	for i := range r.shards {
		r.shards[i].routes = make(map[string]*route)
		r.shards[i].groups = make(groupRoutes)
	}
	return r
}

// add registers an interest: from its return on, every publish that begins sees it.
func (r *router) add(patterns *PatternSet, who interest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.index.add(patterns, who)
	r.generation.Add(1)
}

// remove unregisters an interest: publishes that begin after its return do not see it. Remembered routes are outdated by that, and every so
// often thrown away, since they keep the subscriptions they name from being freed.
func (r *router) remove(patterns *PatternSet, who interest) {
	r.mu.Lock()
	r.index.remove(patterns, who)
	generation := r.generation.Add(1)
	r.removed++
	sweep := r.removed%sweepEvery == 0
	r.mu.Unlock()
	if sweep {
		r.forget(generation)
	}
}

// forget lets go of the subscriptions that routes older than generation name.
func (r *router) forget(generation uint64) {
	for i := range r.shards {
		sh := &r.shards[i]
		sh.mu.Lock()
		for _, rt := range sh.routes {
			if rt.generation < generation {
				sh.references -= rt.references
				rt.receivers, rt.references, rt.generation = nil, 0, 0
			}
		}
		sh.mu.Unlock()
	}
}

func (r *router) shardOf(topic []byte) *shard {
	return &r.shards[maphash.Bytes(r.seed, topic)%routeShards]
}

// lookup returns the receivers of topic. sh must be the topic's shard, locked; the route is good until it is unlocked.
func (r *router) lookup(sh *shard, topic []byte) *route {
	rt, ok := sh.routes[string(topic)]
	if ok && rt.generation == r.generation.Load() {
		return rt
	}
	name := string(topic)
	if ok {
		sh.references -= rt.references
	} else {
		rt = &route{}
	}
	r.mu.RLock()
	rt.generation = r.generation.Load()
	sh.matched = r.index.match(name, sh.matched[:0])
	r.mu.RUnlock()
	clear(rt.receivers)
	rt.receivers = rt.receivers[:0]
	// Permissions are judged here, once a topic and not once a message. Many subscriptions have the same one.
	var judged *Permission
	allowed := true
	for _, m := range sh.matched {
		if may := m.rights(); may != judged {
			judged, allowed = may, may.Match(name)
		}
		if allowed {
			rt.receivers = m.addTo(rt.receivers, sh.groups)
		}
	}
	rt.groups, rt.references = len(sh.groups), len(rt.receivers)
	for _, r := range sh.groups {
		rt.references += r.references()
	}
	clear(sh.matched)
	if len(sh.groups) > 256 {
		sh.groups = make(groupRoutes) // clearing a map that was large would cost every lookup
	}
	clear(sh.groups)
	sh.remember(name, rt, ok)
	return rt
}

// heard reports whether topic has any receiver.
func (r *router) heard(topic []byte) bool {
	sh := r.shardOf(topic)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return len(r.lookup(sh, topic).receivers) > 0
}

// remember puts a route into the cache, known telling that it is there already, and forgets others, those that have been idle
// for longest among a few, until the bounds hold again.
func (sh *shard) remember(topic string, rt *route, known bool) {
	if len(rt.receivers) < cap(rt.receivers)/4 {
		rt.receivers = append([]receiver(nil), rt.receivers...)
	}
	sh.references += rt.references
	if !known {
		sh.routes[topic] = rt
	}
	if len(sh.routes) <= shardRoutes && sh.references <= shardReferences {
		return
	}
	for len(sh.routes) > 1 && (len(sh.routes) > shardRoutes || sh.references > shardReferences) {
		idlest := sh.idlest(rt)
		forgotten := sh.routes[idlest]
		sh.references -= forgotten.references
		if forgotten.in > 0 && !ownTopic(idlest) {
			sh.followed--
		}
		delete(sh.routes, idlest)
	}
}

// followed is how many topics of clients were published to and are remembered.
func (r *router) followed() (n int) {
	for i := range r.shards {
		sh := &r.shards[i]
		sh.mu.Lock()
		n += sh.followed
		sh.mu.Unlock()
	}
	return n
}

// idlest looks at a few routes, whichever the map offers, and returns the topic that was published to longest ago.
func (sh *shard) idlest(but *route) (topic string) {
	const looks = 5
	var oldest *route
	seen := 0
	for t, rt := range sh.routes {
		if rt == but {
			continue
		}
		if oldest == nil || rt.last.Before(oldest.last) {
			topic, oldest = t, rt
		}
		if seen++; seen == looks {
			break
		}
	}
	return topic
}
