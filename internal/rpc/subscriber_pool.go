package rpc

import (
	"context"
	"sync"
)

// pool runs the handlers of a subscription side by side. Messages with the same key follow each other.
type pool struct {
	handle  func(*job)    // called by the pool's goroutines
	slots   chan struct{} // holds one for each goroutine that runs
	workers sync.WaitGroup

	mu      sync.Mutex
	room    sync.Cond // fewer wait than before
	limit   int       // how many may wait; 0: any number, since the broker sees to it
	epoch   int       // counts calls of forget
	waiting []*job
	held    int             // those that wait for another of their key
	keys    map[string]*job // the last one of each key that is being handled or waits
}

// job is a delivery for a handler.
type job struct {
	Delivery
	call  *subscribeCall
	epoch int
	next  *job // of the same key
}

// waitingPerHandler is how many deliveries are read ahead for each handler where the broker has no bound for them.
const waitingPerHandler = 4

func newPool(parallel int, handle func(*job)) *pool {
	p := &pool{
		handle: handle,
		slots:  make(chan struct{}, parallel),
		keys:   make(map[string]*job),
	}
	p.room.L = &p.mu
	return p
}

// begin prepares for a new stream. Of a stream with acks nothing waits longer than itself: the broker delivers it again.
func (p *pool) begin(acks bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit = waitingPerHandler * cap(p.slots)
	if !acks {
		return
	}
	p.limit = 0
	p.epoch++
	p.waiting, p.held = nil, 0
	clear(p.keys)
}

// available waits until another handler may run.
func (p *pool) available(ctx context.Context) error {
	select {
	case p.slots <- struct{}{}:
		<-p.slots
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// add has a delivery handled, now or later. It blocks while too many wait.
func (p *pool) add(j *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.limit > 0 && len(p.waiting)+p.held >= p.limit {
		p.room.Wait()
	}
	j.epoch = p.epoch
	if j.Key != "" {
		before := p.keys[j.Key]
		p.keys[j.Key] = j
		if before != nil {
			before.next = j
			p.held++
			return
		}
	}
	select {
	case p.slots <- struct{}{}:
		p.workers.Go(func() { p.work(j) })
	default:
		p.waiting = append(p.waiting, j)
	}
}

func (p *pool) work(j *job) {
	for j != nil {
		p.handle(j)
		j = p.after(j)
	}
}

// after returns what is to be handled next; nil: nothing waits.
func (p *pool) after(j *job) *job {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case j.epoch != p.epoch:
		// Others of its key have come anew.
	case j.next != nil:
		p.held--
		p.waiting = append(p.waiting, j.next)
	case j.Key != "":
		delete(p.keys, j.Key)
	}
	if len(p.waiting) == 0 {
		<-p.slots
		return nil
	}
	next := p.waiting[0]
	p.waiting[0] = nil
	p.waiting = p.waiting[1:]
	p.room.Signal()
	return next
}
