//go:build unix

package main

import (
	"bufio"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// readerOf starts a subscriber whose output is a pipe.
func readerOf(t *testing.T, b *broker, args ...string) (*process, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.SetReadDeadline(time.Now().Add(patience))
	t.Cleanup(func() { r.Close() })
	sub := b.sub(args, writing(w))
	w.Close()
	return sub, r
}

func TestSubDiesWithItsReader(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	for _, args := range [][]string{{"x"}, {"x", "-o", "json"}} {
		sub, r := readerOf(t, b, args...)
		b.pub("", "x", "one")
		if _, err := bufio.NewReader(r).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		r.Close()
		b.pub("", "x", "two")
		sub.ended(exitPipe)
		if sub.stderr.String() != "" {
			t.Errorf("%q", sub.stderr.String())
		}
	}
}

// Also when no message ever comes again.
func TestIdleSubDiesWithItsReader(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	sub, r := readerOf(t, b, "x")
	r.Close()
	began := time.Now()
	sub.ended(exitPipe)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("noticed after %v", took)
	}
	if sub.stderr.String() != "" {
		t.Errorf("%q", sub.stderr.String())
	}
	eventually(t, "no subscription is left", func() bool { return strings.Contains(b.status(), `"subscriptions":0,`) })
}

// A command that runs when the reader goes is waited for, also when it prints: others get its message only after that, and unstarted.
func TestWorkerOutlivesItsReader(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	done := t.TempDir() + "/done"
	worker, r := readerOf(t, b, "x", "-g", "g", "-x", "echo first; sleep 0.3; echo second; sleep 0.5; touch "+done)
	b.pub("", "x", "y")
	if _, err := bufio.NewReader(r).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if got := worker.end(); got != 128+int(syscall.SIGPIPE) {
		t.Errorf("exit code %d", got)
	}
	if _, err := os.Stat(done); err != nil {
		t.Errorf("the command is left behind: %v", err)
	}
	next := b.member(append([]string{"x", "-n", "1"}, attempts...))
	next.ended(0)
	next.printed("1 y\n")
}

// A member that prints leaves in order: what could not be written counts no attempt.
func TestMemberLeavesWithItsReader(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	member, r := readerOf(t, b, "x", "-g", "g")
	b.pub("", "x", "one")
	if _, err := bufio.NewReader(r).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	member.halt() // it shall not notice before it writes
	b.pub("", "x", "two")
	r.Close()
	member.signal(syscall.SIGCONT)
	if got := member.end(); got != 128+int(syscall.SIGPIPE) {
		t.Errorf("exit code %d", got)
	}
	next := b.member(append([]string{"x", "-n", "1"}, attempts...))
	next.ended(0)
	next.printed("1 two\n")
}

// fullDisk returns a file that takes nothing.
func fullDisk(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	full := fullDisk(t)
	b := startBroker(t)
	sub := b.sub([]string{"x"}, writing(full))
	b.pub("", "x", "y")
	sub.ended(exitIO)
	if got := sub.stderr.String(); got != "tinybroker: write standard output: no space left on device\n" {
		t.Errorf("%q", got)
	}
	for _, args := range [][]string{{"pub", "x", "y", "--tee"}, {"pub", "x", "y", "-o", "json"}, {"status"}} {
		p := start(t, append(args, "-s", b.address), writing(full))
		p.ended(exitIO)
		if got := p.stderr.String(); got != "tinybroker: write standard output: no space left on device\n" {
			t.Errorf("%q: %q", args, got)
		}
	}
	token := t.TempDir() + "/token"
	start(t, []string{"token", "new", "--name", "a", "--out", token}, writing(full)).ended(exitIO)
	if _, err := os.Stat(token); !os.IsNotExist(err) {
		t.Errorf("a token is left whose hash nobody knows: %v", err)
	}
	for _, args := range [][]string{{"version"}, {"--version"}, {"help"}, {"help", "exit-codes"}, {"pub", "--help"}, {"completion", "bash"}} {
		p := start(t, args, writing(full))
		p.ended(exitIO)
		if got := p.stderr.String(); got != "tinybroker: write standard output: no space left on device\n" {
			t.Errorf("%q: %q", args, got)
		}
	}
}

// What one command writes goes on to the next while both run.
func TestPipelineIsLive(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	end := b.sub([]string{"cooked"})
	b.sub([]string{"raw"}, writing(w))
	w.Close()
	start(t, []string{"pub", "cooked", "-s", b.address}, reading(r))
	r.Close()
	pub := start(t, []string{"pub", "raw", "-s", b.address}, withStdin)
	began := time.Now()
	for _, line := range []string{"one\n", "one\ntwo\n"} {
		if _, err := io.WriteString(pub.stdin, line[len(end.stdout.String()):]); err != nil {
			t.Fatal(err)
		}
		end.printed(line) // though neither pub's input nor sub's output has ended
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("two lines took %v", took)
	}
	pub.stdin.Close()
	pub.ended(0)
}

// A pub whose --tee nobody reads any more dies like any other writer of a pipe.
func TestTeeDiesWithItsReader(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	pub := start(t, []string{"pub", "x", "--tee", "-s", b.address}, withStdin, writing(w))
	w.Close()
	r.SetReadDeadline(time.Now().Add(patience))
	io.WriteString(pub.stdin, "one\n")
	if line, err := bufio.NewReader(r).ReadString('\n'); line != "one\n" {
		t.Fatalf("%q, %v", line, err)
	}
	r.Close()
	io.WriteString(pub.stdin, "two\n")
	if got := pub.end(); got != 128+int(syscall.SIGPIPE) {
		t.Errorf("exit code %d", got)
	}
}
