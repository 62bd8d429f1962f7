package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// checkAddrFile refuses what is there and is no file: it would be replaced by one, and be gone at the end. /dev/stdout is a device that others need.
func checkAddrFile(path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("addr_file: %s: is not a regular file", path)
	}
	return nil
}

// clearAddrFile takes away the address file that a killed broker has left behind, so that nobody takes it for that of the one that starts. A
// file of something else, or of a broker that still listens, stays until it is replaced: this start may yet fail, since its address is taken.
func clearAddrFile(path string) {
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return
	}
	data, err := os.ReadFile(path)
	if err != nil || slices.ContainsFunc(strings.Split(strings.TrimSpace(string(data)), "\n"), mayBeInUse) {
		return
	}
	_ = os.Remove(path) // what cannot be removed cannot be replaced either, which is told then
}

// mayBeInUse reports whether a line of an address file is no address, or one where somebody listens or may do so.
func mayBeInUse(line string) bool {
	network, address := "tcp", strings.TrimPrefix(line, "http://")
	if path, ok := socketPath(strings.TrimPrefix(line, "http+")); ok {
		network, address = "unix", path
	} else if _, _, err := net.SplitHostPort(address); err != nil {
		return true
	}
	conn, err := net.DialTimeout(network, address, time.Second)
	if err == nil {
		conn.Close()
		return true
	}
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EAGAIN) || os.IsTimeout(err)
}

// writeAddrFile writes one address a line, that of the pages last, so that a reader sees all of them or no file at all.
func writeAddrFile(path string, listeners []net.Listener, pages *pages) (ownFile, error) {
	var text strings.Builder
	for _, l := range listeners {
		fmt.Fprintln(&text, addressOf(l))
	}
	if pages != nil {
		fmt.Fprintln(&text, pages.url())
	}
	err := writeFileAtomic(path, []byte(text.String()))
	if err != nil {
		return ownFile{}, failf(exitIO, "--addr-file %s: %s", path, rootCause(err))
	}
	return claim(path)
}

// writeFileAtomic creates or replaces a file in one step.
func writeFileAtomic(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
