//go:build !unix

package main

// suspend is not there: this system has no job control.
var suspend func()
