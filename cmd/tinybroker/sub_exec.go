package main

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// runner gives each message to a command of its own, several at once if asked for.
type runner struct {
	*subSession
	command  string
	group    string
	parallel int
	children *children
	quota    quota
	ran      atomic.Bool // the command was found at least once

	life   context.Context // ends when commands that still run are to be ended
	finish context.CancelFunc

	mu  sync.Mutex
	out io.Writer // guarded by mu
}

// newRunner returns a runner. Once ctx ends, running commands have the grace to finish, and no other is begun. Its finish must be called.
func newRunner(ctx context.Context, a *app, s *subSession) *runner {
	r := &runner{
		subSession: s, command: s.o.exec, group: s.o.group, parallel: s.o.execParallel, children: &a.children, out: a.out,
	}
	r.quota.open(s.o.count)
	r.life, r.finish = context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		r.quota.close()
		time.AfterFunc(s.o.grace, r.finish)
	})
	return r
}

// print writes whole lines of a command to standard output.
func (r *runner) print(lines []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.out.Write(lines); err != nil {
		return &writeError{err}
	}
	return nil
}

// handle runs the command for one message and says what becomes of it. It is called by several goroutines at once.
func (r *runner) handle(d *rpc.Delivery) error {
	if !r.quota.begin() {
		return r.giveBack(nil)
	}
	r.idle.begin()
	defer r.idle.end()
	r.noteDropped(d)
	began := time.Now()
	o := r.runCommand(r.life, d)
	acks := r.acks.Load()
	counts := o.failed == nil && (o.text == "" || !acks)
	if counts {
		r.done.Add(1)
	}
	enough := r.quota.end(counts)
	if o.failed == nil && o.text == "" {
		r.ran.Store(true)
		r.notices.detail("%d: %s, %s, done in %s", d.Sequence, d.Topic, count(uint64(len(d.Payload)), "byte"), roughDuration(time.Since(began)))
	} else if err := r.failure(d, o, acks); err != nil {
		return err
	}
	if enough {
		return rpc.ErrStop
	}
	return nil
}

// failure says what becomes of a message whose command did not succeed; nil: it is done with all the same.
func (r *runner) failure(d *rpc.Delivery, o outcome, acks bool) error {
	switch {
	case errors.Is(o.failed, errKilled):
		return r.giveBack(nil)
	case o.failed != nil:
		return r.giveBack(o.failed)
	case r.life.Err() != nil:
		r.notices.line("command ended for message %d (%s): it took longer than --grace", d.Sequence, d.Topic)
		return r.giveBack(nil)
	case (o.code == exitNotFound || o.code == exitNotExecutable) && !r.ran.Load():
		// A misspelt command shall not use up the attempts of one message after the other.
		r.stop(failf(exitOther, "sub: --exec: the command cannot be run: %s", r.reason(o)))
		return errors.Join(retry(r.reason(o)), rpc.ErrStop)
	}
	r.ran.Store(true)
	if !acks {
		r.notices.line("command failed for message %d (%s): %s", d.Sequence, d.Topic, o.text)
		return nil
	}
	nack, then, most := retry(r.reason(o)), "given back", r.maxAttempts.Load()
	switch {
	case o.code == exitInput:
		nack.Action, then = core.NackReject, "rejected"
	case int64(d.Attempt) >= most:
		then = "out of attempts"
	}
	r.notices.line("command failed for message %d (%s), attempt %d of %d: %s; %s", d.Sequence, d.Topic, d.Attempt, most, o.text, then)
	return nack
}

// reason is what a dead letter says of the failure.
func (r *runner) reason(o outcome) string {
	if o.words == "" {
		return o.text
	}
	return o.text + ": " + o.words
}

func retry(reason string) *rpc.NackError {
	return &rpc.NackError{Nack: core.Nack{Action: core.NackRetry, Reason: reason}}
}

// quota lets messages be begun with as long as it is not certain that enough of them will be done. It is safe for concurrent use.
type quota struct {
	mu      sync.Mutex
	change  sync.Cond
	left    int64 // how many are still wanted; negative: any number
	running int64
	closed  bool
}

// open wants n; 0: any number.
func (q *quota) open(n int64) {
	q.change.L = &q.mu
	q.left = n
	if n == 0 {
		q.left = -1
	}
}

// begin waits until it is known whether one more is wanted, and reports whether it is.
func (q *quota) begin() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed && q.left > 0 && q.running >= q.left {
		q.change.Wait()
	}
	if q.closed || q.left == 0 {
		return false
	}
	q.running++
	return true
}

// end tells of one that was begun with whether it counts, and reports whether it was the last.
func (q *quota) end(counts bool) (enough bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running--
	if counts && q.left > 0 {
		q.left--
	}
	q.change.Broadcast()
	return q.left == 0
}

// close ends all waiting; nothing more is wanted.
func (q *quota) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.change.Broadcast()
}
