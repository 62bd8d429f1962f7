//go:build unix

package main

import (
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// watchReader calls gone once when nobody can read any more what is written to w, so that a subscriber with nothing to
// write notices that `head` has left. It watches nothing but files. The returned function ends the watch.
func watchReader(w io.Writer, gone func()) (stop func()) {
	f, ok := w.(*os.File)
	if !ok {
		return func() {}
	}
	const pollMillis = 500
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			// No events are asked for: errors and hang-ups are always told.
			fds := []unix.PollFd{{Fd: int32(f.Fd())}}
			n, err := unix.Poll(fds, pollMillis)
			select {
			case <-done:
				return
			default:
			}
			switch {
			case err != nil && !errors.Is(err, unix.EINTR):
				return
			case n > 0 && fds[0].Revents&unix.POLLNVAL != 0:
				return
			case n > 0 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0:
				gone()
				return
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}
