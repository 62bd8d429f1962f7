package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode/utf8"

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

// notices writes lines for people to standard error: one at a time, never over a progress line, free of control
// characters. It is safe for concurrent use.
type notices struct {
	w              io.Writer
	quiet, verbose bool

	mu       sync.Mutex
	progress int // columns of the progress line on the screen
}

// noNotices is for who must not say anything.
func noNotices() *notices { return &notices{w: io.Discard, quiet: true} }

func (n *notices) line(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clearLocked()
	fmt.Fprintln(n.w, oneLine(fmt.Sprintf(format, args...)))
}

// pass writes whole lines of somebody else as they are.
func (n *notices) pass(lines []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clearLocked()
	_, err := n.w.Write(lines)
	return err
}

// info is for what a person wants to know though nothing is wrong for good.
func (n *notices) info(format string, args ...any) {
	if !n.quiet {
		n.line(format, args...)
	}
}

// detail is for -v.
func (n *notices) detail(format string, args ...any) {
	if n.verbose && !n.quiet {
		n.line(format, args...)
	}
}

// show replaces the progress line. It is cut to what fits into one row, for what has wrapped cannot be taken away again.
func (n *notices) show(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	room := n.room()
	text = cutTo(text, room)
	columns := utf8.RuneCountInString(text)
	fmt.Fprint(n.w, "\r", text, strings.Repeat(" ", max(min(n.progress, room)-columns, 0)))
	n.progress = columns
}

// clear takes the progress line away.
func (n *notices) clear() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clearLocked()
}

func (n *notices) clearLocked() {
	if n.progress > 0 {
		fmt.Fprint(n.w, "\r", strings.Repeat(" ", min(n.progress, n.room())), "\r")
		n.progress = 0
	}
}

// room is how many columns the progress line may have now: windows are resized. The last one stays free, where some terminals
// go on to the next row. A terminal that does not know its width is taken for one of the usual width.
func (n *notices) room() int {
	width := 0
	if f, ok := fileOf(n.w); ok {
		width, _, _ = term.GetSize(int(f.Fd()))
	}
	if width <= 0 {
		width = 80
	}
	return width - 1
}

// cutTo cuts a text of our own, in which each character has one column, and shows that it did.
func cutTo(text string, columns int) string {
	const mark = "..."
	runes := []rune(text)
	switch {
	case len(runes) <= columns:
		return text
	case columns <= len(mark):
		return string(runes[:columns])
	}
	return string(runes[:columns-len(mark)]) + mark
}
