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

// watchSignals returns a context that ends at the first SIGINT or SIGTERM, with a *signalError as its cause, so that
// the command can clean up. The second one ends the process at once, after a call of abort; but timeout(1) sends each signal
// twice, to the process and to its group, and the double counts once. A signal that the process was started with ignored, as
// a shell does for background jobs, stays ignored.
func watchSignals(parent context.Context, abort func()) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	ch := make(chan os.Signal, 2)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		if !signal.Ignored(s) {
			signal.Notify(ch, s)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		first, ok := <-ch
		if !ok {
			return
		}
		cancel(&signalError{first})
		came := time.Now()
		second, ok := <-ch
		for ok && second == first && time.Since(came) < sameSignal {
			second, ok = <-ch
		}
		if ok {
			abort()
			ending{code: (&signalError{second}).code(), signal: second}.raise()
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		close(ch)
		<-done
		cancel(nil)
	}
}
