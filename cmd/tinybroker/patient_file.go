package main

import (
	"errors"
	"os"
	"syscall"
)

// patientFile is a standard stream that other processes share, any of which may make it non-blocking: ssh and node do. Where it is not
// ready then, it is waited for, as if it were not.
type patientFile struct{ f *os.File }

// Read implements io.Reader.
func (p patientFile) Read(b []byte) (int, error) {
	for {
		n, err := p.f.Read(b)
		if n > 0 || !errors.Is(err, syscall.EAGAIN) || !awaitReadable(p.f) {
			return n, err
		}
	}
}

// Write implements io.Writer.
func (p patientFile) Write(b []byte) (int, error) {
	written := 0
	for {
		n, err := p.f.Write(b[written:])
		written += n
		if !errors.Is(err, syscall.EAGAIN) || !awaitWritable(p.f) {
			return written, err
		}
	}
}

// fileOf is the file that a stream is, if it is one.
func fileOf(stream any) (f *os.File, ok bool) {
	if p, ok := stream.(patientFile); ok {
		return p.f, true
	}
	f, ok = stream.(*os.File)
	return f, ok
}
