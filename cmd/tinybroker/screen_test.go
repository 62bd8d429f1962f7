//go:build unix

package main

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// emulator is as much of a terminal as top needs: it keeps what would be on the screen. Whatever it does not know fails the
// test, since it might be a question to the terminal.
type emulator struct {
	mu      sync.Mutex
	rows    [][]string // cells; the second half of a wide character is empty
	row     int
	col     int
	pending []byte
	unknown []string
	modes   map[string]bool // private modes that are set, by number
	all     []byte
}

func newEmulator(width, height int) *emulator {
	e := &emulator{modes: map[string]bool{}}
	e.resize(width, height)
	return e
}

func (e *emulator) resize(width, height int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	rows := make([][]string, height)
	for i := range rows {
		rows[i] = make([]string, width)
		for c := range rows[i] {
			rows[i][c] = " "
			if i < len(e.rows) && c < len(e.rows[i]) {
				rows[i][c] = e.rows[i][c]
			}
		}
	}
	e.rows = rows
	e.row, e.col = min(e.row, height-1), min(e.col, width-1)
}

// Write takes what the program sends to the terminal.
func (e *emulator) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, p...)
	e.pending = append(e.pending, p...)
	for len(e.pending) > 0 {
		n := e.step(e.pending)
		if n == 0 {
			break
		}
		e.pending = e.pending[n:]
	}
	return len(p), nil
}

// step handles one character or sequence and returns its length; 0: it is not complete yet.
func (e *emulator) step(p []byte) int {
	switch c := p[0]; {
	case c == 0x1b:
		return e.escape(p)
	case c == '\r':
		e.col = 0
		return 1
	case c == '\n':
		e.row = min(e.row+1, len(e.rows)-1)
		return 1
	case c < 0x20 || c == 0x7f:
		e.unknown = append(e.unknown, strconv.Quote(string(c)))
		return 1
	}
	if !utf8.FullRune(p) {
		return 0
	}
	r, n := utf8.DecodeRune(p)
	e.put(string(r))
	return n
}

func (e *emulator) put(char string) {
	switch w := ansi.StringWidthWc(char); {
	case w == 0 && e.col > 0 && e.col <= len(e.rows[e.row]):
		e.rows[e.row][e.col-1] += char
	case e.col+w > len(e.rows[e.row]):
		e.unknown = append(e.unknown, "text beyond the right edge: "+char)
	default:
		e.rows[e.row][e.col] = char
		for i := 1; i < w; i++ {
			e.rows[e.row][e.col+i] = ""
		}
		e.col += w
	}
}

func (e *emulator) escape(p []byte) int {
	if len(p) < 2 {
		return 0
	}
	if p[1] != '[' {
		e.unknown = append(e.unknown, strconv.Quote(string(p[:2])))
		return 2
	}
	end := bytes.IndexFunc(p[2:], func(r rune) bool { return r >= 0x40 && r <= 0x7e })
	if end < 0 {
		return 0
	}
	parameters, final := string(p[2:2+end]), p[2+end]
	numbers := []int{}
	for s := range strings.SplitSeq(parameters, ";") {
		n, _ := strconv.Atoi(s)
		numbers = append(numbers, n)
	}
	switch {
	case final == 'm':
	case (final == 'h' || final == 'l') && strings.HasPrefix(parameters, "?"):
		for mode := range strings.SplitSeq(parameters[1:], ";") {
			e.modes[mode] = final == 'h'
		}
	case final == 'H':
		e.row, e.col = 0, 0
		if len(numbers) == 2 {
			e.row, e.col = max(0, min(numbers[0], len(e.rows))-1), max(0, numbers[1]-1)
		}
	case final == 'A':
		e.row = max(0, e.row-max(1, numbers[0]))
	case final == 'K':
		from := e.col
		if numbers[0] == 2 {
			from = 0
		}
		e.blank(e.row, from)
	case final == 'J':
		row := e.row
		if numbers[0] == 2 {
			row = 0
			e.blank(0, 0)
		} else {
			e.blank(e.row, e.col)
		}
		for i := row + 1; i < len(e.rows); i++ {
			e.blank(i, 0)
		}
	default:
		e.unknown = append(e.unknown, strconv.Quote(string(p[:3+end])))
	}
	return 3 + end
}

func (e *emulator) blank(row, from int) {
	for c := from; c < len(e.rows[row]); c++ {
		e.rows[row][c] = " "
	}
}

func (e *emulator) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	lines := make([]string, len(e.rows))
	for i, row := range e.rows {
		lines[i] = strings.TrimRight(strings.Join(row, ""), " ")
	}
	return strings.Join(lines, "\n")
}

// topScreen is top on a pseudo-terminal.
type topScreen struct {
	*process
	*emulator
	tty    *os.File // the terminal's side
	before *unix.Termios
	slave  *os.File // the program's side, kept open to ask for its modes
}

// startTop starts top on a terminal of its own. That answers no question.
func startTop(t *testing.T, width, height int, args []string, options ...processOption) *topScreen {
	t.Helper()
	tty, slave, err := pty.Open()
	if err != nil {
		t.Skip(err)
	}
	s := &topScreen{tty: tty, slave: slave, emulator: newEmulator(width, height)}
	s.size(t, width, height)
	if s.before, err = unix.IoctlGetTermios(int(slave.Fd()), ioctlGetTermios); err != nil {
		t.Fatal(err)
	}
	copied := make(chan struct{})
	go func() {
		io.Copy(s.emulator, tty) // ends with an error when both ends are closed
		close(copied)
	}()
	options = append([]processOption{func(p *process) {
		p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = slave, slave, slave
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		p.cmd.Env = append(p.cmd.Env, "TERM=xterm-256color", "NO_COLOR=", "CI=", "TZ=UTC")
	}}, options...)
	s.process = start(t, args, options...)
	t.Cleanup(func() {
		s.process.cmd.Process.Kill()
		<-s.process.done
		slave.Close()
		tty.Close()
		<-copied
		s.emulator.mu.Lock()
		defer s.emulator.mu.Unlock()
		if len(s.unknown) > 0 {
			t.Errorf("the terminal was sent %v", s.unknown)
		}
	})
	return s
}

func (s *topScreen) size(t *testing.T, width, height int) {
	t.Helper()
	s.emulator.resize(width, height)
	if err := pty.Setsize(s.tty, &pty.Winsize{Rows: uint16(height), Cols: uint16(width)}); err != nil {
		t.Fatal(err)
	}
}

// keys types text as it stands.
func (s *topScreen) keys(text string) {
	s.t.Helper()
	if _, err := s.tty.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// shows waits until the screen shows all of texts at once.
func (s *topScreen) shows(texts ...string) {
	s.t.Helper()
	shown := func() bool {
		screen := s.emulator.String()
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return false
			}
		}
		return true
	}
	for deadline := time.Now().Add(patience); !shown(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("the screen does not show %q:\n%s", texts, s.emulator.String())
		}
	}
}

// restored checks that the terminal is as it was: its modes, the cursor, the screen that was there before.
func (s *topScreen) restored() {
	s.t.Helper()
	after, err := unix.IoctlGetTermios(int(s.slave.Fd()), ioctlGetTermios)
	if err != nil {
		s.t.Fatal(err)
	}
	if *after != *s.before {
		s.t.Errorf("the terminal's modes are\n%+v\nand were\n%+v", *after, *s.before)
	}
	eventually(s.t, "the terminal is given back", func() bool {
		s.emulator.mu.Lock()
		defer s.emulator.mu.Unlock()
		return !s.modes["1049"] && s.modes["25"] && !s.modes["2004"]
	})
	if !bytes.Contains(s.bytes(), []byte("\x1b[?1049h")) {
		s.t.Error("nothing was drawn")
	}
}

func (s *topScreen) bytes() []byte {
	s.emulator.mu.Lock()
	defer s.emulator.mu.Unlock()
	return bytes.Clone(s.all)
}
