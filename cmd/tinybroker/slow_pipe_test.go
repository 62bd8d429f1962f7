//go:build unix

package main

import (
	"bufio"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A subscriber whose reader never keeps up is evicted again and again, at growing distances. It says so in one line each time, goes on, and
// what it prints is whole lines.
func TestSlowPipe(t *testing.T) {
	t.Parallel()
	const payload = 4 << 10
	b := startBroker(t, "--consumer-capacity", "50", "--consumer-capacity-bytes", "256KiB")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	sub := b.sub([]string{"x.**"}, writing(write))
	write.Close()
	pub := start(t, []string{"pub", "x.y", strings.Repeat("p", payload), "-n", "1000000", "-r", "3000", "--max-wait", "0", "-s", b.address})
	lines, began := bufio.NewReader(read), time.Now()
	for time.Since(began) < 12*time.Second {
		line, err := lines.ReadString('\n')
		if err != nil || len(line) != payload+1 {
			t.Fatalf("a line of %d bytes: %v", len(line), err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	select {
	case <-pub.done:
		t.Errorf("the publisher ended: %s", pub.stderr.String())
	case <-sub.done:
		t.Errorf("the subscriber ended: %s", sub.stderr.String())
	default:
	}
	said := sub.stderr.String()
	evicted := regexp.MustCompile(`(?m)^evicted by broker: queue full .*$`).FindAllString(said, -1)
	if len(evicted) < 2 || len(evicted) > 9 {
		t.Errorf("evicted %d times in 12 s:\n%s", len(evicted), said)
	}
	if most := 3*len(evicted) + 20; strings.Count(said, "\n") > most {
		t.Errorf("it says more than %d lines:\n%s", most, said)
	}
	t.Logf("evicted %d times", len(evicted))
}
