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
	f, ok := fileOf(w)
	if !ok {
		return func() {}
	}
	const pollMillis = 500 // not every system wakes a poll that asks for nothing
	// The poll also sees the end of this pipe, so that the watch can be ended at once.
	awake, wake, err := os.Pipe()
	if err != nil {
		return func() {}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		defer awake.Close()
		for {
			// No events are asked for: errors and hang-ups are always told.
			fds := []unix.PollFd{{Fd: int32(f.Fd())}, {Fd: int32(awake.Fd())}}
			_, err := unix.Poll(fds, pollMillis)
			out := fds[0].Revents
			switch {
			case errors.Is(err, unix.EINTR):
			case err != nil, fds[1].Revents != 0, out&unix.POLLNVAL != 0:
				return
			case out&(unix.POLLERR|unix.POLLHUP) != 0:
				gone()
				return
			}
		}
	})
	return func() {
		wake.Close()
		wg.Wait()
	}
}
