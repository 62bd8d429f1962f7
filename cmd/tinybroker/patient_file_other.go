//go:build !unix

package main

import "os"

// Here nobody can make a stream of another process non-blocking.
func awaitReadable(*os.File) bool { return false }
func awaitWritable(*os.File) bool { return false }
