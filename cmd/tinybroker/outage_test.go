//go:build unix

package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestUnreachable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"pub", "x", "y"}, "tinybroker: cannot reach broker at 127.0.0.1:1: connection refused. Start one with: tinybroker serve --listen 127.0.0.1:1\n"},
		{[]string{"sub", "x"}, "tinybroker: cannot reach broker at 127.0.0.1:1: connection refused. Start one with: tinybroker serve --listen 127.0.0.1:1\n"},
		{[]string{"status"}, "tinybroker: cannot reach broker at 127.0.0.1:1: connection refused. Start one with: tinybroker serve --listen 127.0.0.1:1\n"},
		{[]string{"status", "-s", "dns:///127.0.0.1:1"}, "tinybroker: cannot reach broker at dns:///127.0.0.1:1: connection refused. Start one with: tinybroker serve --listen 127.0.0.1:1\n"},
		{[]string{"status", "-s", "unix:///nowhere/x.sock"}, "tinybroker: cannot reach broker at unix:///nowhere/x.sock: no such socket. Start one with: tinybroker serve --listen unix:///nowhere/x.sock\n"},
		{[]string{"status", "-s", "host.invalid:7710"}, "tinybroker: cannot reach broker at host.invalid:7710: no such host\n"},
	} {
		p := start(t, c.args, env("TINYBROKER_SERVER=127.0.0.1:1"))
		p.ended(exitUnavailable)
		if got := p.stderr.String(); got != c.want || p.stdout.String() != "" {
			t.Errorf("%q: %q", c.args, got)
		}
	}
	for _, server := range []string{"ftp://x", "", "a:b:c", "unix:", "127.0.0.1:99999", ":abc", "127.0.0.1:17820/", "localhost:http"} {
		if server == "" {
			continue // an empty text is refused too, but only as a flag
		}
		p := start(t, []string{"status", "-s", server})
		p.ended(exitUsage)
		if got := p.stderr.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, strconv.Quote(server)) {
			t.Errorf("%q: %q", server, got)
		}
	}
}

// A broker that is killed and started again on the same port: the subscriber says so and goes on, and so does a
// publisher, whose unconfirmed lines come after all.
func TestBrokerRestart(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	sub := b.sub([]string{"x"})
	pub := start(t, []string{"pub", "x", "-s", b.address}, withStdin)
	fmt.Fprintln(pub.stdin, "before")
	sub.printed("before\n")

	b.signal(syscall.SIGKILL)
	<-b.done
	sub.says("connection lost (connection closed); retrying\n")
	pub.says("connection lost (connection closed); retrying\n")
	fmt.Fprintln(pub.stdin, "while it was away")
	time.Sleep(300 * time.Millisecond)
	again := startBroker(t, "--listen", b.address)
	sub.says("gap: what was published in the ")
	pub.says("reconnected after ")
	fmt.Fprintln(pub.stdin, "after")
	pub.stdin.Close()
	pub.ended(0)
	eventually(t, "the last line comes", func() bool { return strings.HasSuffix(sub.stdout.String(), "after\n") })
	if !regexp.MustCompile(`(?m)^reconnected after [\d.]+m?s$`).MatchString(sub.stderr.String()) ||
		!regexp.MustCompile(`(?m)^gap: what was published in the [\d.]+m?s without a connection is missing; the broker was restarted$`).MatchString(sub.stderr.String()) {
		t.Error(sub.stderr.String())
	}
	if strings.Count(sub.stderr.String(), "connection lost") != 1 {
		t.Errorf("the loss is told more than once: %s", sub.stderr.String())
	}
	again.signal(syscall.SIGTERM)
	again.ended(0)
}

func TestNoReconnect(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	sub := b.sub([]string{"x", "--no-reconnect"})
	pub := start(t, []string{"pub", "x", "--no-reconnect", "-s", b.address}, withStdin)
	fmt.Fprintln(pub.stdin, "one")
	sub.printed("one\n")
	b.signal(syscall.SIGKILL)
	for _, p := range []*process{sub, pub} { // pub though it waits for a line that does not come
		began := time.Now()
		p.ended(exitUnavailable)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("noticed after %v", took)
		}
		if got := p.stderr.String(); !strings.HasPrefix(got, "tinybroker: connection to broker at "+b.address+" lost: ") || strings.Count(got, "\n") != 1 {
			t.Errorf("%q", got)
		}
	}
}

// A broker that does not come back: what is unconfirmed is named by its lines.
func TestUnconfirmedLinesAreNamed(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	pub := start(t, []string{"pub", "x", "-s", b.address, "--reconnect-timeout", "1s", "-v"}, withStdin)
	for n := range 500 {
		fmt.Fprintln(pub.stdin, n)
	}
	pub.says("line 500: accepted")
	b.signal(syscall.SIGKILL)
	<-b.done
	io.WriteString(pub.stdin, "a\nb\nc\n")
	pub.ended(exitUnavailable)
	want := regexp.MustCompile(`(?m)^tinybroker: connection to broker at \S+ lost: .*; 500 confirmed, 3 unconfirmed: lines 501-503$`)
	if !want.MatchString(pub.stderr.String()) {
		t.Errorf("no %s in\n%s", want, pub.stderr.String())
	}
}

func TestForEndsDuringAnOutage(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	sub := b.sub([]string{"x", "--for", "2s"})
	b.signal(syscall.SIGKILL)
	sub.ended(exitUnavailable)
	if !strings.Contains(sub.stderr.String(), "tinybroker: sub: no connection to "+b.address+" when --for 2s ended\n") {
		t.Error(sub.stderr.String())
	}
}

// A subscriber that is stopped is evicted and nobody else notices; woken, it says how many messages it lost and goes
// on. What it printed is a prefix, one hole, and then everything again.
func TestStoppedSubscriberIsEvicted(t *testing.T) {
	t.Parallel()
	const total = 30_000
	b := startBroker(t, "--consumer-capacity", "500", "--consumer-capacity-bytes", "64KiB")
	healthy := b.sub([]string{"x", "-n", strconv.Itoa(total + 1), "--format", "{{printf \"%.5s\" .Payload}}"})
	frozen := b.sub([]string{"x", "--format", "{{printf \"%.5s\" .Payload}}"})
	impatient := b.sub([]string{"x", "--exit-on-evict"})
	b.pub("", "x", "00000")
	frozen.printed("00000\n")
	for _, p := range []*process{frozen, impatient} {
		p.signal(syscall.SIGSTOP)
	}
	// 500 bytes each: more than windows and socket buffers hold. The patience lets the healthy one keep up; the
	// stopped ones cost it once each.
	numbers, filler := new(strings.Builder), strings.Repeat(".", 500)
	for n := 1; n <= total; n++ {
		fmt.Fprintf(numbers, "%05d %s\n", n, filler)
	}
	b.pub(numbers.String(), "x", "--max-wait", "500ms")
	healthy.ended(0)
	checkNumbers(t, healthy.stdout.String(), total, false)
	// Their queues are free at once. What is on its way to each of them, one frame, is held until it wakes up or is cut off.
	for _, want := range []string{`"subscriptions":0,`, `"queued_messages":0,`, `"evictions":2}`} {
		eventually(t, want, func() bool { return strings.Contains(b.status(), want) })
	}
	if held := b.memory(); held > 300_000 {
		t.Errorf("%d bytes are held for the stopped subscribers", held)
	}
	for _, p := range []*process{frozen, impatient} {
		p.signal(syscall.SIGCONT)
	}
	evicted := regexp.MustCompile(`(?m)^(tinybroker: )?evicted by broker: queue full \(\d+( bytes)?\) after [\d.]+m?s, ([\d,]+) messages lost; read faster, use --group, or raise --capacity$`)
	frozen.says("evicted by broker: ")
	impatient.ended(exitRetry)
	for _, p := range []*process{frozen, impatient} {
		if !evicted.MatchString(p.stderr.String()) {
			t.Errorf("%q", p.stderr.String())
		}
	}
	eventually(t, "nothing is held", func() bool { return b.memory() == 0 })
	eventually(t, "it has subscribed again", func() bool { return strings.Contains(b.status(), `"subscriptions":1,`) })
	b.pub("", "x", "99999")
	eventually(t, "the last message comes", func() bool { return strings.HasSuffix(frozen.stdout.String(), "99999\n") })
	checkNumbers(t, frozen.stdout.String(), total, true)
	if healthy.stderr.String() != "" && !strings.Contains(healthy.stderr.String(), "falling behind") {
		t.Errorf("the healthy one says %q", healthy.stderr.String())
	}
}

// checkNumbers wants 0, 1, 2… up to last, or up to a hole that reaches to the end and is followed by 99999.
func checkNumbers(t *testing.T, text string, last int, hole bool) {
	t.Helper()
	lines := strings.Fields(text)
	if hole {
		if i := slices.Index(lines, "99999"); i != len(lines)-1 {
			t.Fatalf("99999 comes as number %d of %d", i, len(lines))
		}
		lines = lines[:len(lines)-1]
		last = len(lines) - 1
	}
	if len(lines) != last+1 {
		t.Fatalf("%d lines, want %d", len(lines), last+1)
	}
	for i, line := range lines {
		if line != fmt.Sprintf("%05d", i) {
			t.Fatalf("line %d is %s", i, line)
		}
	}
}

// A second subscriber of the same id takes over; the first says so and does not come back.
func TestReplacedSubscriber(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	first := b.sub([]string{"x", "--id", "me"})
	second := b.sub([]string{"x", "--id", "me"})
	first.ended(exitOther)
	if got := first.stderr.String(); got != "tinybroker: replaced: another subscription took over this id\n" {
		t.Errorf("%q", got)
	}
	b.pub("", "x", "y")
	second.printed("y\n")
}

// What was dropped before a message is told with it, and what was dropped last, with nothing after it, when the broker goes away.
func TestOverflowDropsAreTold(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"drop-oldest", "drop-newest"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			b := startBroker(t, "--consumer-capacity", "10", "--consumer-capacity-bytes", "4KiB")
			sub := b.sub([]string{"x", "--overflow", policy, "--format", "{{printf \"%.5s\" .Payload}}"})
			sub.signal(syscall.SIGSTOP)
			var numbers strings.Builder
			for n := range 20_000 {
				fmt.Fprintf(&numbers, "%05d %s\n", n, strings.Repeat(".", 500))
			}
			b.pub(numbers.String(), "x", "--max-wait", "0")
			sub.signal(syscall.SIGCONT)
			if policy == "drop-oldest" {
				eventually(t, "the newest message comes", func() bool { return strings.HasSuffix(sub.stdout.String(), "19999\n") })
			}
			b.signal(syscall.SIGTERM)
			b.ended(exitOK)
			sub.says("connection lost")
			sub.signal(syscall.SIGTERM)
			sub.ended(128 + int(syscall.SIGTERM))
			told, lines := droppedByBroker(t, sub)
			came := strings.Fields(sub.stdout.String())
			if len(came)+told != 20_000 || lines > 5 {
				t.Errorf("%d came and %d were dropped, of 20000; told in %d lines", len(came), told, lines)
			}
			if policy == "drop-newest" && slices.Contains(came, "19999") {
				t.Error("nothing was dropped at the end, so this has shown nothing")
			}
			if text := sub.stderr.String(); !strings.Contains(text, "falling behind") || strings.Contains(text, "evict") {
				t.Errorf("%q", text)
			}
		})
	}
}

// droppedByBroker adds up what a sub has told of dropped messages.
func droppedByBroker(t *testing.T, sub *process) (sum, lines int) {
	t.Helper()
	told := regexp.MustCompile(`(?m)^dropped by broker: ([\d,]+) messages?, the queue was full$`).FindAllStringSubmatch(sub.stderr.String(), -1)
	for _, line := range told {
		n, err := strconv.Atoi(strings.ReplaceAll(line[1], ",", ""))
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum, len(told)
}

// A broker that was started again may take what the one before has refused, and what it has refused does not count as confirmed.
func TestLimitAfterRestart(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "--max-message-size", "2KiB")
	large := strings.Repeat("x", 3000)
	pub := start(t, []string{"pub", "x", "--on-error", "continue", "-v", "-s", b.address}, withStdin)
	for _, n := range []string{"1", "2"} { // the second is refused without asking
		fmt.Fprintln(pub.stdin, large)
		pub.says("line " + n + ": 3.0 kB is over the broker's 2 KiB limit")
	}
	b.signal(syscall.SIGKILL)
	<-b.done
	pub.says("connection lost")
	startBroker(t, "--listen", b.address)
	fmt.Fprintln(pub.stdin, large)
	pub.says("line 3: accepted")
	time.Sleep(time.Second) // until then the summary is short
	pub.stdin.Close()
	pub.ended(exitInput)
	if said := pub.stderr.String(); !regexp.MustCompile(`1 message confirmed in \S+ \(\d+/s, 3\.0 kB\)`).MatchString(said) {
		t.Errorf("it says %s", said)
	}
}
