package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/term"
)

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
