//go:build unix

package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/bench"
	"codeberg.org/tinybroker/tinybroker/internal/core"
)

func TestBenchOnTerminal(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	p := startOnTerminal(t, []string{"bench", "-s", b.address, "--duration", "700ms", "--warmup", "300ms", "--rate", "200"})
	p.shows("] ")
	p.shows("warming up")
	p.shows("measuring")
	p.ended(0)
	if screen := p.screen.String(); !strings.Contains(screen, "problems   none") || strings.Contains(screen, "\x1b") {
		t.Errorf("%q", screen)
	}
}

// An interrupted bench takes the broker that it has started with it.
func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, []string{"bench", "--embedded", "--duration", "1h"}, env("TMPDIR="+dir))
	eventually(t, "the broker has started", func() bool {
		entries, err := os.ReadDir(dir)
		return err == nil && len(entries) == 1
	})
	time.Sleep(100 * time.Millisecond) // whether it publishes by now or is about to, the outcome is the same
	p.signal(syscall.SIGINT)
	p.ended(130)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	if p.stdout.String() != "" {
		t.Errorf("half a report: %q", p.stdout.String())
	}
}

// The broker of a run is like no other that the environment and the flags may speak of.
func TestBenchEmbeddedAmongSettings(t *testing.T) {
	t.Parallel()
	p := start(t, []string{"bench", "--embedded", "--tls", "-n", "10", "--warmup", "0"},
		env("TINYBROKER_METRICS_LISTEN=127.0.0.1:0", "TINYBROKER_MAX_IN_FLIGHT=0", "TINYBROKER_TLS_CA=missing.pem"))
	p.ended(0)
	if got := p.stdout.String(); !strings.Contains(got, "problems   none") {
		t.Error(got)
	}
}

func TestProgressLine(t *testing.T) {
	for _, c := range []struct {
		p    bench.Progress
		want string
	}{
		{bench.Progress{Warmup: true}, "[....................]   0% warming up: 0/s in, 0/s out"},
		{bench.Progress{Published: 5e9, Delivered: 5e12, Elapsed: time.Second, Done: 0.5}, "[##########..........]  50% measuring: 5000000000/s in, 5000000000000/s out"},
		{bench.Progress{Published: 10, Delivered: 20, Elapsed: 2 * time.Second, Done: 1}, "[####################] 100% measuring: 5/s in, 10/s out"},
	} {
		if got := progressLine(c.p); got != c.want || len(got) >= 80 {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestBenchFailure(t *testing.T) {
	for _, c := range []struct {
		r    bench.Result
		code int
		text string
	}{
		{bench.Result{Published: 1, Delivered: 1}, 0, ""},
		{bench.Result{Lost: 2}, 1, "bench: 2 messages lost, 0 duplicated, 0 foreign"},
		{bench.Result{Duplicated: 1}, 1, "bench: 0 messages lost, 1 duplicated, 0 foreign"},
		{bench.Result{Evicted: 1, Lost: 7}, 75, "bench: 1 subscriber evicted, 7 messages lost; raise --max-wait, or lower the load"},
		{bench.Result{Refused: 3, Refusal: os.ErrInvalid}, 75, "bench: 3 messages refused: invalid argument"},
		{bench.Result{Refused: 1, Refusal: core.ErrMessageTooLarge}, 65, "bench: 1 message refused: message too large"},
	} {
		err := benchFailure(&c.r)
		if codeOf(err) != c.code || err != nil && err.Error() != c.text {
			t.Errorf("%+v: %v", c.r, err)
		}
	}
}

func TestRates(t *testing.T) {
	for _, c := range []struct {
		messages, bytes float64
		want            string
	}{
		{0, 0, "0.0 messages/s, 0 B/s"},
		{0.996, 127.5, "1.0 messages/s, 128 B/s"},
		{9.9, 99.9, "9.9 messages/s, 100 B/s"},
		{9.96, 1e3, "10 messages/s, 1.0 kB/s"},
		{1484751.6, 190e6, "1,484,752 messages/s, 190 MB/s"},
	} {
		if got := rates(c.messages, c.bytes); got != c.want {
			t.Errorf("%v: %q, want %q", c.messages, got, c.want)
		}
	}
}

func TestShortLatency(t *testing.T) {
	for ns, want := range map[int64]string{0: "0µs", 1500: "1.5µs", 123456: "123µs", 4567891: "4.57ms", 999400000: "999ms", 12e9: "12.00s"} {
		if got := shortLatency(ns); got != want {
			t.Errorf("%d: %s, want %s", ns, got, want)
		}
	}
}
