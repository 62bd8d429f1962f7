package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// Subscribe receives messages and gives them to handle, one after the other or as many as Parallel at once, until ctx ends, handle
// asks for the end, or the broker says something that trying again does not help against. It returns that: the context's
// error, nil for ErrStop, any other error of handle as it is, a *core.EndedError when the broker ended the subscription
// for good, an *UnreachableError, or the broker's error.
//
// A subscription that was evicted or whose connection was lost is opened again as it was, under the same id, after a growing
// pause. The pause becomes short again once a stream has lived for a minute. While handlers work nothing more is read than the
// broker lets a member have in flight, or than a few messages for each of them: the others wait in the broker's queue.
//
// In a group with acks, what handle returns decides what becomes of its delivery. Nil acknowledges it. A *NackError gives it back,
// and the subscription goes on. ErrStop acknowledges it, and the subscription ends. Any other error gives it back as a failed
// attempt, which the group may deliver again at once, and the subscription ends. What handle returns after the connection
// was lost has no effect: the broker has given the message to somebody else by then.
//
// Messages with the same key are handled in order, also when one of them is given back to be tried again after a pause: those behind
// it that are here already go back unhandled, and come after it.
//
// However the subscription ends, a member leaves its group cleanly: nothing more is handed out, what was received and not begun goes
// back at once and counts as not delivered, running handlers have Grace to finish and be acknowledged, and the broker confirms. ErrStop
// without that confirmation is an error, since the last acknowledgements may be lost. Subscribe returns when every handler has.
func (c *Client) Subscribe(ctx context.Context, o SubscribeOptions, handle func(*Delivery) error) error {
	if err := o.check(); err != nil {
		return err
	}
	s := &subscriber{client: c, options: o, handle: handle, retry: retrial{client: c}}
	s.ctx, s.halt = context.WithCancelCause(ctx)
	defer s.halt(nil)
	if o.Parallel > 1 {
		s.pool = newPool(o.Parallel, s.handleJob)
		defer s.pool.workers.Wait()
	}
	var call *subscribeCall
	err := c.openFirst(ctx, func(wait bool) (err error) {
		call, err = s.open(ctx, wait)
		return err
	})
	if err != nil {
		return c.callError(ctx, err)
	}
	for {
		ended := s.serve(call)
		s.retry.lived(time.Since(call.openedAt))
		next, err := s.reopen(call, ended)
		if err != nil {
			return s.outcome(call, ended, err)
		}
		call = next
	}
}

// subscriber is one Subscribe.
type subscriber struct {
	client  *Client
	options SubscribeOptions
	handle  func(*Delivery) error
	ctx     context.Context // ends with that of Subscribe, or when handle asks for the end
	halt    context.CancelCauseFunc
	retry   retrial
	pool    *pool // nil: deliveries are handled one after the other, by the goroutine of Subscribe

	frames    deliveries
	delivery  Delivery
	unflushed bool // deliveries are handled, and SubscribeOptions.Flush has not been called since

	runID     string    // of the broker at the last stream
	lostAt    time.Time // when the connection was lost; zero: it was not
	evicted   bool      // the last stream ended with an eviction, which was told
	evictedAt time.Time // by the broker

	mu      sync.Mutex
	stopped bool
	result  error // of Subscribe, when stopped
}

// serve hands on what comes on a stream until it ends, and returns why it did.
func (s *subscriber) serve(call *subscribeCall) error {
	defer call.end()
	if s.pool != nil {
		s.pool.begin(call.acks())
	}
	s.registered(call)
	if err := s.learnt(call); err != nil {
		s.stop(err)
	}
	return s.receive(call)
}

// stop ends the subscription, and makes Subscribe return err. Only the first call counts.
func (s *subscriber) stop(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.stopped, s.result = true, err
		s.halt(err)
	}
}

// halted reports whether nothing more is to be handed out.
func (s *subscriber) halted() bool { return s.ctx.Err() != nil }

// outcome is what Subscribe returns after its last stream has ended, and there is no other for err.
func (s *subscriber) outcome(call *subscribeCall, ended, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.stopped:
		return err
	case s.result == nil && call.acks() && !hasLeft(ended):
		if call.member.unanswered() {
			ended = errNoFarewell
		}
		return fmt.Errorf("the last acknowledgements may be lost: %w", s.client.streamError(ended))
	}
	return s.result
}

// errNoFarewell is why a member stopped waiting for the broker.
var errNoFarewell = fmt.Errorf("the broker did not confirm them within %s", leaveTimeout)

// hasLeft reports whether a stream ended as its member had asked for.
func hasLeft(err error) bool {
	ended, ok := errors.AsType[*core.EndedError](err)
	return ok && ended.Reason == core.EndLeft
}

// reopen opens the next stream after one has ended for err, or returns the error for which there will be none.
func (s *subscriber) reopen(last *subscribeCall, err error) (call *subscribeCall, _ error) {
	if s.halted() {
		return nil, context.Cause(s.ctx)
	}
	away := time.Now()
	if s.pool != nil {
		// Handlers of the last stream may still run. Without a free one, messages would only wait here.
		if err := s.pool.available(s.ctx); err != nil {
			return nil, err
		}
	}
	ended, ok := errors.AsType[*core.EndedError](err)
	switch {
	case last.hung() && (!ok || hasLeft(err)):
		if call, err = s.open(s.ctx, false); err == nil {
			return call, nil
		}
	case ok:
		if !ended.Reason.Resumable() || s.options.NoResubscribe {
			return nil, err
		}
		s.evicted, s.evictedAt = true, last.openedAt.Add(ended.Lived)
		away = s.evictedAt
		s.tellEnded(ended.Ending)
		if err := sleep(s.ctx, s.retry.gaps.afterEviction()); err != nil {
			return nil, err
		}
		if call, err = s.open(s.ctx, false); err == nil {
			return call, nil
		}
	}
	if s.lostAt = away; !retryable(err) {
		return nil, fromStatus(err)
	}
	return call, s.retry.run(s.ctx, err, func(opening context.Context) (err error) {
		call, err = s.open(opening, true)
		return err
	})
}

func (s *subscriber) tellEnded(e core.Ending) {
	if s.options.OnEnded != nil {
		s.options.OnEnded(e)
	}
}

func (s *subscriber) tellDropped(e core.Ending) {
	if e.Dropped > 0 && s.options.OnDropped != nil {
		s.options.OnDropped(e.Dropped)
	}
}

// registered tells of a new stream.
func (s *subscriber) registered(call *subscribeCall) {
	opened := call.opened
	s.options.ID = opened.GetSubscriptionId()
	restarted := s.runID != "" && s.runID != opened.GetBrokerRunId()
	s.runID = opened.GetBrokerRunId()
	if s.options.OnOpened != nil {
		s.options.OnOpened(openedFromProto(opened))
	}
	switch {
	case s.options.OnGap == nil:
	case !s.lostAt.IsZero():
		s.options.OnGap(Gap{Outage: call.openedAt.Sub(s.lostAt), Restarted: restarted})
	case s.evicted:
		s.options.OnGap(Gap{Outage: max(0, call.openedAt.Sub(s.evictedAt)), Evicted: true})
	}
}

// learnt tells of an eviction that could not be read of since the connection was lost. An error: that was the end.
func (s *subscriber) learnt(call *subscribeCall) error {
	unknown := !s.lostAt.IsZero() && !s.evicted && call.opened.GetPrevious() != nil
	s.lostAt, s.evicted = time.Time{}, false
	if !unknown {
		return nil
	}
	previous := endingFromProto(call.opened.GetPrevious())
	s.tellDropped(previous)
	if s.options.NoResubscribe {
		return &core.EndedError{Ending: previous}
	}
	s.tellEnded(previous)
	return nil
}
