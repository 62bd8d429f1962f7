//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// books are what the broker says of a group.
func (b *broker) books(group string) core.GroupStats {
	b.t.Helper()
	c, err := rpc.Dial(b.t.Context(), rpc.ClientOptions{Target: b.address})
	if err != nil {
		b.t.Fatal(err)
	}
	defer c.Close()
	snapshot, err := c.Observe(b.t.Context(), core.Query{View: core.ViewGroups, Filter: group})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, g := range snapshot.Groups {
		if g.Name == group {
			return g
		}
	}
	b.t.Fatalf("there is no group %s", group)
	return core.GroupStats{}
}

// wantBooks waits until nothing waits and nothing is in flight, and checks what became of the messages.
func (b *broker) wantBooks(group string, acked, deadLetters uint64) core.GroupStats {
	b.t.Helper()
	var g core.GroupStats
	eventually(b.t, "nothing is left in group "+group, func() bool {
		g = b.books(group)
		return g.Pending == 0 && g.InFlight == 0
	})
	if g.Acked != acked || g.DeadLetters != deadLetters || g.Dropped != 0 {
		b.t.Errorf("%d acknowledged, %d dead letters, %d dropped; want %d, %d, 0", g.Acked, g.DeadLetters, g.Dropped, acked, deadLetters)
	}
	return g
}

// seq is n lines: first, first+1, …
func seq(first, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, first+i)
	}
	return b.String()
}

// attempts is for subscribers that print the attempt and the first word of each message.
var attempts = []string{"--format", `{{.Attempt}} {{printf "%.6s" .Payload}}`}

// member starts a member of group g and returns once it has joined.
func (b *broker) member(args []string, options ...processOption) *process {
	b.t.Helper()
	return b.sub(append([]string{"-g", "g"}, args...), options...)
}

// lines are the lines printed so far.
func (p *process) lines() []string {
	return strings.Split(strings.TrimSuffix(p.stdout.String(), "\n"), "\n")
}

// numbers are the lines printed so far by all of these, as numbers.
func numbers(t *testing.T, processes ...*process) (all []int) {
	t.Helper()
	for _, p := range processes {
		for line := range strings.Lines(p.stdout.String()) {
			n, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, n)
		}
	}
	return all
}

// wantOnce waits until these have printed n numbers, and checks that each of 1 to n was printed once.
func wantOnce(t *testing.T, n int, processes ...*process) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d numbers are there", n), func() bool { return len(numbers(t, processes...)) >= n })
	all := numbers(t, processes...)
	slices.Sort(all)
	for i, got := range all {
		if got != i+1 {
			t.Fatalf("number %d of %d is %d", i+1, len(all), got)
		}
	}
}

func TestTwoWorkersShare(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	workers := []*process{b.member([]string{"job.*", "--max-in-flight", "4"}), b.member([]string{"job.*", "--max-in-flight", "4"})}
	watcher := b.sub([]string{"job.*"})
	b.pub(seq(1, 200), "job.a")
	wantOnce(t, 200, workers...)
	for i, w := range workers {
		if n := len(numbers(t, w)); n < 20 {
			t.Errorf("worker %d has %d of 200", i+1, n)
		}
	}
	wantOnce(t, 200, watcher)
	b.wantBooks("g", 200, 0)
}

// fullPipe is a pipe that nobody reads and that takes nothing any more.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	w := stuckPipe(t)
	if err := w.SetWriteDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the pipe is not full: %v", err)
	}
	return w
}

// What a killed worker had in flight is at the others at once, long before the ack deadline.
func TestKilledWorker(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "--ack-deadline", "60s")
	stuck := b.member([]string{"x", "--max-in-flight", "20"}, writing(fullPipe(t)))
	b.pub(seq(1, 100), "x")
	eventually(t, "it holds 20", func() bool { return b.books("g").InFlight == 20 })
	other := b.member(append([]string{"x", "--max-in-flight", "10"}, attempts...))
	eventually(t, "all others are done", func() bool { return b.books("g").Acked == 80 })
	stuck.signal(syscall.SIGKILL)
	killed := time.Now()
	eventually(t, "the other has all", func() bool { return len(other.lines()) == 100 })
	if took := time.Since(killed); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
	all := map[string]bool{}
	for i, line := range other.lines() {
		attempt, number, _ := strings.Cut(line, " ")
		all[number] = true
		if want := fmt.Sprint(1 + i/80); attempt != want {
			t.Errorf("line %d: %s, want attempt %s", i+1, line, want)
		}
	}
	if g := b.wantBooks("g", 100, 0); len(all) != 100 || g.Redelivered != 20 {
		t.Errorf("%d numbers, %d redelivered; want 100, 20", len(all), g.Redelivered)
	}
}

// Messages come back at their old place in the queue.
func TestReturnedMessagesKeepTheirPlace(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	first := b.member([]string{"x", "--max-in-flight", "3"}, writing(fullPipe(t)))
	b.pub(seq(1, 10), "x")
	eventually(t, "it holds three", func() bool { return b.books("g").InFlight == 3 })
	first.signal(syscall.SIGKILL)
	<-first.done
	second := b.member(append([]string{"x", "-n", "10"}, attempts...))
	second.ended(0)
	second.printed("2 1\n2 2\n2 3\n1 4\n1 5\n1 6\n1 7\n1 8\n1 9\n1 10\n")

	// One that failed comes after its pause; the others keep their order.
	failing := b.sub([]string{"y", "-g", "h", "-n", "10", "-x", `read n; [ $n$TINYBROKER_ATTEMPT != 21 ] && echo $n $TINYBROKER_ATTEMPT`})
	b.pub(seq(1, 10), "y")
	failing.ended(0)
	if got := failing.stdout.String(); got != "1 1\n3 1\n4 1\n5 1\n6 1\n7 1\n8 1\n9 1\n10 1\n2 2\n" {
		t.Errorf("%q", got)
	}
}

// All members are stopped and started again, one after the other and then all at once, while messages keep coming: each
// number is printed once.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "--group-linger", "1m")
	var all []*process
	join := func() *process {
		p := b.member([]string{"job"})
		all = append(all, p)
		return p
	}
	leave := func(p *process) {
		p.ended(128 + int(syscall.SIGTERM))
		if got := p.stderr.String(); got != "" {
			t.Errorf("%q", got)
		}
	}
	members := []*process{join(), join(), join()}
	pub := start(t, []string{"pub", "job", "-s", b.address, "--max-wait", "1m"}, withStdin)
	n := 0
	publish := func(count int) {
		fmt.Fprint(pub.stdin, seq(n+1, count))
		n += count
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for tick := time.Tick(5 * time.Millisecond); ; <-tick {
			publish(10)
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	for i, old := range members {
		time.Sleep(100 * time.Millisecond)
		old.signal(syscall.SIGTERM)
		leave(old)
		members[i] = join()
	}
	time.Sleep(100 * time.Millisecond)
	for _, old := range members {
		old.signal(syscall.SIGTERM)
	}
	for _, old := range members {
		leave(old)
	}
	close(stop)
	<-stopped
	publish(500)
	eventually(t, "messages wait for members", func() bool { return b.books("g").Pending >= 500 })
	join()
	join()
	publish(500)
	pub.stdin.Close()
	pub.ended(0)
	wantOnce(t, n, all...)
	if g := b.wantBooks("g", uint64(n), 0); g.Redelivered != 0 || g.Expired != 0 {
		t.Errorf("%d redelivered, %d expired", g.Redelivered, g.Expired)
	}
}

// Without members a group is bounded; then it goes, and that is counted and told.
func TestGroupWithoutMembers(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "--group-linger", "4s", "--group-capacity", "100")
	events := b.sub([]string{"$tb.event.group.*", "--format", "{{.Topic}} {{.Payload}}"})
	b.member([]string{"x", "-n", "1"})
	b.pub("", "x", "the one")
	b.pub(seq(1, 100), "x", "--max-wait", "0")
	p := start(t, []string{"pub", "x", "y", "-s", b.address, "--max-wait", "0"})
	p.ended(exitRetry)
	events.printed("$tb.event.group.created {\"group\":\"g\"}\n$tb.event.group.expired {\"group\":\"g\",\"dropped\":100}\n")
	if status := b.status(); !strings.Contains(status, `"memory_bytes":0,`) {
		t.Error(status)
	}
}

// A message that nobody can handle ends as a dead letter, and holds nobody up.
func TestPoison(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "--max-attempts", "2")
	letters := b.sub([]string{"$tb.dlq.g", "-o", "json", "-n", "1"})
	worker := b.member([]string{"job", "-x", `read n; echo $n $TINYBROKER_ATTEMPT; [ $n != 3 ] || { echo "cannot do $n" >&2; exit 4; }`})
	b.pub(seq(1, 20), "job", "-H", "trace:17")
	letters.ended(0)
	if got := len(worker.lines()); got != 21 {
		t.Errorf("%d commands ran before the message was given up, want 21:\n%s", got, worker.stdout.String())
	}
	if got := worker.stdout.String(); !strings.HasSuffix(got, "\n20 1\n3 2\n") {
		t.Errorf("the others waited: %q", got)
	}
	for _, want := range []string{
		`{"topic":"$tb.dlq.g","seq":1,`, `"tinybroker-attempts":"2"`, `"tinybroker-group":"g"`, `"tinybroker-topic":"job"`,
		`"tinybroker-reason":"max_attempts: exit status 4: cannot do 3"`, `"trace":"17"`, `"data":"3"}`,
	} {
		if !strings.Contains(letters.stdout.String(), want) {
			t.Errorf("no %s in %s", want, letters.stdout.String())
		}
	}
	worker.says("command failed for message 21 (job), attempt 2 of 2: exit status 4; out of attempts\n")
	b.wantBooks("g", 19, 1)
}

// As many commands as asked for run at once, and nothing waits behind a busy one.
func TestExecParallel(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	dir := t.TempDir()
	// Each of the first four waits until all four are there.
	together := `read n; touch ` + dir + `/$n; [ $n -gt 4 ] || while [ $(ls ` + dir + ` | wc -l) -lt 4 ]; do sleep 0.01; done; echo $n`
	four := b.member([]string{"x", "--exec-parallel", "4", "-x", together})
	b.pub(seq(1, 30), "x")
	wantOnce(t, 30, four)
	four.signal(syscall.SIGTERM)
	four.end()

	busy := b.member([]string{"x", "-x", "read n; echo $n; [ $n != 1 ] || sleep 60"})
	b.pub("", "x", "1")
	busy.printed("1\n")
	free := b.member([]string{"x", "-x", "cat"}) // no line end: nothing adds one
	b.pub(seq(2, 8), "x")
	free.printed("23456789")
	eventually(t, "only the busy one has something", func() bool {
		g := b.books("g")
		return g.InFlight == 1 && g.Pending == 0
	})
}

// Two members with --count take exactly as many and nobody loses a message or an attempt.
func TestGroupCount(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	b.member([]string{"x", "-n", "1"}) // makes the group
	b.pub("", "x", "0")
	eventually(t, "it has gone", func() bool { return b.books("g").Members == 0 })
	b.pub(seq(1, 100), "x")
	for _, args := range [][]string{
		{"--max-in-flight", "64"},
		{"--max-in-flight", "64", "-x", "cat; echo"},
		{"--max-in-flight", "64", "-x", "cat; echo", "--exec-parallel", "3"},
		nil,
	} {
		p := b.member(append([]string{"x", "-n", "10"}, args...))
		p.ended(0)
		if got := len(p.lines()); got != 10 {
			t.Errorf("%q: %d lines", args, got)
		}
	}
	if g := b.books("g"); g.Acked != 41 || g.Pending != 60 || g.InFlight != 0 {
		t.Errorf("%d acknowledged, %d wait, %d in flight; want 41, 60, 0", g.Acked, g.Pending, g.InFlight)
	}
	rest := b.member(append([]string{"x", "-n", "60"}, attempts...))
	rest.ended(0)
	for i, line := range rest.lines() {
		if want := fmt.Sprintf("1 %d", i+41); line != want {
			t.Fatalf("%q, want %q", line, want)
		}
	}
}

// What is beyond --count is at another member at once, and as if it had not been delivered.
func TestGroupCountReleasesAtOnce(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	ten := b.member([]string{"x", "-n", "10", "--max-in-flight", "64"})
	other := b.member(append([]string{"x", "--max-in-flight", "1"}, attempts...))
	began := time.Now()
	b.pub(seq(1, 70), "x")
	ten.ended(0)
	eventually(t, "the other has the rest", func() bool { return len(other.lines()) == 60 })
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	for _, line := range other.lines() {
		if !strings.HasPrefix(line, "1 ") {
			t.Errorf("it counts as delivered before: %s", line)
		}
	}
	b.wantBooks("g", 70, 0)
}

// At a SIGTERM the running command finishes and counts; what was not begun with is at another member meanwhile.
func TestTermOfAWorker(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	release := t.TempDir() + "/release"
	worker := b.member([]string{"x", "--max-in-flight", "5", "-x", "cat; echo; while [ ! -e " + release + " ]; do sleep 0.01; done; echo done"})
	b.pub(seq(1, 5), "x")
	worker.printed("1\n")
	worker.signal(syscall.SIGTERM)
	other := b.member(append([]string{"x"}, attempts...))
	other.printed("1 2\n1 3\n1 4\n1 5\n")
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	worker.ended(128 + int(syscall.SIGTERM))
	worker.printed("1\ndone\n")
	if got := worker.stderr.String(); got != "" {
		t.Errorf("%q", got)
	}
	b.wantBooks("g", 5, 0)
	other.printed("1 2\n1 3\n1 4\n1 5\n")
}

// A worker that cannot write gives its messages back; it was not their fault.
func TestWorkerWithFullDisk(t *testing.T) {
	t.Parallel()
	full := fullDisk(t)
	b := startBroker(t)
	for _, args := range [][]string{nil, {"-x", "cat; echo"}, {"-x", "cat; echo", "--exec-parallel", "2"}} {
		worker := b.member(append([]string{"x"}, args...), writing(full))
		b.pub(seq(1, 3), "x")
		worker.ended(exitIO)
		if got := worker.stderr.String(); got != "tinybroker: write standard output: no space left on device\n" {
			t.Errorf("%q: %q", args, got)
		}
		rest := b.member(append([]string{"x", "-n", "3"}, attempts...))
		rest.ended(0)
		lines := rest.lines()
		slices.Sort(lines)
		if !slices.Equal(lines, []string{"1 1", "1 2", "1 3"}) {
			t.Errorf("%q: the rest is %q", args, lines)
		}
	}
	b.wantBooks("g", 9, 0)
}

// After a restart of the broker, members are in their group again, with all patterns and settings.
func TestGroupSurvivesBrokerRestart(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	args := []string{"job.*", "task.*", "--ack-deadline", "20s", "--max-attempts", "3", "--max-in-flight", "5", "-v"}
	members := []*process{b.member(args), b.member(args)}
	b.signal(syscall.SIGKILL)
	<-b.done
	for _, m := range members {
		m.says("connection lost")
	}
	startBroker(t, "--listen", b.address)
	for _, m := range members {
		m.says("back in group g after ")
		m.says("the broker was restarted: what it held is lost\n")
		if n := strings.Count(m.stderr.String(), "in group g: ack explicit, max_in_flight 5, ack_deadline 20s, max_attempts 3, overflow reject, capacity 10000\n"); n != 2 {
			t.Errorf("joined %d times with these settings:\n%s", n, m.stderr.String())
		}
	}
	b.pub(seq(1, 100), "job.1")
	b.pub(seq(101, 100), "task.1")
	wantOnce(t, 200, members...)
	for i, m := range members {
		all := numbers(t, m)
		if slices.Max(all) <= 100 || slices.Min(all) > 100 {
			t.Errorf("member %d has %v", i+1, all)
		}
	}
	b.wantBooks("g", 200, 0)
}

// A worker that is stopped loses nothing: what it does not take goes to the others, and it comes back.
func TestStalledWorker(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "--send-timeout", "500ms")
	frozen := b.member(append([]string{"x"}, attempts...))
	quits := b.member(append([]string{"x", "--exit-on-evict"}, attempts...))
	other := b.member(append([]string{"x"}, attempts...))
	frozen.signal(syscall.SIGSTOP)
	quits.signal(syscall.SIGSTOP)
	var text strings.Builder
	for i := range 150 {
		// A second one does not fit into the window of the connection, so that two are enough to find nobody reading.
		fmt.Fprintf(&text, "%d %s\n", i+1, strings.Repeat("x", 900_000))
	}
	b.pub(text.String(), "x", "--max-wait", "30s")
	eventually(t, "the other has all", func() bool { return len(other.lines()) >= 150 })
	b.wantBooks("g", 150, 0)
	frozen.signal(syscall.SIGCONT)
	quits.signal(syscall.SIGCONT)
	frozen.says("evicted by broker: nothing was read for too long, after ")
	frozen.says("; what was in flight goes to other members of group g\n")
	eventually(t, "it is back", func() bool { return b.books("g").Members == 2 })
	quits.ended(exitRetry)
}

// A publisher is held back by a full group as long as it asked for, and then told.
func TestPubWaitsForAGroup(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "--group-capacity", "10")
	maker := b.member([]string{"x"})
	maker.signal(syscall.SIGTERM)
	maker.end()
	b.pub(seq(1, 10), "x", "--max-wait", "0")
	began := time.Now()
	p := start(t, []string{"pub", "x", "y", "-s", b.address, "--max-wait", "700ms"})
	p.ended(exitRetry)
	if took := time.Since(began); took < 700*time.Millisecond {
		t.Errorf("it waited for %v", took)
	}
	if got := p.stderr.String(); !strings.Contains(got, `consumer group is full: group "g" holds 10 messages`) || !strings.Contains(got, "hint: start more members") {
		t.Errorf("%q", got)
	}
	// With enough patience, everything gets through a small queue.
	p = start(t, []string{"pub", "x", "-s", b.address, "--max-wait", "1m"}, reading(strings.NewReader(seq(11, 990))))
	worker := b.member([]string{"x"})
	p.ended(0)
	wantOnce(t, 1000, worker)
}
