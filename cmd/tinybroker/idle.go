package main

import (
	"sync"
	"time"
)

// idleTimer calls fire once nothing has happened and nothing was going on for a while. It is safe for concurrent use.
type idleTimer struct {
	after time.Duration // 0: never
	fire  func()

	mu    sync.Mutex
	timer *time.Timer // nil: not started
	busy  int         // things going on
}

// start lets the time run. Only the first call counts.
func (t *idleTimer) start() {
	if t.after == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer == nil {
		t.timer = time.AfterFunc(t.after, t.fire)
	}
}

// touch tells that something has happened.
func (t *idleTimer) touch() {
	if t.after > 0 {
		t.begin()
		t.end()
	}
}

// begin tells that something is going on.
func (t *idleTimer) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy++
	if t.timer != nil {
		t.timer.Stop()
	}
}

// end tells that it is over.
func (t *idleTimer) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy--
	if t.timer != nil && t.busy == 0 {
		t.timer.Reset(t.after)
	}
}
