package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// watchSignals returns a context that ends at the first SIGINT or SIGTERM, with a *signalError as its cause, so that
// the command can clean up. The second one ends the process at once, after a call of abort. A signal that the process was
// started with ignored, as a shell does for background jobs, stays ignored.
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
		if second, ok := <-ch; ok {
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
