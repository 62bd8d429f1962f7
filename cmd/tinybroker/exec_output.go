package main

import (
	"bytes"
	"strings"
)

const (
	// longestLine is how much of a line is held back before it is written unfinished.
	longestLine = 64 << 10
	// longestReason is how much of a command's last words is kept.
	longestReason = 256
)

// lineWriter passes on whole lines, so that those of several writers do not mix. Nothing is passed on after a failure.
type lineWriter struct {
	write    func(lines []byte) error
	complete bool // a last line without an end gets one
	buf      []byte
	broken   error // why write has failed
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.buf = append(w.buf, p...)
	n := bytes.LastIndexByte(w.buf, '\n') + 1
	if n == 0 && len(w.buf) > longestLine {
		n = len(w.buf)
	}
	if n == 0 {
		return len(p), nil
	}
	w.broken = w.write(w.buf[:n])
	w.buf = append(w.buf[:0], w.buf[n:]...)
	return len(p), w.broken
}

// close writes what is left. The error is the first there was.
func (w *lineWriter) close() error {
	if w.broken != nil || len(w.buf) == 0 {
		return w.broken
	}
	if w.complete {
		w.buf = append(w.buf, '\n')
	}
	return w.write(w.buf)
}

// lastWords keeps the last line that holds anything.
type lastWords struct{ line []byte }

func (l *lastWords) note(lines []byte) {
	for line := range bytes.Lines(lines) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			l.line = append(l.line[:0], line[:min(len(line), longestReason)]...)
		}
	}
}

func (l *lastWords) String() string { return strings.ToValidUTF8(string(l.line), "\uFFFD") }
