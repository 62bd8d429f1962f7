//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// ignoreBrokenPipe makes a write to a standard stream that nobody reads any more an error instead of the end of the
// process: a broker goes on when what collects its log has gone.
func ignoreBrokenPipe() { signal.Ignore(syscall.SIGPIPE) }

// catchBrokenPipe makes such a write an error until the returned function is called. A signal that is caught, other than one that is
// ignored, has its usual effect in the commands that this process starts.
func catchBrokenPipe() (stop func()) {
	ch := make(chan os.Signal, 1) // nobody receives
	signal.Notify(ch, syscall.SIGPIPE)
	return func() { signal.Stop(ch) }
}

// raise ends the process by its signal, with the default handler in place, so that whoever waits for the process (a
// shell in a loop) sees that it was interrupted. It returns when there is no signal.
func (e ending) raise() {
	s, ok := e.signal.(syscall.Signal)
	if !ok {
		return
	}
	if s == syscall.SIGPIPE {
		// The runtime ignores a SIGPIPE that is sent; it dies of one that a write to standard output earns.
		_, _ = os.Stdout.Write([]byte{'\n'})
		os.Exit(e.code)
	}
	signal.Reset(s)
	_ = syscall.Kill(syscall.Getpid(), s) // a process may always signal itself
	time.Sleep(time.Second)               // the signal may need a moment to arrive
	os.Exit(e.code)
}
