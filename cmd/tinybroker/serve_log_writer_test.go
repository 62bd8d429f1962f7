package main

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A log that is not read holds nobody up. What was logged before there was no more room comes in order, then how much is missing.
func TestLogWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		log := newLogWriter(w, slog.New(slog.NewTextHandler(w, nil)))
		const all, size = 3000, 1 << 10
		line := func(i int) string { return fmt.Sprintf("%0*d\n", size-1, i) }
		for i := range all {
			if n, err := io.WriteString(log, line(i)); n != size || err != nil {
				t.Fatal(n, err)
			}
			synctest.Wait()
		}
		began := time.Now()
		log.close(logPatience)
		if took := time.Since(began); took != logPatience {
			t.Errorf("the end waits for %s", took)
		}
		io.WriteString(log, "too late\n")
		var read strings.Builder
		go func() {
			<-log.done
			w.Close()
		}()
		io.Copy(&read, r)
		const kept = 1 + logRoom/size // the first is taken at once
		var want strings.Builder
		for i := range kept {
			want.WriteString(line(i))
		}
		got, more := strings.CutPrefix(read.String(), want.String())
		if !more || strings.Count(got, "\n") != 1 || !strings.Contains(got, fmt.Sprint("dropped=", all-kept)) {
			t.Errorf("%d lines of %d as they were written, then %.200q", strings.Count(read.String(), "\n"), kept, got)
		}
	})
}

// When the reader goes on, so does the log.
func TestLogWriterGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var read lockedBuffer
		hold := make(chan struct{})
		log := newLogWriter(writerFunc(func(p []byte) (int, error) {
			<-hold
			return read.Write(p)
		}), slog.New(slog.NewTextHandler(&read, nil)))
		io.WriteString(log, "first\n")
		synctest.Wait()
		io.WriteString(log, strings.Repeat("x", logRoom-1)+"\n")
		io.WriteString(log, "dropped\n")
		close(hold)
		synctest.Wait()
		io.WriteString(log, "next\n")
		log.close(logPatience)
		lines := strings.Split(read.String(), "\n")
		if len(lines) != 5 || lines[0] != "first" || !strings.HasSuffix(lines[2], "dropped=1") || lines[3] != "next" {
			t.Errorf("%d lines: %.100q", len(lines), lines)
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
