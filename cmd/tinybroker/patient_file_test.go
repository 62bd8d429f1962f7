//go:build unix

package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sharedPipe is a pipe between processes whose ends can be made non-blocking behind the back of whoever has them, too.
func sharedPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	fds := make([]int, 2)
	syscall.ForkLock.RLock()
	err := unix.Pipe(fds)
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	r, w = os.NewFile(uintptr(fds[0]), "r"), os.NewFile(uintptr(fds[1]), "w")
	t.Cleanup(func() {
		r.Close()
		w.Close()
	})
	return r, w
}

func makeNonblocking(t *testing.T, f *os.File) {
	t.Helper()
	if err := unix.SetNonblock(int(f.Fd()), true); err != nil {
		t.Fatal(err)
	}
}

// What another process does to a shared stream breaks no record.
func TestStreamsMadeNonblocking(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	r, w := sharedPipe(t)
	sub := b.sub([]string{"x", "-n", "300"}, writing(w))
	makeNonblocking(t, w)
	in, feed := sharedPipe(t)
	pub := start(t, []string{"pub", "x", "-v", "-s", b.address}, reading(in))
	line := strings.Repeat("y", 1000) + "\n"
	feed.WriteString(line)
	pub.says("line 1: accepted")
	makeNonblocking(t, in)
	for range 299 {
		feed.WriteString(line)
	}
	pub.says("line 300: accepted")
	time.Sleep(100 * time.Millisecond) // to have the pipe full, and the other one empty
	feed.Close()
	pub.ended(0)
	w.Close()
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, []byte(strings.Repeat(line, 300))) {
		t.Errorf("%d bytes arrived, want %d: %v", len(got), 300*len(line), err)
	}
	sub.ended(0)
}

func TestPatientFile(t *testing.T) {
	r, w := sharedPipe(t)
	makeNonblocking(t, r)
	makeNonblocking(t, w)
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	var got bytes.Buffer
	var both sync.WaitGroup
	both.Go(func() {
		defer w.Close()
		if n, err := (patientFile{w}).Write(data); n != len(data) || err != nil {
			t.Errorf("wrote %d of %d: %v", n, len(data), err)
		}
	})
	both.Go(func() {
		if _, err := io.Copy(&got, patientFile{r}); err != nil {
			t.Error(err)
		}
	})
	both.Wait()
	if !bytes.Equal(got.Bytes(), data) {
		t.Errorf("read %d bytes, want %d", got.Len(), len(data))
	}
}
