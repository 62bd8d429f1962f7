package rpc

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// lostError is why a connection was lost, in short words; it keeps the status.
type lostError struct {
	cause string
	err   error
}

func (e *lostError) Error() string { return e.cause }
func (e *lostError) Unwrap() error { return fromStatus(e.err) }

// lossCause returns why a stream ended, in short words.
func lossCause(err error) error {
	if connectionLost(err) {
		return &lostError{cause: connectionCause(err), err: err}
	}
	return fromStatus(err)
}

// errStreamEnded is the end of a stream for which the broker gave no reason.
var errStreamEnded = errors.New("the broker ended the stream without a reason")

// retryable reports whether a stream that ended with err is to be opened again: the connection or the stream is gone, the broker is
// going, or it has no room at the moment.
func retryable(err error) bool {
	if connectionLost(err) || errors.Is(err, errStreamEnded) {
		return true
	}
	switch status.Code(err) {
	case codes.Unavailable:
		return true
	case codes.ResourceExhausted:
		return !errors.Is(fromStatus(err), core.ErrMessageTooLarge)
	}
	return false
}

// retrial opens a stream again after it was lost. Not safe for concurrent use.
type retrial struct {
	client *Client
	gaps   pauses
}

// lived takes note of how long the last stream stood.
func (r *retrial) lived(d time.Duration) { r.gaps.lived(d) }

// run calls open, which waits for the connection, until it succeeds, after a stream has ended for err. It gives up for
// an error that will not go away and when the client's options say so. open's context bounds the opening alone.
func (r *retrial) run(ctx context.Context, err error, open func(context.Context) error) error {
	timeout := r.client.options.ReconnectTimeout
	opening, cancel := ctx, context.CancelFunc(func() {})
	if timeout > 0 {
		opening, cancel = context.WithTimeout(ctx, timeout)
	}
	defer cancel()
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if opening.Err() == nil && !retryable(err) {
			return fromStatus(err)
		}
		if opening.Err() != nil || r.client.options.NoReconnect {
			return r.client.lostForGood(ctx, err)
		}
		r.client.outage.lost(lossCause(err))
		if sleep(opening, r.gaps.afterLoss()) != nil {
			continue
		}
		stop := r.client.watchOutage(maxPause)
		err = open(opening)
		if stop(); err == nil {
			r.client.outage.back()
			return nil
		}
	}
}

// openFirst opens a stream for the first time. A client that waits for its broker tries again when the connection is lost just then, and when the
// broker that it has reached is going away.
func (c *Client) openFirst(ctx context.Context, open func(wait bool) error) error {
	var gaps pauses
	err := open(false)
	for c.options.Wait && retryable(err) && status.Code(err) != codes.ResourceExhausted && ctx.Err() == nil {
		c.outage.still(lossCause(err))
		if cause := sleep(ctx, gaps.afterLoss()); cause != nil {
			return cause
		}
		stop := c.watchOutage(maxPause)
		err = open(true)
		stop()
	}
	return err
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// lostForGood is the error of a stream that could not be opened again after err.
func (c *Client) lostForGood(ctx context.Context, err error) error {
	switch {
	case retryable(err) && status.Code(err) == codes.ResourceExhausted:
		return fromStatus(err)
	case retryable(err):
		return &UnreachableError{Target: c.options.Target, Lost: true, Err: lossCause(err)}
	}
	lost := c.unreachable(ctx) // the time ran out while waiting for the connection
	lost.Lost = true
	return lost
}
