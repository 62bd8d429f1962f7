//go:build unix

package main

import (
	"cmp"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// onTerminal runs a command with all its streams on a pseudo-terminal that answers nothing.
type onTerminal struct {
	*process
	tty    *os.File
	screen lockedBuffer
}

func startOnTerminal(t *testing.T, args []string, extra ...string) *onTerminal {
	t.Helper()
	return startOnTerminalOf(t, 80, args, extra...)
}

func startOnTerminalOf(t *testing.T, width int, args []string, extra ...string) *onTerminal {
	t.Helper()
	p := &process{t: t, cmd: exec.Command("tinybroker", args...), done: make(chan struct{})}
	for _, pair := range testEnv(t, append([]string{"TERM=xterm-256color", "NO_COLOR="}, extra...)...) {
		if !strings.HasPrefix(pair, "CI=") { // libraries that ask terminals do not do so in CI
			p.cmd.Env = append(p.cmd.Env, pair)
		}
	}
	tty, err := pty.StartWithSize(p.cmd, &pty.Winsize{Rows: 24, Cols: uint16(width)})
	if err != nil {
		t.Skip(err)
	}
	o := &onTerminal{process: p, tty: tty}
	copied := make(chan struct{})
	go func() {
		io.Copy(&o.screen, tty) // ends with an error when the process has ended
		close(copied)
	}()
	go func() {
		p.err = p.cmd.Wait()
		<-copied
		close(p.done)
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.done
		tty.Close()
	})
	return o
}

func (o *onTerminal) shows(text string) {
	o.t.Helper()
	eventually(o.t, "shows "+text, func() bool { return strings.Contains(o.screen.String(), text) })
}

// No command asks the terminal anything, and none waits for answers that do not come.
func TestQuietStart(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	for _, args := range [][]string{
		{"version"}, {"--help"}, {"serve", "--help"}, {"pub", "--help"}, {"sub", "--help"}, {"help", "exit-codes"},
		{"status", "-s", b.address}, {"pub", "x", "y", "-q", "-s", b.address}, {"sub", "silent", "--for", "500ms", "-s", b.address},
		{"serve", "--print-config"}, {"completion", "bash"}, {"__complete", "pub", ""},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			took := time.Hour
			for range 3 { // a busy machine may be slow once
				began := time.Now()
				p := startOnTerminal(t, args)
				p.ended(0)
				took = min(took, time.Since(began))
				if strings.Contains(p.screen.String(), "\x1b") {
					t.Errorf("escape sequences: %q", p.screen.String())
				}
				if took < 4*time.Second {
					return
				}
			}
			t.Errorf("took %v: who asks a terminal waits 5 s for its answer", took)
		})
	}
}

func TestServeOnTerminal(t *testing.T) {
	t.Parallel()
	p := startOnTerminal(t, []string{"serve", "--listen", "127.0.0.1:0"})
	p.shows("listening on 127.0.0.1:")
	if _, err := p.tty.WriteString("\x03"); err != nil { // Ctrl-C
		t.Fatal(err)
	}
	p.ended(0)
	screen := p.screen.String()
	if !regexp.MustCompile(`(?m)^listening on 127\.0\.0\.1:\d+\r$`).MatchString(screen) || !strings.Contains(screen, "level=INFO msg=stopping cause=interrupt") {
		t.Errorf("%q", screen)
	}
}

// What strangers publish cannot drive the terminal of who watches: payload, topic, key and headers alike.
func TestNothingDrivesTheTerminal(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	evil := "\x1b[2J\x1b]52;c;aGk=\a\x1b]8;;http://x\x1b\\\u009b1m\x9b\a\r\b\u202egnp\u2066\x00\x7f"
	args := []string{"evil.\u202e", evil, "-k", "k\u202e\x1b[2J\u009b", "-H", "h\x1b[31m:v\x1b[0m\u2028", "-s", b.address}
	for _, c := range []struct {
		name string
		args []string
		line string // what is shown of the message
	}{
		{"text", []string{"-o", "auto"}, `evil.\u{202e} k=k\u{202e}\x1b[2J\u{9b} [h\x1b[31m=v\x1b[0m\u{2028}] 50B ` +
			`\x1b[2J\x1b]52;c;aGk=\x07\x1b]8;;http://x\x1b\\\u{9b}1m\x9b\x07\r\x08\u{202e}gnp\u{2066}\x00\x7f`},
		{"json", []string{"-o", "json"}, `"data_base64":"`},
		{"format", []string{"--format", "{{.Topic}}\t{{.Payload}}"}, `evil.\u{202e}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			ready := t.TempDir() + "/ready"
			p := startOnTerminal(t, append([]string{"sub", "**", "-n", "1", "--color", "never", "-s", b.address, "--ready-file", ready}, c.args...))
			waitFile(t, ready)
			start(t, append([]string{"pub", "-i", "whole"}, append(args[:1:1], args[2:]...)...), reading(strings.NewReader(evil))).ended(0)
			p.ended(0)
			screen := strings.TrimSuffix(p.screen.String(), "\r\n")
			if i := strings.IndexFunc(strings.ReplaceAll(screen, "\t", ""), hostile); i >= 0 {
				t.Errorf("a character that drives the terminal: %q", screen)
			}
			if !strings.Contains(screen, c.line) {
				t.Errorf("got  %s\nwant %s", screen, c.line)
			}
		})
	}
	// In a pipe the bytes are exact, and JSON escapes them.
	raw := b.sub([]string{"**", "-n", "1", "-N"})
	lines := b.sub([]string{"**", "-n", "1", "-o", "json"})
	text := "\x1b[2J\u009b\u202e\x7f\u2028"
	b.pub(text, "evil", "-i", "whole")
	raw.ended(0)
	lines.ended(0)
	if got := raw.stdout.String(); got != text {
		t.Errorf("raw: %q", got)
	}
	if got := lines.stdout.String(); !strings.Contains(got, `"data":"\u001b[2J\u009b\u202e\u007f\u2028"`) {
		t.Errorf("json: %s", got)
	}
}

// The broker's words, and those of arguments, are printed to terminals as well.
func TestErrorsDoNotDriveTheTerminal(t *testing.T) {
	for _, args := range [][]string{
		{"pub", "x\x1b[2J", "y"}, {"sub", "[\x1b[2J"}, {"\x1b[2J"}, {"pub", "--\x1b[2J"}, {"serve", "--config", "\x1b[2J"},
		{"status", "-s", "\x1b]0;x\a.invalid"}, {"pub", "x", "-f", "\x1b[2J"},
	} {
		_, stderr, end := runHere(t, "", args...)
		if end.code == 0 || strings.ContainsAny(stderr, "\x1b\a") {
			t.Errorf("%q: %d, %q", args, end.code, stderr)
		}
	}
}

func TestPubOnTerminal(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	sub := b.sub([]string{"x"})
	p := startOnTerminal(t, []string{"pub", "x", "-s", b.address})
	p.shows("reading messages, one per line; Ctrl-D ends\r\n")
	for _, line := range []string{"one\n", "two\n"} {
		if _, err := p.tty.WriteString(line); err != nil {
			t.Fatal(err)
		}
	}
	sub.printed("one\ntwo\n")
	if _, err := p.tty.WriteString("\x04"); err != nil { // Ctrl-D
		t.Fatal(err)
	}
	p.ended(0)
	if screen := p.screen.String(); !strings.HasSuffix(screen, "\n2 messages confirmed\r\n") {
		t.Errorf("no summary, or more than that, in %q", screen)
	}
	for _, c := range []struct{ args, says string }{
		{"-i whole", "reading one message; Ctrl-D ends it"},
		{"-i json", "reading messages as JSON, one per line; Ctrl-D ends"},
		{"-i nul", "reading messages; Ctrl-D ends"},
		{"-d ;", "reading messages; Ctrl-D ends"},
	} {
		p := startOnTerminal(t, append([]string{"pub", "y", "-s", b.address}, strings.Fields(c.args)...))
		p.shows(c.says + "\r\n")
	}
}

func TestColor(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	for _, c := range []struct {
		name  string
		args  []string
		env   []string
		color bool
	}{
		{"terminal", nil, nil, true},
		{"NO_COLOR", nil, []string{"NO_COLOR=1"}, false},
		{"dumb", nil, []string{"TERM=dumb"}, false},
		{"never", []string{"--color", "never"}, nil, false},
		{"always wins", []string{"--color", "always"}, []string{"NO_COLOR=1", "TERM=dumb"}, true},
	} {
		ready := t.TempDir() + "/ready"
		p := startOnTerminal(t, append([]string{"sub", "x", "-n", "1", "-s", b.address, "--ready-file", ready}, c.args...), c.env...)
		waitFile(t, ready)
		b.pub("", "x", "y")
		p.ended(0)
		if got := strings.Contains(p.screen.String(), "\x1b["); got != c.color {
			t.Errorf("%s: %q", c.name, p.screen.String())
		}
	}
}

// With a delimiter, payloads alone are printed; what they hold drives the terminal only when raw output is asked for.
func TestDelimiterOnTerminal(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	for _, c := range []struct {
		args []string
		env  string
		want string
	}{
		{[]string{"-d", "|"}, "A=", `a\x1b[31mb|`},
		{[]string{"-N"}, "A=", `a\x1b[31mb`},
		{nil, "TINYBROKER_DELIMITER=|", `a\x1b[31mb|`},
		{[]string{"-d", "|", "-o", "raw"}, "A=", "a\x1b[31mb|"},
	} {
		ready := t.TempDir() + "/ready"
		p := startOnTerminal(t, append([]string{"sub", "x", "-n", "1", "-s", b.address, "--ready-file", ready}, c.args...), c.env)
		waitFile(t, ready)
		b.pub("", "x", "a\x1b[31mb")
		p.ended(0)
		if got := p.screen.String(); got != c.want {
			t.Errorf("%q, %s: %q, want %q", c.args, c.env, got, c.want)
		}
	}
}

// Progress appears on a terminal once it takes long, and goes away again.
func TestProgress(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	p := startOnTerminal(t, []string{"pub", "x", "y", "-n", "25", "--interval", "50ms", "-s", b.address})
	p.ended(0)
	screen := p.screen.String()
	if !strings.Contains(screen, " messages confirmed in 1s (") {
		t.Errorf("no progress in %q", screen)
	}
	if !regexp.MustCompile(`\r25 messages confirmed in 1\.\ds \(\d+/s, 25 B\), 25 without a subscription\r\n$`).MatchString(screen) {
		t.Errorf("no summary in %q", screen)
	}
	p = startOnTerminal(t, []string{"pub", "x", "y", "-q", "-s", b.address})
	p.ended(0)
	if got := p.screen.String(); got != "" {
		t.Errorf("-q: %q", got)
	}
}

// On a narrow terminal the progress line is cut: one that wraps would leave a row behind each time.
func TestProgressOnNarrowTerminal(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	const width = 45
	p := startOnTerminalOf(t, width, []string{"pub", "x", "y", "-n", "50", "--interval", "50ms", "-s", b.address})
	p.ended(0)
	pieces := strings.Split(strings.TrimSuffix(p.screen.String(), "\r\n"), "\r")
	shown := 0
	for _, piece := range pieces[:len(pieces)-1] { // the last is the summary, which stays and may wrap
		if len(piece) >= width {
			t.Errorf("%d columns: %q", len(piece), piece)
		}
		if strings.Contains(piece, " messages confirmed in ") {
			shown++
		}
	}
	if shown < 2 {
		t.Errorf("%d progress lines in %q", shown, pieces)
	}
}

func TestProgressFollowsTheWindow(t *testing.T) {
	tty, slave, err := pty.Open()
	if err != nil {
		t.Skip(err)
	}
	e := newEmulator(30, 4)
	copied := make(chan struct{})
	go func() {
		io.Copy(e, tty) // ends with an error when both ends are closed
		close(copied)
	}()
	n := &notices{w: slave}
	resize := func(width int) {
		t.Helper()
		e.resize(cmp.Or(width, 80), 4)
		if err := pty.Setsize(tty, &pty.Winsize{Rows: 4, Cols: uint16(width)}); err != nil {
			t.Fatal(err)
		}
	}
	shows := func(width int, want string) {
		t.Helper()
		eventually(t, "shows "+want, func() bool {
			row, rest, _ := strings.Cut(e.String(), "\n")
			if row := []rune(row); len(row) == cmp.Or(width, 80) { // what a narrower window has left in its last column
				return strings.TrimRight(string(row[:len(row)-1]), " ") == want && rest == "\n\n"
			}
			return row == want && rest == "\n\n"
		})
	}
	for _, step := range []struct {
		width int // 0: the terminal does not know it
		text  string
		want  string
	}{
		{30, "0123456789", "0123456789"},
		{30, "01234", "01234"},
		{30, strings.Repeat("µ", 29), strings.Repeat("µ", 29)},
		{30, strings.Repeat("µ", 30), strings.Repeat("µ", 26) + "..."},
		{12, "0123456789abcdef", "01234567..."},
		{12, "012", "012"},
		{40, strings.Repeat("x", 39), strings.Repeat("x", 39)},
		{20, "abcd", "abcd"},
		{4, "0123456", "012"},
		{1, "0123456", ""},
		{0, strings.Repeat("y", 100), strings.Repeat("y", 76) + "..."},
	} {
		resize(step.width)
		n.show(step.text)
		shows(step.width, step.want)
	}
	resize(30)
	n.line("done")
	shows(30, "done")
	slave.Close()
	tty.Close()
	<-copied
	if len(e.unknown) > 0 {
		t.Errorf("the terminal was sent %v", e.unknown)
	}
}
