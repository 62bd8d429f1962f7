//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// language is one of the clients that do the same in docs/examples.
type language struct {
	name                       string
	publish, subscribe, worker []string
	job                        string // a job for its worker, with a number in it
}

var languages = []language{
	{"node", []string{"node", "publish.js"}, []string{"node", "subscribe.js"}, []string{"node", "worker.js"}, `{"name":"%d"}`},
	{"go", []string{"./publish"}, []string{"./subscribe"}, []string{"./worker"}, "%d"},
	{"python", []string{"python3", "publish.py"}, []string{"python3", "subscribe.py"}, []string{"python3", "worker.py"}, "%d"},
}

// eachLanguage runs test with every language at the same time.
func eachLanguage(t *testing.T, test func(t *testing.T, l language)) {
	t.Helper()
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			test(t, l)
		})
	}
}

// example starts a program where docs/examples/NAME is ready for use.
func (b *broker) example(name string, command []string, options ...processOption) *process {
	b.t.Helper()
	dir := exampleDir(b.t, name)
	switch command[0] {
	case "node":
		needTool(b.t, "node")
	case "python3":
		command = append([]string{pythonWithGRPC(b.t)}, command[1:]...)
	}
	return start(b.t, nil, append([]processOption{func(p *process) {
		p.cmd = exec.Command(command[0], command[1:]...)
		p.cmd.Dir = dir
		p.cmd.Env = testEnv(b.t, "TINYBROKER_SERVER="+b.address)
		p.cmd.Stderr = &p.stderr
	}}, options...)...)
}

// saysTimes waits until the process has said text n times.
func (p *process) saysTimes(text string, n int) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("says %s %d times", text, n), func() bool { return strings.Count(p.stderr.String(), text) >= n })
}

func numbered(topic string, from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		if topic != "" {
			b.WriteString(topic + " ")
		}
		fmt.Fprintf(&b, "%d\n", i)
	}
	return b.String()
}

// A broadcast subscriber gets everything in order, is evicted when it stands still, and comes back.
func TestExampleSubscribers(t *testing.T) {
	t.Parallel()
	eachLanguage(t, func(t *testing.T, l language) {
		b := startBroker(t, "--consumer-capacity", "1000")
		sub := b.example(l.name, append(slices.Clone(l.subscribe), "a.*", "!a.no"))
		sub.saysTimes("subscribed as ", 1)
		b.pub(numbered("", 1, 5000), "a.b")
		b.pub("", "a.no", "excluded")
		before := numbered("a.b", 1, 5000)
		sub.printed(before)

		sub.signal(syscall.SIGSTOP)
		// More than the connection and the queue hold.
		line := strings.Repeat("x", 1000) + "\n"
		b.pub(strings.Repeat(line, 20_000), "a.big", "--max-wait", "0")
		eventually(t, "evicted", func() bool { return b.evictions() == 1 })
		sub.signal(syscall.SIGCONT)
		sub.says("EVICTED: ")
		sub.saysTimes("subscribed as ", 2)
		b.pub("", "a.b", "after")
		eventually(t, "it is back", func() bool { return strings.HasSuffix(sub.stdout.String(), "\na.b after\n") })
		between := strings.TrimSuffix(strings.TrimPrefix(sub.stdout.String(), before), "a.b after\n")
		if between != strings.Repeat("a.big "+line, strings.Count(between, "\n")) {
			t.Error("what came before the eviction is not a prefix")
		}
	})
}

// What one of them publishes as a stream arrives in order, and refusals are told.
func TestExamplePublishers(t *testing.T) {
	t.Parallel()
	eachLanguage(t, func(t *testing.T, l language) {
		b := startBroker(t)
		sub := b.sub([]string{"a"})
		pub := b.example(l.name, append(slices.Clone(l.publish), "a"), reading(strings.NewReader(numbered("", 1, 3000))))
		pub.ended(0)
		sub.printed(numbered("", 1, 3000))
		if got := pub.stderr.String(); got != "3000 messages, 0 refused\n" {
			t.Errorf("it said %q", got)
		}
		bad := b.example(l.name, append(slices.Clone(l.publish), "no good"), reading(strings.NewReader("1\n2\n")))
		bad.ended(1)
		if got := bad.stderr.String(); !strings.Contains(got, "TOPIC_INVALID") || !strings.Contains(got, "2 messages, 2 refused\n") {
			t.Errorf("bad topics on a stream: %s", got)
		}
	})
}

// Messages as large as the broker takes pass through clients that have their libraries' default limits.
func TestExampleClientsTakeLargeMessages(t *testing.T) {
	t.Parallel()
	eachLanguage(t, func(t *testing.T, l language) {
		b := startBroker(t)
		sub := b.example(l.name, append(slices.Clone(l.subscribe), "a"))
		sub.says("subscribed as ")
		const messages = 8
		line := strings.Repeat("x", 1<<20-100) + "\n"
		b.example(l.name, append(slices.Clone(l.publish), "a"), reading(strings.NewReader(strings.Repeat(line, messages)))).ended(0)
		eventually(t, "all are there", func() bool { return len(sub.stdout.String()) == messages*len("a "+line) })
	})
}

// Without the arguments that they need, they say which these are.
func TestExampleClientsTellTheirUsage(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	eachLanguage(t, func(t *testing.T, l language) {
		for _, program := range [][]string{l.publish, l.subscribe, l.worker, append(slices.Clone(l.worker), "group")} {
			p := b.example(l.name, program)
			p.ended(exitUsage)
			if said := p.stderr.String(); !strings.HasPrefix(said, "usage: ") || strings.Count(said, "\n") != 1 {
				t.Errorf("%v: %s", program, said)
			}
		}
	})
}

// With TLS and a token they may do what their identity may, and without a token nothing.
func TestExampleClientsAreSecure(t *testing.T) {
	t.Parallel()
	f := newFortress(t)
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			b := *f.broker
			b.t = t
			tls := env("TINYBROKER_TLS_CA=" + f.issuer.CA)
			token := env("TINYBROKER_TOKEN_FILE=" + filepath.Join(f.issuer.Dir, "one.token"))
			topic := "in." + l.name
			sub := b.example(l.name, append(slices.Clone(l.subscribe), topic), tls, token)
			sub.says("subscribed as ")
			b.example(l.name, append(slices.Clone(l.publish), topic), tls, token, reading(strings.NewReader("1\n2\n"))).ended(0)
			sub.printed(numbered(topic, 1, 2))
			refused := b.example(l.name, append(slices.Clone(l.subscribe), "out"), tls, token)
			refused.ended(1)
			if got := refused.stderr.String(); !strings.Contains(strings.ToLower(got), "not allowed") {
				t.Errorf("it may not, and said %s", got)
			}
			nobody := b.example(l.name, append(slices.Clone(l.subscribe), topic), tls)
			nobody.ended(1)
			if got := nobody.stderr.String(); !strings.Contains(strings.ToLower(got), "no credential") {
				t.Errorf("it has no token, and said %s", got)
			}
		})
	}
}

// SIGTERM loses nothing: what runs is finished, what has not begun is at the next member, and each job is done once.
func TestExampleWorkersLeave(t *testing.T) {
	t.Parallel()
	eachLanguage(t, func(t *testing.T, l language) {
		b := startBroker(t)
		worker := append(slices.Clone(l.worker), "g", "jobs")
		leaver := b.example(l.name, worker)
		leaver.says("member ")
		const jobs = 5000
		var input strings.Builder
		for i := range jobs {
			fmt.Fprintf(&input, l.job+"\n", i)
		}
		b.pub(input.String(), "jobs")
		eventually(t, "it is at work", func() bool { return strings.Count(leaver.stdout.String(), "\n") >= 10 })
		leaver.signal(syscall.SIGTERM)
		leaver.ended(0)
		did := strings.Count(leaver.stdout.String(), "\n")
		if did == jobs {
			t.Fatal("it did everything before it left")
		}
		stayer := b.example(l.name, worker)
		eventually(t, "the rest is done", func() bool { return did+strings.Count(stayer.stdout.String(), "\n") >= jobs })
		b.hasDone("g")
		did += strings.Count(stayer.stdout.String(), "\n")
		if did != jobs {
			t.Errorf("%d jobs were done, want %d", did, jobs)
		}
		all := "\n" + leaver.stdout.String() + stayer.stdout.String()
		for i := range jobs {
			if !strings.Contains(all, fmt.Sprintf("\ndone %d attempt 1\n", i)) {
				t.Errorf("job %d was not done at its first attempt", i)
			}
		}
	})
}

// hasDone waits until nothing is left in a group.
func (b *broker) hasDone(group string) groupJSON {
	b.t.Helper()
	var row groupJSON
	eventually(b.t, "nothing is left in "+group, func() bool {
		row = b.group(group)
		return row.Pending == 0 && row.InFlight == 0
	})
	return row
}

// group is what the broker says of a group.
func (b *broker) group(name string) groupJSON {
	b.t.Helper()
	p := start(b.t, []string{"ls", "groups", "-s", b.address, "-o", "json"})
	p.ended(0)
	var all snapshotJSON
	if err := json.Unmarshal([]byte(p.stdout.String()), &all); err != nil {
		b.t.Fatal(err)
	}
	for _, row := range *all.Groups {
		if row.Group == name {
			return row
		}
	}
	b.t.Fatalf("there is no group %s: %s", name, p.stdout.String())
	return groupJSON{}
}

func (b *broker) evictions() uint64 {
	b.t.Helper()
	var report statusReport
	if err := json.Unmarshal([]byte(b.status()), &report); err != nil {
		b.t.Fatal(err)
	}
	return report.Evictions
}
