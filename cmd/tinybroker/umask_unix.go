//go:build unix

package main

import "syscall"

// privateUmask makes new files accessible to this user only, until restore is called.
func privateUmask() (restore func()) {
	old := syscall.Umask(0o177)
	return func() { syscall.Umask(old) }
}
