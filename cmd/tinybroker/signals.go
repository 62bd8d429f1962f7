package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// sameSignal is how long after a signal another one is taken for its double: less than a person needs to press a key twice.
const sameSignal = 50 * time.Millisecond

// leaving runs f. Once ctx has ended f has the patience to return, and is then left behind, with the cause as the error: it may sit in a
// write that nobody takes, which cannot be interrupted, and shall not keep the process.
func leaving(ctx context.Context, patience time.Duration, f func() error) (left bool, err error) {
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	select {
	case err = <-ended:
		return false, err
	case <-ctx.Done():
	}
	select {
	case err = <-ended:
		return false, err
	case <-time.After(patience):
		return true, context.Cause(ctx)
	}
}

// within runs f and waits for it no longer than patience.
func within(patience time.Duration, f func()) {
	done := make(chan struct{})
	go func() {
		f()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(patience):
	}
}

// offer wakes up whoever receives from a channel that holds one, unless that is to happen already.
func offer(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// signalWatch ends a context at the first signal that is to end the command, so that the command can clean up. The second one ends the
// process at once, after a call of abort.
type signalWatch struct {
	ch    chan os.Signal
	done  chan struct{}
	abort func()
}

// watchSignals returns a context that ends at the first SIGINT or SIGTERM, with a *signalError as its cause. The watch must be stopped.
func watchSignals(parent context.Context, abort func()) (context.Context, *signalWatch) {
	ctx, cancel := context.WithCancelCause(parent)
	w := &signalWatch{ch: make(chan os.Signal, 2), done: make(chan struct{}), abort: abort}
	w.add(os.Interrupt)
	w.add(syscall.SIGTERM)
	go func() {
		defer close(w.done)
		defer cancel(nil)
		w.run(cancel)
	}()
	return ctx, w
}

// add lets another signal end the context, too. One that the process was started with ignored, as a shell does with SIGINT for jobs
// in the background and nohup with SIGHUP, stays ignored.
func (w *signalWatch) add(s os.Signal) {
	if !signal.Ignored(s) {
		signal.Notify(w.ch, s)
	}
}

func (w *signalWatch) run(cancel context.CancelCauseFunc) {
	first, ok := <-w.ch
	if !ok {
		return
	}
	cancel(&signalError{first})
	came := time.Now()
	for second := range w.ch {
		if !isDouble(first, second, time.Since(came)) {
			w.abort()
			ending{code: (&signalError{second}).code(), signal: second}.raise()
		}
	}
}

// isDouble reports whether a signal so long after the first says no more than that one. timeout(1) sends each signal twice, to the process
// and to its group. SIGHUP comes as often as somebody notices that the terminal has gone, and before or after SIGTERM where a session is
// ended: it is never a sign of impatience.
func isDouble(first, second os.Signal, after time.Duration) bool {
	if second == syscall.SIGHUP {
		return true
	}
	return after < sameSignal && (second == first || first == syscall.SIGHUP)
}

// stop ends the watch and the context.
func (w *signalWatch) stop() {
	signal.Stop(w.ch)
	close(w.ch)
	<-w.done
}
