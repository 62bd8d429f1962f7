package rpc

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// TestFloodOfEvictions: at most 20 lines a second, and one that tells how many there were besides.
func TestFloodOfEvictions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := &logLines{}
		log := slog.New(slog.NewJSONHandler(lines, nil))
		var limit lineLimit
		flood := func(n int) (allowed int) {
			for range n {
				if limit.allow(log) {
					allowed++
				}
			}
			return allowed
		}
		for i, second := range []struct{ evicted, allowed, suppressed int }{{1, 1, 0}, {5000, 20, 4980}, {20, 20, 0}, {21, 20, 1}} {
			if got := flood(second.evicted); got != second.allowed {
				t.Errorf("second %d: %d lines, want %d", i, got, second.allowed)
			}
			before := len(lines.with(t, "more subscriptions were evicted than are logged"))
			time.Sleep(time.Second)
			synctest.Wait()
			told := lines.with(t, "more subscriptions were evicted than are logged")[before:]
			if second.suppressed == 0 && len(told) != 0 || second.suppressed > 0 && (len(told) != 1 || told[0]["suppressed"] != float64(second.suppressed)) {
				t.Errorf("second %d: told %v, want %d", i, told, second.suppressed)
			}
		}
	})
}

// TestQuietEndings: what ends as it should is no warning, and the log shows no payload.
func TestQuietEndings(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	sub := openPatterns(t, stub, "a")
	publishOne(t, stub, "a", []byte("secret"))
	sub.take(t, 1)
	sub.cancel()
	open(t, stub, sameID("a"))
	open(t, stub, sameID("b"))
	if _, err := shutDown(t, station, 10*time.Second); err != nil {
		t.Error(err)
	}
	station.log.mu.Lock()
	defer station.log.mu.Unlock()
	if logged := station.log.buf.String(); logged != "" {
		t.Errorf("logged %s", logged)
	}
}
