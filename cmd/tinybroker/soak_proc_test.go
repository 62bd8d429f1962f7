//go:build unix

package main

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// soakBroker is the broker of the soak.
type soakBroker struct {
	*process
	address string
	metrics string // its URL
}

// processState is what the system says of a process, and the broker of itself; zero where there is no /proc.
type processState struct{ descriptors, threads, residentKB, goroutines, heapKB int }

func (s processState) String() string {
	return fmt.Sprintf("%d descriptors, %d threads, %d goroutines, %d KiB, heap %d KiB", s.descriptors, s.threads, s.goroutines, s.residentKB, s.heapKB)
}

// least is the less of each.
func (s processState) least(o processState) processState {
	return processState{min(s.descriptors, o.descriptors), min(s.threads, o.threads), min(s.residentKB, o.residentKB), min(s.goroutines, o.goroutines), min(s.heapKB, o.heapKB)}
}

// state is what the broker takes now.
func (s *soak) state() processState {
	s.t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	response, err := client.Get(s.b.metrics + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	var goroutines, heap int
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		n, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "go_goroutines":
			goroutines = int(n)
		case "go_memstats_heap_alloc_bytes":
			heap = int(n) / 1024
		}
	}
	if goroutines == 0 {
		s.t.Fatal("the metrics do not tell of goroutines")
	}
	state := stateOf(s.b.process)
	state.goroutines, state.heapKB = goroutines, heap
	return state
}

func stateOf(p *process) (s processState) {
	dir := fmt.Sprintf("/proc/%d", p.cmd.Process.Pid)
	if names, err := os.ReadDir(dir + "/fd"); err == nil {
		s.descriptors = len(names)
	}
	text, err := os.ReadFile(dir + "/status")
	if err != nil {
		return s
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		n, _ := strconv.Atoi(strings.Fields(value + " 0")[0])
		switch name {
		case "Threads":
			s.threads = n
		case "VmRSS":
			s.residentKB = n
		}
	}
	return s
}
