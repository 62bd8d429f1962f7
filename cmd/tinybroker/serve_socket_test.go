//go:build linux

package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// TestBusySocketIsNotTaken: a socket whose owner takes no more connections, since it has all it may have or has been stopped, is in use, and stays.
func TestBusySocketIsNotTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 1)); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		conn, err := net.Dial("unix", path)
		if err != nil {
			break
		}
		t.Cleanup(func() { conn.Close() })
	}
	if l, err := listenUnix(path, 0o600); !errors.Is(err, errSocketInUse) {
		t.Errorf("listens: %v", err)
		if err == nil {
			_ = l.Close()
		}
	}
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}

// TestOneOfManyStarts: of brokers that find the same stale socket at the same time one gets it, and the others say that it is in use. None
// takes away what another has just made, and would leave it running with nobody who can reach it.
func TestOneOfManyStarts(t *testing.T) {
	dir := t.TempDir()
	for round := range 300 {
		path := filepath.Join(dir, strconv.Itoa(round))
		stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		stale.SetUnlinkOnClose(false)
		stale.Close()
		var starting sync.WaitGroup
		listeners := make(chan net.Listener, 4)
		for range cap(listeners) {
			starting.Go(func() {
				l, err := listenUnix(path, 0o600)
				if err == nil {
					listeners <- l
				} else if !errors.Is(err, errSocketInUse) {
					t.Error(err)
				}
			})
		}
		starting.Wait()
		if len(listeners) != 1 {
			t.Fatalf("round %d: %d brokers listen", round, len(listeners))
		}
		_ = (<-listeners).Close()
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestLockedDirectory: a directory that somebody else keeps locked does not keep a broker from starting.
func TestLockedDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	defer lockDirectory(dir)()
	startSocketBroker(t, filepath.Join(dir, "s")).pub("", "x", "y")
}
