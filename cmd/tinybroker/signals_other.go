//go:build !unix

package main

import "os"

// ignoreBrokenPipe does nothing: a write to a broken pipe is an error here anyway.
func ignoreBrokenPipe() {}

// raise ends the process with its code: here are no signals to send.
func (e ending) raise() {
	if e.signal != nil {
		os.Exit(e.code)
	}
}

// catchBrokenPipe has nothing to do either.
func catchBrokenPipe() (stop func()) { return func() {} }
