//go:build unix

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// node starts one of docs/examples/node.
func (b *broker) node(args []string, options ...processOption) *process {
	b.t.Helper()
	return b.example("node", append([]string{"node"}, args...), options...)
}

// After REPLACED it stays away, and after a restart of the broker it comes back.
func TestNodeSubscriberComesBack(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	first := b.node([]string{"subscribe.js", "a"}, env("SUBSCRIPTION_ID=one"))
	first.says("subscribed as one")
	second := b.node([]string{"subscribe.js", "a"}, env("SUBSCRIPTION_ID=one"))
	second.says("subscribed as one")
	first.ended(1)
	if got := first.stderr.String(); !strings.Contains(got, "REPLACED: 0 messages lost") || strings.Count(got, "subscribed") != 1 {
		t.Errorf("it was replaced, and said\n%s", got)
	}
	b.signal(syscall.SIGTERM)
	b.ended(0)
	second.says("broker is draining")
	again := startBroker(t, "--listen", b.address)
	again.address = b.address // of the two
	second.saysTimes("subscribed as one", 2)
	second.says("the broker was restarted")
	again.pub("", "a", "hello")
	second.printed("a hello\n")
	wrong := again.node([]string{"subscribe.js", "a..b"})
	wrong.ended(1)
	if got := wrong.stderr.String(); !strings.Contains(got, "INVALID_ARGUMENT") || strings.Count(got, "\n") != 1 {
		t.Errorf("a bad pattern: %s", got)
	}
}

func TestNodePublisher(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	sub := b.sub([]string{"**", "--format", `{{.Topic}} {{.Payload}} k={{.Key}} {{index .Headers "content-type"}} {{.Time.IsZero}}`})
	one := b.node([]string{"publish.js", "orders.created", "tea", "alice"})
	one.ended(0)
	if got := one.stderr.String(); got != "taken by 1 subscriptions\n" {
		t.Errorf("it said %q", got)
	}
	sub.printed("orders.created tea k=alice text/plain false\n")
	bad := b.node([]string{"publish.js", "no good", "x"})
	bad.ended(1)
	if got := bad.stderr.String(); !strings.HasPrefix(got, "INVALID_ARGUMENT: ") {
		t.Errorf("a bad topic: %s", got)
	}
}

// A line that comes alone is published at once, though more may follow.
func TestNodePublisherDoesNotWait(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	sub := b.sub([]string{"a"})
	pub := b.node([]string{"publish.js", "a"}, withStdin)
	io.WriteString(pub.stdin, "first\n")
	sub.printed("first\n")
	io.WriteString(pub.stdin, "second\n")
	sub.printed("first\nsecond\n")
	pub.stdin.Close()
	pub.ended(0)
}

// While a subscriber stands still, the publisher is held back, and with it whoever writes to its standard input; nobody
// is evicted and nothing is lost. What has gathered meanwhile goes out in frames that the broker takes.
func TestNodePublisherIsHeldBack(t *testing.T) {
	t.Parallel()
	const lines = 4000
	b := startBroker(t, "--consumer-capacity", "1000")
	sub := b.sub([]string{"a", "--format", "{{.Seq}}"})
	sub.signal(syscall.SIGSTOP)
	pub := b.node([]string{"publish.js", "a"}, withStdin)
	var written atomic.Int64
	go func() {
		line := []byte(strings.Repeat("x", 45_000) + "\n")
		for range lines {
			if _, err := pub.stdin.Write(line); err != nil {
				break
			}
			written.Add(1)
		}
		pub.stdin.Close()
	}()
	at, since := int64(0), time.Now()
	eventually(t, "held back", func() bool {
		if now := written.Load(); now != at {
			at, since = now, time.Now()
		}
		return at > 0 && time.Since(since) > 500*time.Millisecond
	})
	if at == lines {
		t.Error("the publisher took everything")
	}
	sub.signal(syscall.SIGCONT)
	pub.ended(0)
	sub.printed(numbered("", 1, lines))
	if b.evictions() != 0 {
		t.Error("the subscriber was evicted")
	}
}

// A worker acknowledges what it has done; what fails comes again, and what nobody can do becomes a dead letter.
func TestNodeWorker(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	letters := b.sub([]string{"$tb.dlq.*", "--format", `{{.Payload}} {{index .Headers "tinybroker-reason"}}`})
	worker := b.node([]string{"worker.js", "resize", "jobs.*"})
	worker.says("member ")
	b.pub(`{"name":"a"}
{"name":"b","fails":1}
{"name":"c","impossible":"too large"}
nonsense
{"name":"d"}
`, "jobs.photo")
	eventually(t, "all are done", func() bool {
		out := worker.stdout.String()
		return strings.Count(out, "\n") == 3 && strings.Contains(out, "done a attempt 1\n") && strings.Contains(out, "done b attempt 2\n") &&
			strings.Contains(out, "done d attempt 1\n")
	})
	eventually(t, "two are dead letters", func() bool {
		out := letters.stdout.String()
		return strings.Contains(out, `{"name":"c","impossible":"too large"} rejected: too large`+"\n") && strings.Contains(out, "nonsense rejected: ")
	})
	b.hasDone("resize")
}

// Messages with a key stay in order, also when some of them fail, while others are on their way.
func TestNodeWorkerKeepsKeyOrder(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	worker := b.node([]string{"worker.js", "g", "jobs"})
	worker.says("member ")
	const jobs = 40
	var input strings.Builder
	for i := range jobs {
		fails := 0
		if i%8 == 1 {
			fails = 1 + i/30
		}
		fmt.Fprintf(&input, `alice:{"name":"alice-%02d","ms":%d,"fails":%d}`+"\n"+`bob:{"name":"bob-%02[1]d"}`+"\n", i, i%3, fails)
	}
	b.pub(input.String(), "jobs", "-K", ":")
	eventually(t, "all are done", func() bool { return strings.Count(worker.stdout.String(), "\n") == 2*jobs })
	b.hasDone("g")
	for _, key := range []string{"alice", "bob"} {
		var got []string
		for line := range strings.Lines(worker.stdout.String()) {
			if name := strings.Fields(line)[1]; strings.HasPrefix(name, key) {
				got = append(got, name)
			}
		}
		if !slices.IsSorted(got) || len(got) != jobs {
			t.Errorf("%s were handled in the order %s", key, strings.Join(got, " "))
		}
	}
}

// A worker keeps what takes longer than the ack deadline.
func TestNodeWorkerExtends(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "--ack-deadline", "2s")
	worker := b.node([]string{"worker.js", "g", "jobs"})
	worker.says("member ")
	other := b.node([]string{"worker.js", "g", "jobs"})
	other.says("member ")
	b.pub(`{"name":"long","ms":6000}`+"\n", "jobs")
	eventually(t, "it is done", func() bool { return worker.stdout.String()+other.stdout.String() == "done long attempt 1\n" })
	if n := b.hasDone("g").Redelivered; n != 0 {
		t.Errorf("it was delivered again, %d times", n)
	}
}

// SIGTERM loses nothing: what runs is finished, what has not begun is at the other member, and each is done once.
func TestNodeWorkerLeaves(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	const jobs = 60
	var input strings.Builder
	for i := range jobs {
		fmt.Fprintf(&input, `{"name":"j%d","ms":100}`+"\n", i)
	}
	leaver := b.node([]string{"worker.js", "g", "jobs"})
	leaver.says("member ")
	b.pub(input.String(), "jobs")
	eventually(t, "it is at work", func() bool { return strings.Count(leaver.stdout.String(), "\n") >= 4 })
	leaver.signal(syscall.SIGTERM)
	leaver.ended(0)
	if got := leaver.stderr.String(); !strings.HasSuffix(got, "LEFT\n") {
		t.Errorf("it said\n%s", got)
	}
	did := strings.Count(leaver.stdout.String(), "\n")
	if did == jobs {
		t.Fatal("it did everything before it left")
	}
	stayer := b.node([]string{"worker.js", "g", "jobs"})
	eventually(t, "the rest is done", func() bool { return did+strings.Count(stayer.stdout.String(), "\n") >= jobs })
	all := leaver.stdout.String() + stayer.stdout.String()
	for i := range jobs {
		if n := strings.Count(all, fmt.Sprintf("done j%d attempt 1\n", i)); n != 1 {
			t.Errorf("job %d was done %d times at its first attempt", i, n)
		}
	}
	b.hasDone("g")
}
