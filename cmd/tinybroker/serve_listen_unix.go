//go:build unix

package main

import (
	"errors"
	"os"
	"syscall"
	"time"
)

func isAddressInUse(err error) bool {
	return errors.Is(err, errSocketInUse) || errors.Is(err, syscall.EADDRINUSE)
}

// privateUmask makes new files accessible to this user only, until restore is called.
func privateUmask() (restore func()) {
	old := syscall.Umask(0o177)
	return func() { syscall.Umask(old) }
}

// lockPatience is how long a start waits for another one to make its socket, which takes milliseconds.
const lockPatience = 2 * time.Second

// lockDirectory keeps others who lock dir waiting until release is called. It leaves no file behind, as one beside the socket would. A
// directory that cannot be locked, or that somebody else keeps locked, is no reason not to start.
func lockDirectory(dir string) (release func()) {
	d, err := os.Open(dir)
	if err != nil {
		return func() {}
	}
	retry := time.NewTicker(5 * time.Millisecond)
	defer retry.Stop()
	for deadline := time.Now().Add(lockPatience); time.Now().Before(deadline); <-retry.C {
		if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
			break
		}
	}
	return func() { _ = d.Close() }
}

// mostOpenFiles is how many files and connections the process may have open at once; 0: not known. Go has raised it as far as it
// may be.
func mostOpenFiles() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return uint64(limit.Cur) //nolint:unconvert // it is signed on some systems
}
