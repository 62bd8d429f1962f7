//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// hanging is a command that goes on for ever, and so does what it has started. It leaves the ids of both in dir.
func hanging(dir string) string {
	return fmt.Sprintf(`sleep 600 & echo $! > %[1]s/child; echo $$ > %[1]s/tmp; mv %[1]s/tmp %[1]s/command; sleep 600`, dir)
}

// wantGone waits until the processes of a hanging command have ended.
func wantGone(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"command", "child"} {
		pid, err := strconv.Atoi(strings.TrimSpace(readFile(t, filepath.Join(dir, name))))
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the "+name+" has ended", func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err != nil && syscall.Kill(pid, 0) != nil || strings.Contains(string(stat), ") Z ")
		})
	}
}

// When the grace is over, commands that still run are ended, with all they have started, and their messages are as if they
// had not been delivered.
func TestGraceIsOver(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	for _, c := range []struct {
		name, before string
		grace        time.Duration
	}{
		{"it ends when told", "", 300 * time.Millisecond},
		{"it does not", "trap '' TERM; ", 300 * time.Millisecond},
		{"no grace", "", 0},
	} {
		dir := t.TempDir()
		worker := b.member([]string{"x", "--grace", c.grace.String(), "-x", c.before + hanging(dir)})
		b.pub("", "x", c.name)
		waitFile(t, filepath.Join(dir, "command"))
		worker.signal(syscall.SIGTERM)
		told := time.Now()
		worker.ended(128 + int(syscall.SIGTERM))
		if took := time.Since(told); took < c.grace || took > c.grace+killPatience+2*time.Second {
			t.Errorf("%s: it took %v", c.name, took)
		}
		if got, want := worker.stderr.String(), "command ended for message 1 (x): it took longer than --grace\n"; got != want {
			t.Errorf("%s: %q", c.name, got)
		}
		wantGone(t, dir)
		next := b.member([]string{"x", "-n", "1", "--format", "{{.Attempt}} {{.Payload}}"})
		next.ended(0)
		next.printed("1 " + c.name + "\n")
	}
}

// The second signal ends everything at once.
func TestSecondSignalKillsCommands(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	dir := t.TempDir()
	worker := b.member([]string{"x", "--grace", "10m", "-x", "trap '' TERM INT; " + hanging(dir)})
	b.pub("", "x", "y")
	waitFile(t, filepath.Join(dir, "command"))
	worker.signal(syscall.SIGINT)
	select {
	case <-worker.done:
		t.Fatal("it does not wait for the command")
	case <-time.After(100 * time.Millisecond):
	}
	worker.signal(syscall.SIGTERM)
	told := time.Now()
	worker.ended(128 + int(syscall.SIGTERM))
	if took := time.Since(told); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
	wantGone(t, dir)
	next := b.member(append([]string{"x", "-n", "1"}, attempts...))
	next.ended(0)
	next.printed("1 y\n") // it has left cleanly before
}

// Ctrl-C in a terminal is for sub, not for the command.
func TestTerminalInterruptSparesTheCommand(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	ready := t.TempDir() + "/ready"
	worker := startOnTerminal(t, []string{"sub", "x", "-g", "g", "-s", b.address, "--ready-file", ready, "-x", "echo begun; sleep 0.5; echo finished"})
	waitFile(t, ready)
	b.pub("", "x", "y")
	worker.shows("begun\r\n")
	if _, err := worker.tty.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	worker.ended(128 + int(syscall.SIGINT))
	worker.shows("finished\r\n")
	b.wantBooks("g", 1, 0)
}

// Lines of commands that run at the same time do not mix, and each gets its end.
func TestOutputOfParallelCommands(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	const n = 40
	p := b.sub([]string{"x", "-n", strconv.Itoa(n), "--exec-parallel", "8", "-x",
		`read n; for i in 1 2 3 4; do printf "$n "; printf "is $n\n"; printf "e$n " >&2; printf "is $n\n" >&2; done; printf "last $n"`})
	b.pub(seq(1, n), "x")
	p.ended(0)
	for _, c := range []struct{ text, format string }{{p.stdout.String(), "%d is %d"}, {p.stderr.String(), "e%d is %d"}} {
		count := 0
		for line := range strings.Lines(c.text) {
			var a, b int
			if strings.HasPrefix(line, "last ") {
				continue
			}
			if _, err := fmt.Sscanf(line, c.format+"\n", &a, &b); err != nil || a != b {
				t.Errorf("line %q", line)
			}
			count++
		}
		if count != 4*n {
			t.Errorf("%d lines", count)
		}
	}
	if got := strings.Count(p.stdout.String(), "last "); got != n || !strings.HasSuffix(p.stdout.String(), "\n") {
		t.Errorf("%d last lines", got)
	}
}

// What a command prints and cannot be written is no fault of the message, though the command dies of it. What it says on standard error
// is not worth a message at all.
func TestCommandOnFullDisk(t *testing.T) {
	t.Parallel()
	full := fullDisk(t)
	b := startBroker(t)
	for _, command := range []string{"echo little", "seq 200000", "echo a; sleep 0.2; echo b; sleep 0.2; echo c"} {
		worker := b.member([]string{"x", "-x", command}, writing(full))
		b.pub("", "x", "y")
		worker.ended(exitIO)
		if got := worker.stderr.String(); got != "tinybroker: write standard output: no space left on device\n" {
			t.Errorf("%s: %q", command, got)
		}
		next := b.member(append([]string{"x", "-n", "1"}, attempts...))
		next.ended(0)
		next.printed("1 y\n")
	}
	worker := b.member([]string{"x", "-n", "1", "-x", "seq 200000 >&2; echo done"}, func(p *process) { p.cmd.Stderr = full })
	b.pub("", "x", "y")
	worker.ended(0)
	worker.printed("done\n")
}

func TestLineWriter(t *testing.T) {
	full := errors.New("full")
	for _, c := range []struct {
		name     string
		complete bool
		writes   []string
		want     []string
	}{
		{"nothing", true, nil, nil},
		{"pieces of a line", false, []string{"a", "b", "c\n"}, []string{"abc\n"}},
		{"lines go at once", false, []string{"a\nb\nc"}, []string{"a\nb\n", "c"}},
		{"the last one gets an end", true, []string{"a\nb"}, []string{"a\n", "b\n"}},
		{"it has one", true, []string{"a\n"}, []string{"a\n"}},
		{"empty lines", true, []string{"\n", "\n"}, []string{"\n", "\n"}},
		{"too long", false, []string{strings.Repeat("x", longestLine), "y", "z\n"}, []string{strings.Repeat("x", longestLine) + "y", "z\n"}},
	} {
		var got []string
		w := lineWriter{complete: c.complete, write: func(lines []byte) error {
			got = append(got, string(lines))
			return nil
		}}
		for _, text := range c.writes {
			if n, err := w.Write([]byte(text)); n != len(text) || err != nil {
				t.Errorf("%s: %d, %v", c.name, n, err)
			}
		}
		if err := w.close(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	w := lineWriter{write: func([]byte) error { return full }}
	if _, err := w.Write([]byte("a")); err != nil {
		t.Error(err)
	}
	if _, err := w.Write([]byte("\nb")); !errors.Is(err, full) {
		t.Error(err)
	}
	w.write = func([]byte) error { t.Error("it goes on"); return nil }
	if err := w.close(); !errors.Is(err, full) {
		t.Error(err)
	}
}

func TestLastWords(t *testing.T) {
	var l lastWords
	for _, text := range []string{"", "first\n", "second\n\n \t\n"} {
		l.note([]byte(text))
	}
	if got := l.String(); got != "second" {
		t.Errorf("%q", got)
	}
	l.note([]byte("x\xff" + strings.Repeat("y", 1000)))
	if got := l.String(); len(got) > longestReason+2 || !strings.HasPrefix(got, "x\uFFFDy") {
		t.Errorf("%q", got)
	}
}

// What a publisher sends cannot reach any variable but those that describe the message, nor keep a command from starting.
func TestMessageEnv(t *testing.T) {
	cleanEnvironment(t)
	t.Setenv("TINYBROKER_SERVER", "kept")
	t.Setenv("TINYBROKER_HEADER_OLD", "of an outer command")
	t.Setenv("TINYBROKER_KEY", "of an outer command")
	huge := strings.Repeat("h", maxMessageEnv)
	for _, c := range []struct {
		name     string
		message  core.Message
		want     []string // in addition
		complete bool
	}{
		{"plain", core.Message{Topic: "a.b", Key: "k", PublishTime: time.Unix(0, 5)},
			[]string{"TINYBROKER_HEADERS={}", "TINYBROKER_KEY=k", "TINYBROKER_TIME=1970-01-01T00:00:00.000000005Z", "TINYBROKER_TOPIC=a.b"}, true},
		{"no time", core.Message{Topic: "a"}, []string{"TINYBROKER_HEADERS={}", "TINYBROKER_KEY=", "TINYBROKER_TIME=", "TINYBROKER_TOPIC=a"}, true},
		{"hostile", core.Message{Topic: "a", Key: "x\x00TINYBROKER_EVIL=1\nLD_PRELOAD=1", Headers: map[string]string{
			"": "none", "LD_PRELOAD": "/x", "a=b\nc\x00": "v\x00w\n", "ä": "é", "A b": "second", "A-b": "first",
		}}, []string{
			"TINYBROKER_HEADERS=" + `{"":"none","A b":"second","A-b":"first","LD_PRELOAD":"/x","a=b\nc\u0000":"v\u0000w\n","ä":"é"}`,
			"TINYBROKER_HEADER_=none", "TINYBROKER_HEADER_A_B=second", "TINYBROKER_HEADER_A_B_C_=v\uFFFDw\n", "TINYBROKER_HEADER_LD_PRELOAD=/x",
			"TINYBROKER_HEADER__=é", "TINYBROKER_KEY=x\uFFFDTINYBROKER_EVIL=1\nLD_PRELOAD=1", "TINYBROKER_TIME=", "TINYBROKER_TOPIC=a",
		}, true},
		{"too large a key", core.Message{Topic: "a", Key: huge}, []string{"TINYBROKER_HEADERS={}", "TINYBROKER_TIME=", "TINYBROKER_TOPIC=a"}, false},
		{"too large a header", core.Message{Topic: "a", Headers: map[string]string{"a": "1", "b": huge, "c": "3"}},
			[]string{"TINYBROKER_HEADER_A=1", "TINYBROKER_HEADER_C=3", "TINYBROKER_KEY=", "TINYBROKER_TIME=", "TINYBROKER_TOPIC=a"}, false},
	} {
		got, complete := messageEnv("g", &rpc.Delivery{Message: c.message, Sequence: 7, Attempt: 2})
		got = slices.DeleteFunc(got, func(pair string) bool {
			return !strings.HasPrefix(pair, envPrefix) || strings.HasSuffix(pair, "=") && os.Getenv(strings.TrimSuffix(pair, "=")) == "" && !isMessageVariable(strings.TrimSuffix(pair, "="))
		})
		slices.Sort(got)
		want := append([]string{"TINYBROKER_ATTEMPT=2", "TINYBROKER_EXEC=1", "TINYBROKER_GROUP=g", "TINYBROKER_SEQ=7", "TINYBROKER_SERVER=kept"}, c.want...)
		slices.Sort(want)
		if !slices.Equal(got, want) || complete != c.complete {
			t.Errorf("%s: complete is %v\ngot  %q\nwant %q", c.name, complete, got, want)
		}
	}
}

// The largest message there can be still reaches its command.
func TestExecOfLargeMessage(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	p := b.sub([]string{"x", "-n", "1", "-x", `wc -c; echo "[$TINYBROKER_KEY][${TINYBROKER_HEADER_BIG+set}][$TINYBROKER_HEADER_SMALL]"`})
	line := fmt.Sprintf(`{"topic":"x","key":"%s","headers":{"big":"%s","small":"s"},"data":"%s"}`+"\n",
		strings.Repeat("k", 200_000), strings.Repeat("b", 200_000), strings.Repeat("p", 600_000))
	b.pub(line, "-i", "json")
	p.ended(0)
	p.printed("600000\n[][][s]\n")
	p.says("message 1 (x): what is too large for the environment is left out\n")
}

func TestQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q quota
		q.open(2)
		for range 2 {
			if !q.begin() {
				t.Fatal("two are wanted")
			}
		}
		third := make(chan bool, 2)
		go func() { third <- q.begin() }()
		go func() { third <- q.begin() }()
		synctest.Wait()
		if len(third) > 0 {
			t.Fatal("a third one may begin while it is not known how the two end")
		}
		if q.end(false) { // one is still wanted in its place
			t.Error("it failed, and was the last?")
		}
		if !<-third {
			t.Error("none takes its place")
		}
		if q.end(true) {
			t.Error("one of two was the last")
		}
		if !q.end(true) {
			t.Error("two of two were not the last")
		}
		if <-third || q.begin() {
			t.Error("there may be more than two")
		}

		var all quota
		all.open(0)
		for range 100 {
			if !all.begin() {
				t.Fatal("any number is wanted")
			}
		}
		if all.end(true) {
			t.Error("there is a last one")
		}

		var closed quota
		closed.open(1)
		closed.begin()
		go func() { third <- closed.begin() }()
		synctest.Wait()
		closed.close()
		if <-third {
			t.Error("one may begin after the end")
		}
	})
}

func TestIdleTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		fired := make(chan time.Duration, 10)
		idle := idleTimer{after: time.Second, fire: func() { fired <- time.Since(start) }}
		idle.touch() // before the start nothing is measured
		time.Sleep(5 * time.Second)
		idle.start()
		idle.start()
		time.Sleep(900 * time.Millisecond)
		idle.touch()
		idle.begin()
		idle.begin()
		time.Sleep(time.Minute)
		idle.end()
		time.Sleep(time.Minute)
		if len(fired) > 0 {
			t.Fatal("it is idle while something is going on")
		}
		idle.end()
		time.Sleep(time.Minute)
		if got, want := <-fired, 5*time.Second+900*time.Millisecond+2*time.Minute+time.Second; got != want || len(fired) > 0 {
			t.Errorf("idle after %v, want %v", got, want)
		}
		never := idleTimer{fire: func() { t.Error("fired") }}
		never.start()
		never.touch()
		time.Sleep(time.Hour)
	})
}

// When this process is to end at once, it starts no other, and one that was killed with it has not failed.
func TestKilledChildren(t *testing.T) {
	var c children
	var stderr lockedBuffer
	r := runner{command: "echo begun >&2; sleep 600", children: &c, subSession: &subSession{notices: &notices{w: &stderr}}}
	ended := make(chan outcome)
	go func() { ended <- r.runCommand(t.Context(), &rpc.Delivery{}) }()
	eventually(t, "it runs", func() bool { return stderr.String() == "begun\n" })
	c.kill()
	for range 2 {
		if o := <-ended; !errors.Is(o.failed, errKilled) {
			t.Errorf("%+v", o)
		}
		go func() { ended <- r.runCommand(t.Context(), &rpc.Delivery{}) }()
	}
	<-ended
}
