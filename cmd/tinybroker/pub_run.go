package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// interruptPatience is how long an interrupted pub waits for confirmations.
const interruptPatience = 2 * time.Second

// pubSession is one run of pub: records are read and published by one goroutine, receipts arrive on another.
type pubSession struct {
	o        *pubOptions
	notices  *notices
	stdin    io.Reader
	typed    bool // at a terminal: a progress line would be in the way
	terminal bool // standard error is one
	composer *composer
	ledger   ledger
	pacer    pacer
	receipts *receiptWriter
	started  time.Time
	limit    atomic.Int64 // the broker's limit, once a refusal on this connection has told it; 0: not known

	publisher *rpc.Publisher
	stop      context.CancelCauseFunc // ends reading

	mu    sync.Mutex
	bad   uint64 // records that were not published, or were refused
	first error  // why the first of them was not
}

func runPub(ctx context.Context, a *app, o *pubOptions) error {
	composer, err := newComposer(o)
	if err != nil {
		return err
	}
	if err := checkFiles(o.files); err != nil {
		return err
	}
	s := &pubSession{
		o: o, notices: o.notices(a.streams), stdin: a.in, composer: composer,
		typed: !o.hasPayload && len(o.files) == 0 && isTerminal(a.in), terminal: isTerminal(a.err),
		pacer: pacer{gap: o.gap()}, receipts: newReceiptWriter(a.out, o.tee, o.output == "json"),
	}
	left, err := leaving(ctx, interruptPatience+writePatience, func() error { return s.publishAll(ctx) })
	if left {
		return s.result(err, nil)
	}
	return err
}

// publishAll publishes all there is, and waits for the confirmations.
func (s *pubSession) publishAll(ctx context.Context) error {
	o := s.o
	// The broker that comes back may have another limit.
	client, err := o.dial(ctx, s.notices, &link{lost: func() { s.limit.Store(0) }})
	if err != nil {
		return err
	}
	defer client.Close()
	reading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s.stop = stop
	// The publisher outlives the reading: what was read before a signal is still to be confirmed.
	s.publisher, err = client.Publisher(context.WithoutCancel(ctx), rpc.PublisherOptions{
		MaxWait: o.maxWait, MaxInFlight: o.maxInflight, OnReceipt: s.receipt,
	})
	if err != nil {
		return err
	}
	if s.typed {
		s.notices.info("%s", o.typing())
	}
	return s.run(ctx, reading)
}

func (o *pubOptions) gap() time.Duration {
	if o.rate > 0 {
		return time.Duration(float64(time.Second) / o.rate)
	}
	return o.interval
}

func (s *pubSession) run(ctx, reading context.Context) error {
	s.started = time.Now()
	stopProgress := func() {}
	if s.terminal && !s.typed && !s.o.quiet {
		stopProgress = s.showProgress()
	}
	ended := make(chan error, 1)
	go func() { ended <- s.read(reading) }()
	var err error
	select {
	case err = <-ended:
	case <-reading.Done(): // the reader may sit in a read that nobody can end; it is left behind
		err = context.Cause(reading)
	case <-s.publisher.Done(): // given up, and the input may never say another word
	}
	confirmErr := s.confirm(ctx)
	// The last receipts may have stopped the reading after it had ended, and a signal may have come meanwhile.
	for _, c := range []context.Context{reading, ctx} {
		if cause := context.Cause(c); cause != nil {
			err = cause
		}
	}
	stopProgress()
	s.summary()
	return s.result(err, confirmErr)
}

// read publishes every record of every input. It ends early when ctx does, or at a bad record.
func (s *pubSession) read(ctx context.Context) error {
	for _, in := range s.o.inputs(s.stdin) {
		reader, done, err := in.open()
		if err != nil {
			return err
		}
		err = s.readInput(ctx, in, reader)
		done()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *pubSession) readInput(ctx context.Context, in *input, reader recordReader) error {
	for {
		rec, err := reader.next()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var bad *recordError
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &bad):
			err = s.reject(in.where(bad.number), bad.err)
		case err != nil:
			return s.inputError(in, err)
		case s.o.input == "json" && !s.o.hasPayload && blank(rec.data):
		default:
			err = s.publish(ctx, in, rec)
		}
		if err != nil {
			return err
		}
	}
}

func (s *pubSession) inputError(in *input, err error) error {
	if in.name == "" {
		return err
	}
	return &exitError{code: codeOf(err), err: fmt.Errorf("%s: %w", in.name, err)}
}

func (s *pubSession) publish(ctx context.Context, in *input, rec record) error {
	m, err := s.composer.message(rec)
	if err == nil {
		err = s.tooLarge(messageSize(m))
	}
	if err != nil {
		return s.reject(in.where(rec.number), err)
	}
	if err := s.pacer.wait(ctx); err != nil {
		return context.Cause(ctx)
	}
	out := sent{in: in, number: rec.number, size: messageSize(m), bytes: int64(len(m.Payload))}
	if s.o.tee {
		out.raw = append([]byte(nil), rec.raw...)
	}
	s.ledger.add(out)
	if _, err := s.publisher.Publish(ctx, m); err != nil {
		s.ledger.takeBack()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	return nil
}

// reject deals with a record that will not be published: it ends the run, or is reported and passed over.
func (s *pubSession) reject(where string, why error) error {
	err := fmt.Errorf("%s: %w", where, why)
	code := codeOf(why)
	if code == exitOther || code == exitUsage { // a bad topic in a record is bad input, not wrong usage
		code = exitInput
	}
	s.mu.Lock()
	s.bad++
	first := s.first == nil
	if first {
		s.first = &exitError{code: code, err: err, hint: roomHint(why)}
	}
	s.mu.Unlock()
	if s.o.onError == "continue" {
		s.notices.line("tinybroker: %s", err)
		return nil
	}
	if first {
		return s.first
	}
	return err
}

// roomHint says what to do about a full group; empty: it is something else.
func roomHint(err error) string {
	if errors.Is(err, core.ErrGroupFull) {
		return "start more members of the group, wait longer for them with --max-wait, or try again later"
	}
	return ""
}

// receipt is called for each receipt, in order.
func (s *pubSession) receipt(r rpc.Receipt) {
	done := s.ledger.settle(r.Last-r.First+1, r.Unrouted, r.Err == nil)
	if err := s.receipts.write(r, done); err != nil {
		s.stop(&writeError{err})
		return
	}
	if r.Err == nil {
		if s.notices.verbose {
			s.tell(done, r.Unrouted)
		}
		return
	}
	for _, m := range done {
		if err := s.reject(m.where(), s.plainTooLarge(r.Err, m.size)); err != nil {
			s.stop(err)
			return
		}
	}
}

func (s *pubSession) tell(done []sent, unrouted uint64) {
	for _, m := range done {
		s.notices.detail("%s: accepted", m.where())
	}
	if unrouted > 0 {
		s.notices.detail("%s had no subscription", count(unrouted, "message"))
	}
}

// confirm waits until everything is dealt with; after a signal, not for long.
func (s *pubSession) confirm(ctx context.Context) error {
	waiting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(interruptPatience, cancel) })()
	return s.publisher.Close(waiting)
}

// result is how the run ends, given why reading ended and why confirming did.
func (s *pubSession) result(err, confirmErr error) error {
	confirmed, _, _, open := s.ledger.counts()
	if sig, ok := errors.AsType[*signalError](err); ok {
		return fmt.Errorf("%w: %d confirmed, %d unconfirmed", &interruptedError{sig}, confirmed, open)
	}
	if confirmErr != nil { // the publisher has given up
		text := fmt.Sprintf("%d confirmed, %d unconfirmed", confirmed, open)
		if open > 0 {
			text += ": " + s.ledger.unconfirmed()
		}
		return &exitError{code: lostCode(confirmErr), err: fmt.Errorf("%w; %s", bareCause(confirmErr), text)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && !errors.Is(err, s.first):
		return err
	case s.bad > 0 && s.o.onError == "continue":
		return &exitError{code: codeOf(s.first), err: fmt.Errorf("%s not published", count(s.bad, "record")), hint: hintOf(s.first)}
	}
	return s.first
}

// bareCause leaves out the positions of unconfirmed messages, for which the ledger has the names.
func bareCause(err error) error {
	if u, ok := errors.AsType[*rpc.UnconfirmedError](err); ok {
		return u.Err
	}
	return err
}

// lostCode is the exit code when messages stay unconfirmed: never one that says that all is well.
func lostCode(err error) int {
	if code := codeOf(err); code != exitOther && code != exitOK {
		return code
	}
	return exitUnavailable
}

// interruptedError is a signal in words.
type interruptedError struct{ sig *signalError }

func (e *interruptedError) Error() string { return "interrupted" }
func (e *interruptedError) Unwrap() error { return e.sig }
