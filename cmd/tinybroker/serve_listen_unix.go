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
