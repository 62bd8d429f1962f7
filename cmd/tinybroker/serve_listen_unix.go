//go:build unix

package main

import (
	"errors"
	"syscall"
)

func isAddressInUse(err error) bool {
	return errors.Is(err, errSocketInUse) || errors.Is(err, syscall.EADDRINUSE)
}

// privateUmask makes new files accessible to this user only, until restore is called.
func privateUmask() (restore func()) {
	old := syscall.Umask(0o177)
	return func() { syscall.Umask(old) }
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
