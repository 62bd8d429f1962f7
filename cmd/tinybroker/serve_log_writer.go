package main

import (
	"io"
	"log/slog"
	"sync"
	"time"
)

// logWriter writes the lines of a log from a goroutine of its own, in their order. Whoever logs waits for nobody: the reader of the log may be
// slow, or not read at all, and that must hold up neither the work of the broker nor its stop. Lines for which there is no
// room are dropped, and counted in one that follows. Safe for concurrent use.
type logWriter struct {
	to     io.Writer
	direct *slog.Logger  // writes to it as well; for the goroutine only
	wake   chan struct{} // has room for one
	done   chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	waiting []byte
	dropped int // lines that came after those
	closed  bool
}

const (
	// logRoom is how many bytes of lines may wait for the reader of the log.
	logRoom = 1 << 20
	// logPatience is how long the end waits for the last lines to be read.
	logPatience = time.Second
)

// newLogWriter returns one that writes to w, to which direct logs as well. It must be closed.
func newLogWriter(w io.Writer, direct *slog.Logger) *logWriter {
	l := &logWriter{to: w, direct: direct, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go l.run()
	return l
}

// Write implements io.Writer, for whole lines. It does not fail.
func (l *logWriter) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
	case l.dropped > 0 || len(l.waiting)+len(line) > logRoom:
		l.dropped++
	default:
		l.waiting = append(l.waiting, line...)
		offer(l.wake)
	}
	return len(line), nil
}

// close takes no more lines, and returns when those that wait are written, or after the given time.
func (l *logWriter) close(patience time.Duration) {
	l.mu.Lock()
	l.closed = true
	offer(l.wake)
	l.mu.Unlock()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-l.done:
	case <-timeout.C:
	}
}

func (l *logWriter) run() {
	defer close(l.done)
	for range l.wake {
		lines, dropped, closed := l.take()
		if len(lines) > 0 {
			_, _ = l.to.Write(lines) // nobody could be told of an error
		}
		if dropped > 0 {
			l.direct.Warn("lines of the log were dropped: nobody has read it", "dropped", dropped)
		}
		if closed {
			return
		}
	}
}

func (l *logWriter) take() (lines []byte, dropped int, closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines, dropped = l.waiting, l.dropped
	l.waiting, l.dropped = nil, 0
	return lines, dropped, l.closed
}
