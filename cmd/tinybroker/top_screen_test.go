//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// load keeps some traffic going until the test ends.
func load(t *testing.T, b *broker) {
	t.Helper()
	b.sub([]string{"orders.**", "--id", "reader-1", "--client-name", "billing-1"})
	b.sub([]string{"metrics.*", "--id", "reader-2", "--client-name", "analytics"})
	for _, topic := range []string{"orders.created", "metrics.cpu"} {
		start(t, []string{"pub", topic, "x", "-n", "1000000", "-r", "200", "-s", b.address})
	}
}

// The whole of it: views, cursor, filter, order, pause, records, sizes, a broker that goes and comes back, and the end.
func TestTopOnTerminal(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	load(t, b)
	s := startTop(t, 80, 24, []string{"top", "-s", b.address, "--interval", "250ms"})
	s.shows("tinybroker  "+b.address, "[1 Overview]", "busiest topics", "orders.created", "fullest queues", "billing-1", "no evictions")
	s.keys("2")
	s.shows("[2 Topics 2]", "IN/s▼", "metrics.cpu")
	s.keys("ss")
	s.shows("OUT/s▼")
	s.keys("R")
	s.shows("OUT/s▲")
	s.keys("/ORDERS")
	s.shows("filter: ORDERS_", "1 row")
	s.keys("\r")
	s.shows(" > orders.created", `topics with "ORDERS"`)
	s.keys("\r")
	s.shows("subscriptions to orders.created", " > reader-1")
	s.keys("\r")
	s.shows("subscription reader-1", "billing-1", "0 of 65,536 messages")
	s.keys("\x1b")
	s.shows("subscriptions to orders.created")
	s.keys("\x1b")
	s.shows(`topics with "ORDERS"`)
	s.keys("\x1b")
	s.shows("metrics.cpu", "orders.created")
	s.keys(" ")
	s.shows("PAUSED 1s")
	s.keys(" 3")
	s.shows("[3 Subs 2]", "reader-2", "analytics")

	for _, size := range []struct {
		width, height int
		shows         string
	}{
		{40, 10, "[3 Subs 2]"}, {100, 30, "── subscription reader-"}, {19, 5, "needs 40x10"}, {200, 60, "DELIVERED"}, {3, 2, "nee"}, {1, 1, "n"}, {80, 24, "q quit"},
	} {
		s.size(t, size.width, size.height)
		s.shows(size.shows)
	}
	s.keys("?")
	s.shows("── keys", "close the subscription")
	s.keys("?1")
	s.shows("busiest topics")

	b.signal(syscall.SIGKILL)
	<-b.done
	s.shows("DISCONNECTED 1s, retry in ", "connection refused", "orders.created")
	s.keys("5") // it still answers to keys
	s.shows("[5 Evict 0]", "waiting for the broker")
	again := startBroker(t, "--listen", b.address)
	s.shows("reconnected after ", "the broker was restarted", "no evictions")
	s.keys("3")
	s.shows("billing-1", "reader-2") // the others have come back too
	again.signal(syscall.SIGTERM)
	again.ended(0)
	s.shows("DISCONNECTED")
	s.keys("q")
	s.process.ended(0)
	s.restored()
	if asked := terminalQuestion(s.bytes()); asked != "" {
		t.Errorf("the terminal was asked %q", asked)
	}
}

// However it ends, the terminal is as it was, and the exit code says how.
func TestTopEnds(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	for _, c := range []struct {
		name string
		end  func(*topScreen)
		code int
	}{
		{"q", func(s *topScreen) { s.keys("q") }, 0},
		{"ctrl-c", func(s *topScreen) { s.keys("\x03") }, 128 + int(syscall.SIGINT)},
		{"ctrl-c in a prompt", func(s *topScreen) { s.keys("/x\x03") }, 128 + int(syscall.SIGINT)},
		{"SIGINT", func(s *topScreen) { s.signal(syscall.SIGINT) }, 128 + int(syscall.SIGINT)},
		{"SIGTERM", func(s *topScreen) { s.signal(syscall.SIGTERM) }, 128 + int(syscall.SIGTERM)},
		{"SIGHUP", func(s *topScreen) { s.signal(syscall.SIGHUP) }, 128 + int(syscall.SIGHUP)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := startTop(t, 80, 24, []string{"top", "-s", b.address})
			s.shows("busiest topics")
			c.end(s)
			s.process.ended(c.code)
			s.restored()
			if bytes.Contains(s.bytes(), []byte("tinybroker: ")) { // there is nothing to say
				t.Errorf("ends with words:\n%s", s.emulator)
			}
		})
	}
	t.Run("twice at once", func(t *testing.T) { // as timeout(1) does
		t.Parallel()
		s := startTop(t, 80, 24, []string{"top", "-s", b.address})
		s.shows("busiest topics")
		s.signal(syscall.SIGTERM)
		s.signal(syscall.SIGTERM)
		s.process.ended(128 + int(syscall.SIGTERM))
		s.restored()
	})
	t.Run("impatiently", func(t *testing.T) {
		t.Parallel()
		s := startTop(t, 80, 24, []string{"top", "-s", b.address})
		s.shows("busiest topics")
		for range 40 {
			s.process.cmd.Process.Signal(syscall.SIGTERM) // until it has ended
			time.Sleep(5 * time.Millisecond)
		}
		s.process.ended(128 + int(syscall.SIGTERM))
		s.restored()
	})
	t.Run("lost for good", func(t *testing.T) {
		t.Parallel()
		b := startBroker(t)
		s := startTop(t, 80, 24, []string{"top", "-s", b.address, "--no-reconnect"})
		s.shows("busiest topics")
		b.signal(syscall.SIGKILL)
		s.process.ended(exitUnavailable)
		s.restored()
		s.shows("tinybroker: top: connection to broker at " + b.address + " lost: ")
	})
}

// Where a shell waits, ctrl+z goes back to it, and fg draws the screen again. Elsewhere nothing happens.
func TestTopSuspends(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	script := fmt.Sprintf(`set -m; tinybroker top -s %s; echo "STOPPED"; echo "ECHO $(stty -a | grep -c ' echo ')"; fg; echo "CODE $?"`, b.address)
	s := startTop(t, 80, 24, nil, func(p *process) { p.cmd.Path, p.cmd.Args = "/bin/sh", []string{"sh", "-c", script} })
	s.shows("busiest topics")
	s.keys("\x1a")
	// The shell runs the rest of its line at once, so that the screen is soon there again.
	eventually(t, "the shell goes on", func() bool { return bytes.Contains(s.bytes(), []byte("STOPPED")) })
	eventually(t, "the screen is drawn again", func() bool {
		_, after, _ := bytes.Cut(s.bytes(), []byte("STOPPED"))
		return bytes.Contains(after, []byte("busiest topics"))
	})
	s.keys("2")
	s.shows("[2 Topics")
	s.keys("q")
	s.shows("CODE 0")
	s.process.ended(0)
	s.restored()
	if !bytes.Contains(s.bytes(), []byte("ECHO 1\r\n")) {
		t.Error("the stopped program left the terminal without echo")
	}

	alone := startTop(t, 80, 24, []string{"top", "-s", b.address})
	alone.shows("busiest topics")
	alone.keys("\x1a")
	time.Sleep(50 * time.Millisecond) // it would have to wait for a signal that nobody sends
	alone.keys("2")
	alone.shows("[2 Topics")
	alone.keys("q")
	alone.process.ended(0)
	alone.restored()
}

// After a stop by somebody else the terminal is set up again, whatever was done to it meanwhile.
func TestTopStoppedByOthers(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGTSTP} {
		script := fmt.Sprintf(`set -m; tinybroker top -s %s; echo "STOPPED"; stty sane; fg; echo "CODE $?"`, b.address)
		s := startTop(t, 80, 24, nil, func(p *process) { p.cmd.Path, p.cmd.Args = "/bin/sh", []string{"sh", "-c", script} })
		s.shows("busiest topics")
		job, err := unix.IoctlGetInt(int(s.tty.Fd()), unix.TIOCGPGRP)
		if err != nil {
			t.Skip(err)
		}
		if err := syscall.Kill(job, sig); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the shell goes on", func() bool { return bytes.Contains(s.bytes(), []byte("STOPPED")) })
		eventually(t, "the screen is drawn again", func() bool {
			_, after, _ := bytes.Cut(s.bytes(), []byte("STOPPED"))
			_, after, entered := bytes.Cut(after, []byte("\x1b[?1049h"))
			return entered && bytes.Contains(after, []byte("busiest topics"))
		})
		s.keys("2")
		s.shows("[2 Topics")
		s.keys("q")
		s.shows("CODE 0")
		s.process.ended(0)
	}
}

// A terminal that has gone ends it also where nobody hears the signal.
func TestTopWithoutHangup(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	s := startTop(t, 80, 24, nil, func(p *process) {
		p.cmd.Path, p.cmd.Args = "/bin/sh", []string{"sh", "-c", "trap '' HUP; exec tinybroker top -s " + b.address}
	})
	s.shows("busiest topics")
	s.tty.Close()
	s.process.ended(exitPipe)
}

// The stacks that SIGQUIT asks for are written to a terminal on which they can be read.
func TestTopQuit(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	s := startTop(t, 80, 24, []string{"top", "-s", b.address}, func(p *process) { p.cmd.Stderr = &p.stderr })
	s.shows("busiest topics")
	s.signal(syscall.SIGQUIT)
	s.process.ended(2)
	s.restored()
	if !strings.Contains(s.stderr.String(), "goroutine ") {
		t.Error("there are no stacks")
	}
}

// Names from outside cannot drive the terminal: the emulator knows no sequence but those of the screen itself.
func TestTopShowsHostileNames(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	topic := "evil.\u202e\u200b世界\u0301\u0301\u0301\u0301👩‍👩‍👧"
	b.sub([]string{"evil.**", "--id", "id\u2066\u00ad", "--client-name", "client " + strings.Repeat("\u0301", 30) + "世界"})
	b.pub("", topic, "x")
	for _, args := range [][]string{{"--view", "topics"}, {"--view", "subs"}, {"--ascii"}} {
		s := startTop(t, 80, 24, append([]string{"top", "-s", b.address}, args...))
		s.shows("evil.")
		s.keys("\r")
		s.shows("esc back")
		s.size(t, 40, 10)
		s.shows("? help  q quit")
		s.keys("q")
		s.process.ended(0)
		for _, r := range string(s.bytes()) {
			if r != '\x1b' && r != '\n' && r != '\r' && hostile(r) {
				t.Errorf("%v: the terminal was sent %U", args, r)
			}
		}
	}
}

func TestTopColors(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	sgr := regexp.MustCompile(`\x1b\[[0-9;]*m`)
	for _, c := range []struct {
		name string
		args []string
		env  []string
		want bool
	}{
		{"terminal", nil, nil, true},
		{"NO_COLOR", nil, []string{"NO_COLOR=1"}, false},
		{"never", []string{"--color", "never"}, nil, false},
		{"always wins", []string{"--color", "always"}, []string{"NO_COLOR=1"}, true},
	} {
		s := startTop(t, 80, 24, append([]string{"top", "-s", b.address}, c.args...), env(c.env...))
		s.shows("[1 Overview]")
		s.keys("q")
		s.process.ended(0)
		if got := sgr.Match(s.bytes()); got != c.want {
			t.Errorf("%s: colours %v, want %v", c.name, got, c.want)
		}
	}
}

// terminalQuestion finds a sequence that a terminal would answer: for its colours, cursor, attributes or modes.
func terminalQuestion(output []byte) string {
	question := regexp.MustCompile(`\x1b\](1[0-9]|4);[^\a\x1b]*\?|\x1b\[\??6n|\x1b\[[>=]?[0-9]*c|\x1b\[\?[0-9;]*\$p|\x1b\[[>?]*u|\x1bP\+q|\x1b\[>[0-9]*q`)
	return string(question.Find(output))
}

// No command asks the terminal anything or waits for answers: Bubble Tea would, in every command, as soon as it is linked.
func TestNoCommandAsksTheTerminal(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	for _, args := range [][]string{
		{"version"}, {"serve", "--help"}, {"top", "--help"}, {"status", "-s", b.address}, {"pub", "x", "y", "-q", "-s", b.address},
		{"sub", "silent", "--for", "100ms", "-s", b.address}, {"top", "--once", "-s", b.address}, {"ls", "topics", "-s", b.address},
	} {
		t.Run(strings.Join(args[:1], " "), func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			p := startOnTerminal(t, args)
			p.ended(0)
			if took := time.Since(began); took > 4*time.Second { // who asks waits 5 s for the answer
				t.Errorf("%q took %v", args, took)
			}
			if strings.Contains(p.screen.String(), "\x1b") {
				t.Errorf("%q writes escape sequences: %q", args, p.screen.String())
			}
		})
	}
}

// top needs a terminal on both sides, and says what to do without one.
func TestTopWithoutTerminal(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	tty, slave, err := pty.Open()
	if err != nil {
		t.Skip(err)
	}
	defer tty.Close()
	defer slave.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, c := range []struct {
		name    string
		options []processOption
		why     string
	}{
		{"nothing", nil, "standard output is not one"},
		{"input only", []processOption{reading(slave)}, "standard output is not one"},
		{"output only", []processOption{reading(null), writing(slave)}, "standard input is not one"},
		{"dumb", []processOption{reading(slave), writing(slave), env("TERM=dumb")}, "TERM=dumb cannot move the cursor"},
	} {
		p := start(t, []string{"top", "-s", b.address}, c.options...)
		p.ended(exitUsage)
		want := "tinybroker: top: needs a terminal: " + c.why + "\nhint: use --once for one snapshot, --batch for one after the other\n"
		if got := p.stderr.String(); got != want {
			t.Errorf("%s: %q", c.name, got)
		}
		if got := p.stdout.String(); got != "" {
			t.Errorf("%s: prints %q", c.name, got)
		}
	}
	s := startTop(t, 200, 24, []string{"top", "-s", "127.0.0.1:1"})
	s.process.ended(exitUnavailable)
	s.shows("tinybroker: cannot reach broker at 127.0.0.1:1: connection refused")
	if bytes.Contains(s.bytes(), []byte("\x1b")) {
		t.Error("draws though there is no broker")
	}
}

// A terminal that takes nothing, as that of a connection that hangs, keeps nobody from ending top.
func TestTopEndsOnStuckTerminal(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	load(t, b)
	for _, twice := range []bool{false, true} {
		tty, slave, err := pty.Open()
		if err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() {
			slave.Close()
			tty.Close()
		})
		if err := pty.Setsize(tty, &pty.Winsize{Rows: 50, Cols: 150}); err != nil {
			t.Fatal(err)
		}
		before, err := unix.IoctlGetTermios(int(slave.Fd()), ioctlGetTermios)
		if err != nil {
			t.Fatal(err)
		}
		s := start(t, []string{"top", "-s", b.address, "--interval", "250ms"}, reading(slave), writing(slave), func(p *process) {
			p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			p.cmd.Env = append(p.cmd.Env, "TERM=xterm-256color")
		})
		eventually(t, "the screen is there", func() bool {
			now, err := unix.IoctlGetTermios(int(slave.Fd()), ioctlGetTermios)
			return err == nil && *now != *before
		})
		fill, err := unix.Open(slave.Name(), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = unix.Write(fill, []byte("."))
		}
		unix.Close(fill)
		time.Sleep(time.Second) // to have a frame wait
		s.signal(syscall.SIGTERM)
		if twice {
			time.Sleep(2 * sameSignal)
			// On a busy machine the first one may have been enough by now.
			if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Fatal(err)
			}
		}
		began := time.Now()
		s.ended(128 + int(syscall.SIGTERM))
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
		after, err := unix.IoctlGetTermios(int(slave.Fd()), ioctlGetTermios)
		if err != nil {
			t.Fatal(err)
		}
		if *after != *before {
			t.Errorf("the terminal's modes are\n%+v\nand were\n%+v", *after, *before)
		}
	}
}
