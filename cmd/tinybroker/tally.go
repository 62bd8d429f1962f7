package main

import (
	"sync"
	"time"
)

// tallyPause is the least time between two reports of a tally.
const tallyPause = time.Second

// tally adds up what comes in bursts, and tells the sum at once and then at most once in a while. It is safe for
// concurrent use.
type tally struct {
	tell func(n uint64)

	mu    sync.Mutex
	n     uint64      // not told yet
	pause *time.Timer // until when nothing is told; nil: it may be
}

func (t *tally) add(n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n += n
	if t.pause == nil {
		t.tellLocked()
	}
}

func (t *tally) tellLocked() {
	t.pause = nil
	if t.n == 0 {
		return
	}
	t.tell(t.n)
	t.n = 0
	t.pause = time.AfterFunc(tallyPause, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.pause != nil { // not closed meanwhile
			t.tellLocked()
		}
	})
}

// close tells the rest.
func (t *tally) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pause != nil {
		t.pause.Stop()
	}
	if t.n > 0 {
		t.tell(t.n)
	}
	t.n, t.pause = 0, nil
}
