package core

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

const (
	routeShards = 64
	// The cache is bounded in topics and, since one topic may have many receivers, in receivers: together at most
	// 65 536 topics and about 16 MB of references.
	shardRoutes    = 1024
	shardReceivers = 32 << 10
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
	index   index[*Subscription]
	removed uint64
}

// shard holds the remembered routes of the topics that hash to it.
type shard struct {
	mu        sync.Mutex
	routes    map[string]*route
	receivers int // sum of len(subs) over routes

	_ [64]byte // keeps neighbouring shards' locks off one cache line
}

// route lists the receivers of one topic as of a generation. Guarded by its shard's lock.
type route struct {
	generation uint64
	subs       []*Subscription
}

func newRouter() *router {
	r := &router{seed: maphash.MakeSeed()}
	for i := range r.shards {
		r.shards[i].routes = make(map[string]*route)
	}
	return r
}

// add registers s: from its return on, every publish that begins sees it.
func (r *router) add(s *Subscription) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.index.add(s.patterns, s)
	r.generation.Add(1)
}

// remove unregisters s: publishes that begin after its return do not see it. Remembered routes are outdated by that, and every so
// often thrown away, since they keep the subscriptions they name from being freed.
func (r *router) remove(s *Subscription) {
	r.mu.Lock()
	r.index.remove(s.patterns, s)
	generation := r.generation.Add(1)
	r.removed++
	sweep := r.removed%sweepEvery == 0
	r.mu.Unlock()
	if sweep {
		r.forget(generation)
	}
}

// forget drops the routes that are older than generation.
func (r *router) forget(generation uint64) {
	for i := range r.shards {
		sh := &r.shards[i]
		sh.mu.Lock()
		for topic, rt := range sh.routes {
			if rt.generation < generation {
				sh.receivers -= len(rt.subs)
				delete(sh.routes, topic)
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
		sh.receivers -= len(rt.subs)
	} else {
		rt = &route{}
	}
	r.mu.RLock()
	rt.generation = r.generation.Load()
	rt.subs = r.index.match(name, rt.subs[:0])
	r.mu.RUnlock()
	clear(rt.subs[len(rt.subs):cap(rt.subs)])
	sh.remember(name, rt, ok)
	return rt
}

// remember puts a route into the cache, known telling that it is there already, and forgets others, whichever come
// first, until the bounds hold again.
func (sh *shard) remember(topic string, rt *route, known bool) {
	if len(rt.subs) < cap(rt.subs)/4 {
		rt.subs = append([]*Subscription(nil), rt.subs...)
	}
	sh.receivers += len(rt.subs)
	if !known {
		sh.routes[topic] = rt
	}
	if len(sh.routes) <= shardRoutes && sh.receivers <= shardReceivers {
		return
	}
	for other, old := range sh.routes {
		if old == rt {
			continue
		}
		sh.receivers -= len(old.subs)
		delete(sh.routes, other)
		if len(sh.routes) <= shardRoutes && sh.receivers <= shardReceivers {
			return
		}
	}
}
