//go:build !unix

package main

import "codeberg.org/tinybroker/tinybroker/internal/tui"

// watchJobControl does nothing: this system has no job control.
func watchJobControl(*tui.Options, func()) (stop func()) { return func() {} }
