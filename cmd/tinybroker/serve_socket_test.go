//go:build linux

package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
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
