//go:build unix

package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestUnreadLog: a broker whose log nobody reads starts, works, reloads, and stops in time.
func TestUnreadLog(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"json", "text"} {
		file := filepath.Join(t.TempDir(), "addr")
		full := fullPipe(t)
		b := &broker{process: start(t, []string{
			"serve", "--listen", "127.0.0.1:0", "--addr-file", file, "--log-format", format, "--log-level", "debug", "--shutdown-timeout", "2s",
		}, func(p *process) { p.cmd.Stderr = full })}
		b.address = strings.TrimSpace(waitFile(t, file))
		sub := b.sub([]string{"--count", "1", "x"})
		b.pub("", "x", "y")
		sub.ended(0)
		b.signal(syscall.SIGHUP)
		b.pub("", "x", "y")
		b.signal(syscall.SIGTERM)
		began := time.Now()
		b.ended(0)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s: stopped after %s", format, took)
		}
	}
}
