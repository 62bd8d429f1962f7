package rpc

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// leaveTimeout is how long the broker may take to confirm that a member has left.
const leaveTimeout = 5 * time.Second

// membership is the subscriber's side of a group's member, on one stream: it knows what is being handled, and one goroutine of its
// own tells the broker what became of it. All methods are safe for concurrent use.
//
// Leaving goes like this: nothing more is handed out; the broker is told to send nothing more, and gets back what no handler has
// begun with; when the handlers that are running have returned, or the grace is over, the stream is half-closed; the
// broker takes back the rest, if any, and confirms by `closed`.
type membership struct {
	stream grpc.ClientStream
	cancel context.CancelFunc // of the stream
	acks   bool               // deliveries are replied to
	grace  time.Duration
	lease  lease
	most   uint64 // max_in_flight

	wake    chan struct{} // capacity 1: there may be something to say
	written chan struct{} // closed when the writer has returned
	unwatch func() bool   // of the context that makes the member leave

	mu      sync.Mutex
	replies replies
	said    uint64     // requests, as far as they are collected
	count   uint64     // deliveries received
	held    int        // of those, not replied to
	running []handling // those that handlers are working on
	failed  failedKeys
	leaving bool // nothing more is handed out
	asked   bool // it was told to leave; else it leaves since a handler did not return in time
	told    bool // the broker knows that it leaves
	last    bool // nothing more will be said
	silent  bool // the broker has not answered that
	ended   bool // the stream is over
	timer   *time.Timer
}

// handling is a delivery that a handler is working on.
type handling struct {
	sequence uint64
	ticks    int  // of the lease's clock, since it began
	overdue  bool // its handler did not return in time; it was given back
}

// newMembership starts the member's writer. The member leaves when ctx ends, and must be ended.
func newMembership(ctx context.Context, stream grpc.ClientStream, cancel context.CancelFunc, opened *tinybrokerv1.Opened, o *SubscribeOptions) *membership {
	m := &membership{
		stream:  stream,
		cancel:  cancel,
		acks:    core.AckMode(opened.GetAckMode()) == core.AckExplicit,
		grace:   o.Grace,
		most:    uint64(opened.GetMaxInFlight()),
		wake:    make(chan struct{}, 1),
		written: make(chan struct{}),
	}
	if m.grace == 0 {
		m.grace = defaultGrace
	}
	if m.acks {
		m.lease = newLease(opened.GetAckDeadline().AsDuration(), o.MaxExtension)
	}
	go m.write()
	m.unwatch = context.AfterFunc(ctx, m.leave)
	return m
}

// received notes that n deliveries have come.
func (m *membership) received(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count += uint64(n)
	m.held += n
}

// begin notes that delivery n goes to a handler; false: it must not.
func (m *membership) begin(n uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leaving || m.ended {
		return false
	}
	m.running = append(m.running, handling{sequence: n})
	return true
}

// passOver is subscribeCall.passesOver.
func (m *membership) passOver(d *Delivery) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leaving || m.ended || !m.failed.waits(d) {
		return false
	}
	m.held--
	m.replies.nack(d.Sequence, core.Nack{Action: core.NackRelease})
	m.rouse()
	return true
}

// settledLocked is how many deliveries have been replied to.
func (m *membership) settledLocked() uint64 {
	n := m.count - uint64(m.held)
	for _, h := range m.running {
		if h.overdue {
			n++
		}
	}
	return n
}

// done notes that the handler of d has returned. comesAgain: d goes back, to be handled before any other of its key.
func (m *membership) done(d *Delivery, v verdict, comesAgain bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := d.Sequence
	i := slices.IndexFunc(m.running, func(h handling) bool { return h.sequence == n })
	given := m.running[i].overdue
	m.running = slices.Delete(m.running, i, i+1)
	m.held--
	if m.ended {
		return // on another stream its number would mean another message
	}
	if m.acks && !given {
		m.replyLocked(n, v.nack)
		if comesAgain {
			m.failed.failed(d.Key, n, m.count)
		}
	}
	if v.stop {
		m.leaving, m.asked = true, true
	}
	m.settleLocked()
	m.rouse()
}

// doneAll is done for everything that handlers are working on.
func (m *membership) doneAll(v verdict) {
	m.mu.Lock()
	defer m.mu.Unlock()
	running := m.running
	m.running = m.running[:0]
	m.held -= len(running)
	if m.ended {
		return
	}
	for _, h := range running {
		if m.acks && !h.overdue {
			m.replyLocked(h.sequence, v.nack)
		}
	}
	if v.stop {
		m.leaving, m.asked = true, true
	}
	m.settleLocked()
	m.rouse()
}

func (m *membership) replyLocked(n uint64, nack *core.Nack) {
	if nack == nil {
		m.replies.ack(n)
		return
	}
	m.replies.nack(n, *nack)
}

// leave makes the member leave the group.
func (m *membership) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leaving, m.asked = true, true
	m.settleLocked()
	m.rouse()
}

// settleLocked takes a member that leaves on to its next step.
func (m *membership) settleLocked() {
	if !m.leaving || m.last || m.ended {
		return
	}
	if m.acks && slices.ContainsFunc(m.running, func(h handling) bool { return !h.overdue }) {
		if m.timer == nil && m.asked {
			m.timer = time.AfterFunc(m.grace, m.finish)
		}
		return
	}
	m.finishLocked()
}

// finish says the last word, whatever handlers are still doing.
func (m *membership) finish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.finishLocked()
	m.rouse()
}

func (m *membership) finishLocked() {
	if m.last || m.ended {
		return
	}
	m.last = true
	if m.timer != nil {
		m.timer.Stop()
	}
	m.timer = time.AfterFunc(leaveTimeout, m.giveUp)
}

// giveUp ends the stream on which the broker does not confirm.
func (m *membership) giveUp() {
	m.mu.Lock()
	m.silent = !m.ended
	m.mu.Unlock()
	m.cancel()
}

// unanswered reports whether the stream was given up since the broker did not confirm.
func (m *membership) unanswered() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.silent
}

// hung reports whether the member left by itself, since a handler did not return in time.
func (m *membership) hung() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leaving && !m.asked
}

// end ends the stream, if it has not ended, and waits for the writer.
func (m *membership) end() {
	m.unwatch()
	m.cancel()
	m.over()
	m.rouse()
	<-m.written
}

// over notes that the stream is over.
func (m *membership) over() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
	if m.timer != nil {
		m.timer.Stop()
	}
}

func (m *membership) rouse() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}
