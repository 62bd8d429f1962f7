//go:build !unix

package main

import "os"

// raise ends the process with its code: here are no signals to send.
func (e ending) raise() {
	if e.signal != nil {
		os.Exit(e.code)
	}
}
