package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

const (
	// outputBuffer is how much is written at once while messages come faster than they can be written one by one.
	outputBuffer = 64 << 10
	// writePatience is how long a command that was ended waits for a write that its reader does not take.
	writePatience = 500 * time.Millisecond
	// leavePatience is how long it waits beyond that for the broker to confirm that it has left its group.
	leavePatience = 2 * time.Second
)

// The ways in which a subscription ends as asked for.
var (
	errIdle = errors.New("idle")
	errTime = errors.New("time is up")
)

// subSession is one run of sub. print and flush are called by one goroutine.
type subSession struct {
	o       *subOptions
	notices *notices
	out     io.Writer
	format  format
	buf     []byte // formatted and not yet written
	taken   int64  // messages formatted
	broken  error  // why nothing more can be written

	done        atomic.Int64 // messages written, or handled by a command
	acks        atomic.Bool  // the broker waits for acknowledgements
	maxAttempts atomic.Int64 // of the group
	idle        idleTimer
	stop        context.CancelCauseFunc
	link        link
	dropped     tally
}

func runSub(ctx context.Context, a *app, o *subOptions) error {
	defer catchBrokenPipe()() // it leaves in order then, too: commands may be running
	f, err := o.formatter(isTerminal(a.out), useColor(o.color, a.out))
	if err != nil {
		return err
	}
	s := &subSession{o: o, notices: o.notices(a.streams), out: a.out, format: f}
	for _, pattern := range o.patterns {
		if here := foreignWildcard(pattern); here != "" && !hasComment(o.patterns[1:]) {
			s.notices.info("%s is one topic here, and no wildcard; write '%s'", pattern, here)
		}
	}
	if hasComment(o.patterns[1:]) {
		s.notices.info("# and what is behind it are patterns, too; %s", commentHint)
	}
	if expandedByShell(o.patterns) {
		s.notices.info("%s: also the name of a file here; if the shell has made that of a pattern, %s", o.patterns[0], quotePatterns)
	}
	s.idle = idleTimer{after: o.idle, fire: func() { s.stop(errIdle) }}
	s.dropped.tell = func(n uint64) {
		s.notices.info("dropped by broker: %s, the queue was full", count(n, "message"))
	}
	defer s.dropped.close()
	if err := clearReadyFile(o.readyFile); err != nil {
		return err
	}
	ctx, s.stop = context.WithCancelCause(ctx)
	defer s.stop(nil)
	if o.forTime > 0 {
		defer time.AfterFunc(o.forTime, func() { s.stop(errTime) }).Stop()
	}
	defer watchReader(a.out, func() { s.stop(&writeError{errReaderGone}) })()
	client, err := o.dial(ctx, s.notices, &s.link)
	if err != nil {
		return s.result(ctx, err)
	}
	defer client.Close()
	request, handle := s.request(), s.print
	if o.exec == "" {
		request.Flush = s.flush
	} else {
		r := newRunner(ctx, a, s)
		defer r.finish()
		request.Parallel, handle = o.execParallel, r.handle
	}
	_, err = leaving(ctx, o.stopPatience(), func() error { return client.Subscribe(ctx, request, handle) })
	return s.result(ctx, err)
}

func (s *subSession) request() rpc.SubscribeOptions {
	r := rpc.SubscribeOptions{
		ID: s.o.id, Patterns: s.o.patterns, ClientName: s.o.clientName,
		Overflow: overflowPolicies[s.o.overflow], Capacity: s.o.capacity,
		NoResubscribe: s.o.exitOnEvict,
		OnOpened:      s.opened, OnLagging: s.lagging, OnEnded: s.ended, OnDropped: s.dropped.add, OnGap: s.gap,
	}
	if s.o.group != "" {
		s.o.askGroup(&r)
	}
	return r
}

// print writes a message, at the latest when flush is called.
func (s *subSession) print(d *rpc.Delivery) error {
	s.noteDropped(d)
	var err error
	if s.buf, err = s.format(s.buf, d); err != nil {
		return err
	}
	s.taken++
	if len(s.buf) >= outputBuffer {
		if err := s.flush(); err != nil {
			return err
		}
	}
	s.notices.detail("%d: %s, %s", d.Sequence, d.Topic, count(uint64(len(d.Payload)), "byte"))
	s.idle.touch()
	if s.taken == s.o.count {
		return rpc.ErrStop
	}
	return nil
}

// flush writes what was formatted. Messages are acknowledged only when it has succeeded.
func (s *subSession) flush() error {
	if s.broken == nil && len(s.buf) > 0 {
		_, s.broken = s.out.Write(s.buf)
		s.buf = s.buf[:0]
		if cap(s.buf) > 16*outputBuffer {
			s.buf = nil // a rare large message is not kept
		}
	}
	if s.broken != nil {
		return s.giveBack(&writeError{s.broken})
	}
	s.done.Store(s.taken)
	return nil
}

// giveBack ends the run, for err if there is one. What it returns gives messages back as if they had not been delivered: they are not
// at fault.
func (s *subSession) giveBack(err error) error {
	if err != nil {
		s.stop(err)
	}
	return errors.Join(&rpc.NackError{Nack: core.Nack{Action: core.NackRelease}}, rpc.ErrStop)
}

func (s *subSession) noteDropped(d *rpc.Delivery) {
	if d.DroppedBefore > 0 {
		s.dropped.add(d.DroppedBefore)
	}
}

func (s *subSession) opened(op rpc.Opened) {
	s.acks.Store(op.Group && op.Ack == core.AckExplicit)
	s.maxAttempts.Store(int64(op.MaxAttempts))
	s.tellOpened(op)
	s.idle.start()
	if s.o.readyFile == "" {
		return
	}
	if err := writeFileAtomic(s.o.readyFile, []byte(op.SubscriptionID+"\n")); err != nil {
		s.stop(failf(exitIO, "--ready-file %s: %s", s.o.readyFile, rootCause(err)))
	}
}

func (s *subSession) lagging(l rpc.Lagging) {
	then := "evicts at the last"
	if s.o.overflow != "" && s.o.overflow != "evict" {
		then = "drops what finds none"
	}
	s.notices.info("falling behind: %d of %d queue slots are taken, by %s; the broker %s",
		l.Queued, l.Capacity, roughSize(int64(l.QueuedBytes)), then)
}

// ended tells of an eviction that is followed by a new subscription.
func (s *subSession) ended(e core.Ending) { s.notices.line("%s", endingText(e, s.o.group)) }

func (s *subSession) gap(g rpc.Gap) {
	switch {
	case g.Evicted && s.o.group != "":
		return // its messages have waited, or went to other members
	case g.Evicted:
		s.notices.info("gap: what was published in the %s after the eviction is missing as well", roughDuration(g.Outage))
		return
	case s.o.group != "":
		s.tellGroupGap(g)
		return
	}
	restarted := ""
	if g.Restarted {
		restarted = "; the broker was restarted"
	}
	s.notices.info("gap: what was published in the %s without a connection is missing%s", roughDuration(g.Outage), restarted)
}

// endingText says how the broker ended a subscription, or the membership of a group, and what can be done about it.
func endingText(e core.Ending, group string) string {
	switch e.Reason {
	case core.EndEvicted:
		why := e.Text
		if why == "" || why == e.Reason.String() { // the last frame did not get through
			why = "queue full"
		}
		advice := "read faster, use --group, or raise --capacity"
		if strings.HasPrefix(why, "memory full") {
			advice = "read faster, use --group, or give the broker a larger --max-memory"
		}
		return fmt.Sprintf("evicted by broker: %s after %s, %s lost; %s", why, roughDuration(e.Lived), count(e.Lost, "message"), advice)
	case core.EndStalled:
		if group != "" {
			return fmt.Sprintf("evicted by broker: nothing was read for too long, after %s; what was in flight goes to other members of group %s",
				roughDuration(e.Lived), group)
		}
		return fmt.Sprintf("evicted by broker: nothing was read for too long, after %s, %s lost; read faster",
			roughDuration(e.Lived), count(e.Lost, "message"))
	case core.EndReplaced:
		return "replaced: another subscription took over this id"
	case core.EndKicked:
		return "closed by an operator"
	case core.EndRevoked:
		if e.Text != "" && e.Text != e.Reason.String() {
			return "no longer allowed to receive: " + e.Text
		}
		return "no longer allowed to receive"
	}
	return (&core.EndedError{Ending: e}).Error()
}

// result is how the run ends, given why Subscribe did.
func (s *subSession) result(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	var (
		sig   *signalError
		ended *core.EndedError
		write *writeError
	)
	switch {
	case err == nil && s.o.count > 0 && s.done.Load() >= s.o.count:
		return nil
	case errors.As(cause, &sig):
		return sig
	case errors.Is(cause, errTime), errors.Is(cause, errIdle):
		return s.timeUp(cause)
	case errors.As(cause, &write):
		return write
	case errors.As(err, &ended):
		return &exitError{code: codeOfEnding(ended.Reason), err: errors.New(endingText(ended.Ending, s.o.group))}
	case cause != nil:
		return cause
	case errors.Is(err, core.ErrGroupConfig):
		return s.o.differs(err)
	}
	return err
}

// timeUp is the end by --for or --idle: a failure when messages are missing, or when nobody could have sent any.
func (s *subSession) timeUp(cause error) error {
	what := "--for " + shortDuration(s.o.forTime)
	if errors.Is(cause, errIdle) {
		what = "--idle " + shortDuration(s.o.idle)
	}
	if !s.link.up.Load() {
		return failf(exitUnavailable, "sub: no connection to %s when %s ended", s.o.server, what)
	}
	if s.o.count > 0 {
		return failf(exitShort, "sub: %s ended after %d of %s", what, s.done.Load(), count(uint64(s.o.count), "message"))
	}
	return nil
}

// clearReadyFile removes what an earlier run left, which would make this one look ready.
func clearReadyFile(path string) error {
	if path == "" {
		return nil
	}
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return usagef("sub: --ready-file %s: is not a regular file", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failf(exitIO, "sub: --ready-file %s: %s", path, rootCause(err))
	}
	return nil
}
