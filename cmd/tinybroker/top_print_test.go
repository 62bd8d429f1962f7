//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// snapshots are the lines that --batch has printed.
func snapshots(p *process) []*snapshotJSON {
	p.t.Helper()
	var all []*snapshotJSON
	text := p.stdout.String()
	for line := range strings.Lines(text[:strings.LastIndexByte(text, '\n')+1]) {
		var snap snapshotJSON
		if err := json.Unmarshal([]byte(line), &snap); err != nil {
			p.t.Fatalf("%v in %q", err, line)
		}
		all = append(all, &snap)
	}
	return all
}

// Rates are right at a steady load, after a restart of the broker, and after top itself stood still; they are never
// negative, and the gap is marked once.
func TestBatchRates(t *testing.T) {
	t.Parallel()
	const speed = 1000
	b := startBroker(t)
	start(t, []string{"pub", "t", "x", "-n", "10000000", "-r", fmt.Sprint(speed), "-s", b.address, "--reconnect-timeout", "0"})
	top := start(t, []string{"top", "--batch", "--interval", "250ms", "-o", "json", "-s", b.address})
	steady := func(since int, what string) {
		t.Helper()
		var last int64
		eventually(t, "the rate is right "+what, func() bool {
			all := snapshots(top)
			if len(all) <= since {
				return false
			}
			last = all[len(all)-1].Broker.InPerSecond
			return last > speed*95/100 && last < speed*105/100
		})
	}
	steady(0, "at first")
	top.signal(syscall.SIGSTOP)
	time.Sleep(1500 * time.Millisecond)
	top.signal(syscall.SIGCONT)
	before := len(snapshots(top))
	eventually(t, "it goes on", func() bool { return len(snapshots(top)) > before+3 })
	steady(before+3, "after a pause")

	b.signal(syscall.SIGKILL)
	<-b.done
	top.says("connection lost (")
	again := startBroker(t, "--listen", b.address)
	top.says("reconnected after ")
	before = len(snapshots(top))
	steady(before+3, "after a restart")
	if n := strings.Count(top.stderr.String(), "connection lost"); n != 1 {
		t.Errorf("says %d times that the connection is lost:\n%s", n, top.stderr.String())
	}
	top.signal(syscall.SIGTERM)
	top.ended(128 + int(syscall.SIGTERM))

	gaps, runs := 0, map[string]bool{}
	for i, snap := range snapshots(top) {
		if snap.GapSeconds > 0 {
			gaps++
		}
		runs[snap.Broker.RunID] = true
		for _, rate := range []int64{snap.Broker.InPerSecond, snap.Broker.InPerMinute, snap.Broker.InBytesPerSecond, snap.Broker.OutPerSecond, snap.Broker.OutPerMinute} {
			if rate < 0 || rate > 100*speed*60 {
				t.Errorf("snapshot %d: a rate of %d", i, rate)
			}
		}
	}
	if gaps != 1 || len(runs) != 2 {
		t.Errorf("%d gaps, %d brokers; want 1 and 2", gaps, len(runs))
	}
	again.signal(syscall.SIGTERM)
	again.ended(0)
}

func TestBatchEnds(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	top := start(t, []string{"top", "--batch", "--no-reconnect", "-s", b.address})
	eventually(t, "prints", func() bool { return strings.Contains(top.stdout.String(), "last evictions") })
	b.signal(syscall.SIGKILL)
	top.ended(exitUnavailable)
	if got := top.stderr.String(); !strings.HasPrefix(got, "tinybroker: connection to broker at "+b.address+" lost: ") || strings.Count(got, "\n") != 1 {
		t.Errorf("%q", got)
	}
	// Nobody reads any more.
	b = startBroker(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	top = start(t, []string{"top", "--batch", "-s", b.address}, writing(w))
	w.Close()
	r.Close()
	if code := top.end(); code != exitPipe && code != 128+int(syscall.SIGPIPE) {
		t.Errorf("exit code %d", code)
	}
	full := fullDisk(t)
	for _, args := range [][]string{{"top", "--once"}, {"top", "--batch"}, {"ls", "topics"}, {"top", "--once", "-o", "json"}} {
		p := start(t, append(args, "-s", b.address), writing(full))
		p.ended(exitIO)
	}
}

// The shell gets names from the broker, quickly or not at all, and never a word on standard error.
func TestCompletionFromTheBroker(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	b.sub([]string{"jobs.*", "-g", "workers"})
	for _, topic := range []string{"orders.created", "orders.updated", "metrics.cpu", "odd.\u202e", "-odd"} {
		b.pub("", "--", topic, "x")
	}
	// It accepts connections and then says nothing.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	complete := func(server string, args ...string) (string, time.Duration) {
		t.Helper()
		began := time.Now()
		p := start(t, append([]string{"__complete"}, args...), env("TINYBROKER_SERVER="+server))
		p.ended(0)
		if got := p.stderr.String(); strings.Contains(got, "tinybroker:") || strings.Count(got, "\n") > 1 {
			t.Errorf("%q: says %q", args, got)
		}
		return p.stdout.String(), time.Since(began)
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"pub", ""}, []string{"metrics.cpu", "orders.created", "orders.updated"}},
		{[]string{"pub", "orders.c"}, []string{"orders.created"}},
		{[]string{"pub", "orders.created", ""}, nil},
		{[]string{"sub", "x", "met"}, []string{"metrics.cpu"}},
		{[]string{"sub", "x", "-g", ""}, []string{"workers"}},
		{[]string{"ls", "gr"}, []string{"topics", "subs", "groups", "members", "evictions"}},
		{[]string{"ls", "groups", "--sort", ""}, []string{"pending", "group", "members", "in-flight", "out", "redelivered", "dead"}},
		{[]string{"top", "--view", "topics", "--sort", ""}, []string{"in", "topic", "out", "bytes", "subs", "groups", "last"}},
		{[]string{"top", "--view", ""}, []string{"overview", "topics", "subs", "groups", "evictions"}},
	} {
		got, _ := complete(b.address, c.args...)
		lines := strings.Fields(got)
		found := map[string]bool{}
		for _, line := range lines[:len(lines)-1] {
			found[line] = true
		}
		if len(found) != len(c.want) || lines[len(lines)-1] != ":4" {
			t.Errorf("%q: %q, want %q", c.args, got, c.want)
		}
		for _, name := range c.want {
			if !found[name] {
				t.Errorf("%q: %q has no %s", c.args, got, name)
			}
		}
	}
	usual, base := complete(b.address, "help", "x")
	if usual != ":4\n" {
		t.Errorf("%q", usual)
	}
	for _, server := range []string{"127.0.0.1:1", silent.Addr().String(), "nonsense://x"} {
		got, took := complete(server, "pub", "")
		if got != ":4\n" {
			t.Errorf("%s: %q", server, got)
		}
		if extra := took - base; extra > completionPatience+2*time.Second { // the machine may be busy
			t.Errorf("%s: took %s longer than a completion without a broker", server, extra)
		}
	}
}
