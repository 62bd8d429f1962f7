package main

import (
	"context"
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// streams are the three standard streams. Data goes to out and nothing else does; everything for people goes to err.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

func systemStreams() *streams {
	return &streams{in: patientFile{os.Stdin}, out: patientFile{os.Stdout}, err: patientFile{os.Stderr}}
}

// report writes to standard output what write has to say. Once ctx has ended it waits no longer than writePatience for somebody to take
// it; the error is the cause then. Failures to write are *writeErrors.
func (s *streams) report(ctx context.Context, write func(io.Writer) error) error {
	_, err := leaving(ctx, writePatience, func() error {
		if err := write(s.out); err != nil {
			return &writeError{err}
		}
		return nil
	})
	return err
}

// checkedWriter is standard output for the pages that cobra writes: help, the version, completion scripts. It remembers the
// first failure, which cobra passes over.
type checkedWriter struct {
	w   io.Writer
	err error
}

// Write implements io.Writer. Its errors are *writeErrors.
func (c *checkedWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	if err == nil {
		return n, nil
	}
	if c.err == nil {
		c.err = &writeError{err}
	}
	return n, c.err
}

// shuttableWriter is for what must not be written from some time on, such as when a screen is drawn.
type shuttableWriter struct {
	w io.Writer

	mu     sync.Mutex
	isShut bool
}

// Write implements io.Writer.
func (s *shuttableWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isShut {
		return len(p), nil
	}
	return s.w.Write(p)
}

func (s *shuttableWriter) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isShut = true
}

// isTerminal reports whether a stream is a terminal. It asks the operating system, never the terminal.
func isTerminal(stream any) bool {
	f, ok := fileOf(stream)
	return ok && term.IsTerminal(int(f.Fd()))
}

// useColor decides for one stream: an explicit choice wins, then NO_COLOR and TERM, then whether it is a terminal.
func useColor(choice string, stream any) bool {
	switch choice {
	case "always":
		return true
	case "never":
		return false
	}
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(stream)
}
