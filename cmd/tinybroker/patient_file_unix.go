//go:build unix

package main

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func awaitReadable(f *os.File) bool { return await(f, unix.POLLIN) }
func awaitWritable(f *os.File) bool { return await(f, unix.POLLOUT) }

// await waits until something can be done with f, if only to learn that it fails. It reports whether it could wait.
func await(f *os.File, event int16) bool {
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(f.Fd()), Events: event}}, -1)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}
