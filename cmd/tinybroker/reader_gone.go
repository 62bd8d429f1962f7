package main

import (
	"fmt"
	"syscall"
)

// errReaderGone: the other end of standard output was closed. It is told apart from nothing: to the caller it is the
// EPIPE that the next write would have met.
var errReaderGone = fmt.Errorf("the reader has gone: %w", syscall.EPIPE)
