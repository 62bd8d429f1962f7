//go:build unix

package main

import (
	"context"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
)

// terminal is a pseudo-terminal with a shell that runs one block.
type terminal struct {
	block *block
	tty   *os.File
	ended chan struct{}
	err   error // how the shell ended; valid once ended is closed

	mu     sync.Mutex
	output []byte
}

func startTerminal(t *testing.T, b *block, dir string, env []string) *terminal {
	t.Helper()
	// Long enough for any page, short enough to fail before the test run as a whole does.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	cmd := exec.CommandContext(ctx, "sh", "-e", "-c", b.text)
	cmd.Dir, cmd.Env = dir, env
	tty, err := pty.Start(cmd)
	if err != nil {
		cancel()
		t.Fatalf("%s: %v", b.where, err)
	}
	term := &terminal{block: b, tty: tty, ended: make(chan struct{})}
	go func() {
		defer cancel()
		buf := make([]byte, 4096)
		for {
			n, err := tty.Read(buf)
			term.mu.Lock()
			term.output = append(term.output, buf[:n]...)
			term.mu.Unlock()
			if err != nil {
				break
			}
		}
		term.err = cmd.Wait()
		tty.Close()
		close(term.ended)
	}()
	return term
}

func (term *terminal) screen() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return string(term.output)
}

// wait returns once reached does, or after a while that is too long for anything on a page.
func (term *terminal) wait(reached func() bool) {
	for range 1500 {
		if reached() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// interrupt types Ctrl-C and waits for the end.
func (term *terminal) interrupt(t *testing.T) {
	t.Helper()
	select {
	case <-term.ended:
		return
	default:
	}
	term.tty.Write([]byte{3}) // unless it ends by itself just now
	select {
	case <-term.ended:
	case <-time.After(20 * time.Second):
		t.Errorf("%s: still running 20 s after Ctrl-C\n%s", term.block.where, term.screen())
	}
}
