//go:build unix

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// manager stands for systemd: a socket that services tell how they are.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

func startManager(t *testing.T, name string) *manager {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &manager{t, conn}
}

// heard returns the next notification that is not the watchdog's.
func (m *manager) heard() string {
	m.t.Helper()
	for {
		if text := m.next(patience); text != "WATCHDOG=1" {
			return text
		}
	}
}

// next returns the next notification; empty: none came in time.
func (m *manager) next(within time.Duration) string {
	m.t.Helper()
	buf := make([]byte, 4096)
	if err := m.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		m.t.Fatal(err)
	}
	n, err := m.conn.Read(buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ""
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return string(buf[:n])
}

// The service manager hears that the broker is ready, reloads, and stops, in the words of sd_notify(3).
func TestServiceManager(t *testing.T) {
	t.Parallel()
	names := []string{filepath.Join(t.TempDir(), "notify")}
	if runtime.GOOS == "linux" {
		names = append(names, fmt.Sprintf("@tinybroker-test-%d", os.Getpid()))
	}
	for _, name := range names {
		m := startManager(t, name)
		path := filepath.Join(t.TempDir(), "config.yaml")
		rewrite(t, path, "shutdown_timeout: 20s\n")
		b := &broker{process: start(t, []string{"serve", "--listen", "127.0.0.1:0", "--config", path}, env("NOTIFY_SOCKET="+name))}
		ready := m.heard()
		address, ok := strings.CutPrefix(ready, "READY=1\nSTATUS=listening on ")
		if !ok {
			t.Fatalf("%q", ready)
		}
		start(t, []string{"status", "-q", "-s", address}).ended(0) // it is true

		reloading := regexp.MustCompile(`^RELOADING=1\nMONOTONIC_USEC=[1-9]\d*$`)
		if runtime.GOOS != "linux" {
			reloading = regexp.MustCompile(`^RELOADING=1\n`)
		}
		for _, c := range []struct{ text, want string }{
			{"shutdown_timeout: 20s\nlog_level: debug\n", ready},
			{"typo: x\n", ready + "; the last reload was refused, see the log"},
			{"shutdown_timeout: 20s\n", ready},
		} {
			rewrite(t, path, c.text)
			b.signal(syscall.SIGHUP)
			if got := m.heard(); !reloading.MatchString(got) {
				t.Errorf("%q", got)
			}
			if got := m.heard(); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		}
		b.signal(syscall.SIGTERM)
		if got := m.heard(); got != "STOPPING=1\nSTATUS=draining\nEXTEND_TIMEOUT_USEC=25000000" {
			t.Errorf("%q", got)
		}
		b.ended(0)
		if got := m.next(10 * time.Millisecond); got != "" {
			t.Errorf("then %q", got)
		}
	}
}

// Without a manager nothing is told; one that does not listen is mentioned once, and no obstacle.
func TestNoServiceManager(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{"": 0, filepath.Join(t.TempDir(), "nobody"): 1} {
		file := filepath.Join(t.TempDir(), "addr")
		b := &broker{process: start(t, []string{"serve", "--listen", "127.0.0.1:0", "--addr-file", file}, env("NOTIFY_SOCKET="+name, "WATCHDOG_USEC=20000"))}
		b.address = strings.TrimSpace(waitFile(t, file))
		b.reload()
		b.signal(syscall.SIGTERM)
		b.ended(0)
		if got := strings.Count(b.stderr.String(), "cannot tell the service manager"); got != want {
			t.Errorf("%q: mentioned %d times", name, got)
		}
	}
}

// The watchdog hears from a broker that works twice in each interval, until it ends, and not from one that does not.
func TestWatchdog(t *testing.T) {
	t.Parallel()
	m := startManager(t, filepath.Join(t.TempDir(), "notify"))
	b := &broker{process: start(t, []string{"serve", "--listen", "127.0.0.1:0"},
		env("NOTIFY_SOCKET="+m.conn.LocalAddr().String(), "WATCHDOG_USEC=200000"))}
	b.says("listening on")
	m.heard()
	began := time.Now()
	for range 6 {
		if got := m.next(patience); got != "WATCHDOG=1" {
			t.Fatalf("%q", got)
		}
	}
	if took := time.Since(began); took < 400*time.Millisecond {
		t.Errorf("six times in %v", took)
	}
	b.signal(syscall.SIGSTOP)
	for m.next(300*time.Millisecond) != "" { // what it has said before
	}
	if got := m.next(300 * time.Millisecond); got != "" {
		t.Errorf("a stopped broker says %q", got)
	}
	b.signal(syscall.SIGCONT)
	if got := m.next(patience); got != "WATCHDOG=1" {
		t.Errorf("%q", got)
	}
	b.signal(syscall.SIGTERM)
	b.ended(0)

	other := startManager(t, filepath.Join(t.TempDir(), "notify"))
	p := start(t, []string{"serve", "--listen", "127.0.0.1:0"},
		env("NOTIFY_SOCKET="+other.conn.LocalAddr().String(), "WATCHDOG_USEC=20000", "WATCHDOG_PID=1")) // somebody else's
	p.says("listening on")
	other.heard()
	if got := other.next(200 * time.Millisecond); got != "" {
		t.Errorf("unasked: %q", got)
	}
}

// A broker whose locks are held for good says nothing to the watchdog.
func TestWatchdogOfADeadlock(t *testing.T) {
	m := startManager(t, filepath.Join(t.TempDir(), "notify"))
	t.Setenv("NOTIFY_SOCKET", m.conn.LocalAddr().String())
	t.Setenv("WATCHDOG_USEC", "20000")
	s := &supervisor{log: slog.New(slog.DiscardHandler)}
	stuck := make(chan struct{})
	probes := 0
	stop := s.watch(func() {
		if probes++; probes > 3 {
			<-stuck
		}
	})
	for range 3 {
		if got := m.next(patience); got != "WATCHDOG=1" {
			t.Errorf("%q", got)
		}
	}
	if got := m.next(200 * time.Millisecond); got != "" {
		t.Errorf("stuck, it says %q", got)
	}
	close(stuck)
	if got := m.next(patience); got != "WATCHDOG=1" {
		t.Errorf("%q", got)
	}
	stop()
}
