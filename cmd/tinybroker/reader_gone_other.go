//go:build !unix

package main

import "io"

// watchReader does nothing here: the next write tells.
func watchReader(io.Writer, func()) (stop func()) { return func() {} }
