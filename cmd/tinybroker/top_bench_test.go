//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

const (
	watchedSubscriptions = 10_000
	watchedTopics        = 10_000
	watchedFor           = 20 * time.Second
)

// BenchmarkTop measures what top costs while it watches 10 000 subscriptions and 10 000 topics, as parts of one core: its own
// process, and the broker's beyond what it takes unwatched. One operation is 20 s of watching on a terminal of 200x60.
func BenchmarkTop(b *testing.B) {
	if testing.Short() {
		b.Skip("takes a minute")
	}
	server, address := benchBroker(b)
	populate(b, address)
	idle := cpuOf(b, server, watchedFor/2) * 2
	for _, c := range []struct {
		name string
		args []string
	}{
		{"overview", nil},
		{"subs", []string{"--view", "subs"}},
		{"topics", []string{"--view", "topics"}},
		{"subs-all-rows", []string{"--view", "subs", "--limit", fmt.Sprint(watchedSubscriptions)}},
		{"topics-all-rows", []string{"--view", "topics", "--limit", fmt.Sprint(watchedTopics)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				top, stop := watch(b, address, c.args...)
				before := cpuTime(b, server)
				own := cpuOf(b, top, watchedFor)
				watched := cpuTime(b, server) - before
				stop()
				b.ReportMetric(100*own.Seconds()/watchedFor.Seconds(), "top-%")
				b.ReportMetric(100*max(0, watched-idle).Seconds()/watchedFor.Seconds(), "broker-%")
			}
		})
	}
}

// watch starts top on a terminal of 200x60 and waits until it has drawn for a while.
func watch(b *testing.B, address string, args ...string) (pid int, stop func()) {
	b.Helper()
	cmd := exec.Command("tinybroker", append([]string{"top", "-s", address}, args...)...)
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 60, Cols: 200})
	if err != nil {
		b.Fatal(err)
	}
	drawn := make(chan int)
	go func() {
		n, _ := io.Copy(io.Discard, tty)
		drawn <- int(n)
	}()
	time.Sleep(2 * time.Second) // its start is not what is measured
	return cmd.Process.Pid, func() {
		cmd.Process.Kill()
		cmd.Wait()
		tty.Close()
		if n := <-drawn; n < 4000 {
			b.Errorf("top has drawn %d bytes: nothing was watched", n)
		}
	}
}

// BenchmarkWatchedThroughput measures what a broker with 10 000 subscriptions and 10 000 topics loses in throughput while top
// watches it: the load runs in turn unwatched and watched, several times, and the medians are compared. One operation is all of it.
func BenchmarkWatchedThroughput(b *testing.B) {
	if testing.Short() {
		b.Skip("takes a minute for each view")
	}
	const pairs = 7
	_, address := benchBroker(b)
	populate(b, address)
	for _, view := range []string{"overview", "topics", "subs"} {
		b.Run(view, func(b *testing.B) {
			for b.Loop() {
				var alone, watched []float64
				for range pairs {
					alone = append(alone, throughput(b, address))
					_, stop := watch(b, address, "--view", view)
					watched = append(watched, throughput(b, address))
					stop()
				}
				slices.Sort(alone)
				slices.Sort(watched)
				b.ReportMetric(alone[pairs/2], "msgs/s-alone")
				b.ReportMetric(100*(1-watched[pairs/2]/alone[pairs/2]), "lost-%")
			}
		})
	}
}

// throughput is what one publisher brings to one subscriber in 3 s, in messages a second.
func throughput(b *testing.B, address string) float64 {
	b.Helper()
	out, err := exec.Command("tinybroker", "bench", "-s", address, "--duration", "3s", "--size", "128", "-o", "json").Output()
	if err != nil {
		b.Fatal(err)
	}
	var result struct {
		Rate float64 `json:"delivered_messages_per_second"`
	}
	if err := json.Unmarshal(out, &result); err != nil || result.Rate <= 0 {
		b.Fatalf("%v: %s", err, out)
	}
	return result.Rate
}

// benchBroker starts a broker process.
func benchBroker(b *testing.B) (pid int, address string) {
	b.Helper()
	file := filepath.Join(b.TempDir(), "addr")
	cmd := exec.Command("tinybroker", "serve", "--listen", "127.0.0.1:0", "--addr-file", file, "--log-level", "error")
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	for {
		if data, err := os.ReadFile(file); err == nil {
			return cmd.Process.Pid, strings.TrimSpace(string(data))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// populate opens the subscriptions, on a connection for every hundred, and publishes to each topic.
func populate(b *testing.B, address string) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var opened sync.WaitGroup
	for range watchedSubscriptions / 100 {
		client, err := rpc.Dial(ctx, rpc.ClientOptions{Target: address})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { client.Close() })
		for i := range 100 {
			opened.Add(1)
			all.Go(func() {
				client.Subscribe(ctx, rpc.SubscribeOptions{
					Patterns: []string{fmt.Sprintf("news.%d.*", i)}, ClientName: fmt.Sprintf("client-%d", i),
					OnOpened: func(rpc.Opened) { opened.Done() },
				}, func(*rpc.Delivery) error { return nil })
			})
		}
	}
	b.Cleanup(func() { // runs first
		cancel()
		all.Wait()
	})
	opened.Wait()
	client, err := rpc.Dial(ctx, rpc.ClientOptions{Target: address})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	p, err := client.Publisher(ctx, rpc.PublisherOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for i := range watchedTopics {
		if _, err := p.Publish(ctx, &core.Message{Topic: fmt.Sprintf("stock.%05d", i), Payload: []byte("x")}); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Close(ctx); err != nil {
		b.Fatal(err)
	}
}

// cpuOf is how much processor time a process takes in a while.
func cpuOf(b *testing.B, pid int, while time.Duration) time.Duration {
	b.Helper()
	before := cpuTime(b, pid)
	time.Sleep(while)
	return cpuTime(b, pid) - before
}

// cpuTime is how much processor time a process has taken so far.
func cpuTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), ") ") // the name before it may hold anything
	fields := strings.Fields(rest)
	var ticks int64
	for _, field := range fields[11:13] { // in user mode, in the kernel
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100
}
