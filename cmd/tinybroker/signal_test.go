//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestServeStopsBySignal(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		b := startBroker(t)
		sub := b.sub([]string{"x"})
		b.pub("", "x", "last")
		b.signal(s)
		b.ended(0)
		sub.printed("last\n")
		sub.says("connection lost")
		if !strings.Contains(b.stderr.String(), `"msg":"stopped"`) {
			t.Errorf("after %v: %s", s, b.stderr.String())
		}
	}
}

// A broker that drains for a reader who does not read ends at once by the second signal.
func TestServeSecondSignal(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "--shutdown-timeout", "1m")
	b.sub([]string{"x"}, writing(stuckPipe(t)))
	for range 6 { // more than pipe, windows and socket buffers hold
		b.pub("", "x", strings.Repeat("x", 100_000), "-n", "20", "--max-wait", "0")
	}
	b.signal(syscall.SIGTERM)
	b.says("stopping")
	select {
	case <-b.done:
		t.Skip("everything was delivered before the signal")
	case <-time.After(200 * time.Millisecond):
	}
	b.signal(syscall.SIGINT)
	b.ended(128 + int(syscall.SIGINT))
}

// stuckPipe is a pipe that nobody reads.
func stuckPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		w.Close()
	})
	return w
}

func TestSubStopsBySignal(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		sub := b.sub([]string{"x"})
		sub.signal(s)
		sub.ended(128 + int(s))
		if sub.stderr.String() != "" {
			t.Errorf("%v: %q", s, sub.stderr.String())
		}
	}
}

// A subscriber whose reader takes nothing sits in a write that cannot be interrupted, and ends all the same.
func TestStuckSubStopsBySignal(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	sub := b.sub([]string{"x"}, writing(stuckPipe(t)))
	b.pub(strings.Repeat("x", 500_000), "x", "--max-wait", "0")
	time.Sleep(100 * time.Millisecond)
	sub.signal(syscall.SIGINT)
	sub.ended(128 + int(syscall.SIGINT))

	short := b.sub([]string{"x", "--for", "300ms"}, writing(stuckPipe(t)))
	b.pub(strings.Repeat("x", 500_000), "x", "--max-wait", "0")
	short.ended(0)
}

// A script in a loop stops with the command it runs: the command dies by the signal, it does not just exit.
func TestShellLoopStops(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	shell := exec.Command("bash", "-c", `while :; do tinybroker sub x --ready-file "$READY"; echo again; done`)
	ready := t.TempDir() + "/ready"
	var out lockedBuffer
	shell.Env = testEnv(t, "TINYBROKER_SERVER="+b.address, "READY="+ready)
	shell.Stdout = &out
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := shell.Start(); err != nil {
		t.Skip(err)
	}
	waitFile(t, ready)
	if err := syscall.Kill(-shell.Process.Pid, syscall.SIGINT); err != nil { // as a terminal does for Ctrl-C
		t.Fatal(err)
	}
	err := shell.Wait()
	if status, ok := shell.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != syscall.SIGINT {
		t.Errorf("the shell ended with %v", err)
	}
	if strings.Contains(out.String(), "again") {
		t.Error("the loop went on")
	}
}

// A signal that the process was started with ignored stays ignored, as for jobs in the background of a script.
func TestIgnoredSignalStaysIgnored(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	ready := t.TempDir() + "/ready"
	shell := exec.Command("sh", "-c", `trap '' INT; exec tinybroker sub x -n 1 --ready-file "$READY"`)
	shell.Env = testEnv(t, "TINYBROKER_SERVER="+b.address, "READY="+ready)
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	waitFile(t, ready)
	if err := shell.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	b.pub("", "x", "y")
	if err := shell.Wait(); err != nil {
		t.Errorf("the subscriber ended with %v", err)
	}
}

func TestPubInterrupted(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		pub := start(t, []string{"pub", "x", "-s", b.address, "-v"}, withStdin)
		fmt.Fprint(pub.stdin, "1\n2\n3\nhalf")
		pub.says("line 3: accepted")
		pub.signal(s)
		pub.ended(128 + int(s))
		if !strings.Contains(pub.stderr.String(), "tinybroker: interrupted: 3 confirmed, 0 unconfirmed\n") {
			t.Errorf("%v: %s", s, pub.stderr.String())
		}
	}
}

// halt stops a process until it gets a SIGCONT, and returns when all of its threads have stopped.
func (p *process) halt() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	eventually(p.t, "it has stopped", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		return err != nil || strings.Contains(string(stat), ") T ") // where there is no such file, it is hoped
	})
}

// With a broker that confirms nothing, an interrupted pub waits for two seconds, or until the second signal.
func TestPubInterruptedUnconfirmed(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	var pubs []*process
	for range 2 {
		pub := start(t, []string{"pub", "x", "-s", b.address, "-v"}, withStdin)
		fmt.Fprintln(pub.stdin, "1")
		pub.says("line 1: accepted")
		pubs = append(pubs, pub)
	}
	b.halt()
	for _, pub := range pubs {
		fmt.Fprint(pub.stdin, "2\n3\n")
		time.Sleep(50 * time.Millisecond) // to have them read
		pub.signal(syscall.SIGINT)
	}
	began := time.Now()
	time.Sleep(100 * time.Millisecond)
	pubs[1].signal(syscall.SIGINT)
	pubs[1].ended(128 + int(syscall.SIGINT))
	if took := time.Since(began); took > interruptPatience {
		t.Errorf("the second signal took %v", took)
	}
	pubs[0].ended(128 + int(syscall.SIGINT))
	if !strings.Contains(pubs[0].stderr.String(), "tinybroker: interrupted: 1 confirmed, 2 unconfirmed\n") {
		t.Error(pubs[0].stderr.String())
	}
	b.signal(syscall.SIGCONT)
}

// A command whose output nobody takes ends by one signal.
func TestStuckOutputStopsBySignal(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	lines := strings.Repeat("xxxxxxx\n", 20_000) // more than a pipe holds, in whatever form
	stuckError := func(p *process) { p.cmd.Stderr = stuckPipe(t) }
	for _, c := range []struct {
		args []string
		out  processOption
	}{
		{[]string{"pub", "x", "-o", "json", "-r", "20000"}, writing(stuckPipe(t))},
		{[]string{"pub", "x", "--tee"}, writing(stuckPipe(t))},
		{[]string{"pub", "x", "-v"}, stuckError},
		{[]string{"top", "--batch", "--interval", "250ms", "-o", "json"}, writing(fullPipe(t))},
		{[]string{"ls", "topics"}, writing(fullPipe(t))},
		{[]string{"status"}, writing(fullPipe(t))},
		{[]string{"bench", "--msgs", "1"}, writing(fullPipe(t))},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			t.Parallel()
			p := start(t, append(c.args, "-s", b.address), reading(strings.NewReader(lines)), c.out)
			time.Sleep(time.Second) // to have it sit in its write
			p.signal(syscall.SIGTERM)
			began := time.Now()
			p.ended(128 + int(syscall.SIGTERM))
			if took := time.Since(began); took > interruptPatience+10*time.Second {
				t.Errorf("it took %v", took)
			}
			if said := p.stderr.String(); strings.HasPrefix(c.args[0], "pub") && c.args[2] != "-v" && !strings.Contains(said, "tinybroker: interrupted: ") {
				t.Errorf("it says %q", said)
			}
		})
	}
}

// When its terminal is closed a member lets its command finish and acknowledges the message, and no other gets it meanwhile.
func TestHangupLetsCommandsFinish(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	dir := t.TempDir()
	sub := b.sub([]string{"jobs", "-g", "workers", "-x", `touch "$DIR/begun"; until [ -e "$DIR/go" ]; do sleep 0.05; done; touch "$DIR/done"`}, env("DIR="+dir))
	b.pub("", "jobs", "job")
	waitFile(t, dir+"/begun")
	for range 3 { // the kernel and the shell both say so
		sub.signal(syscall.SIGHUP)
		time.Sleep(2 * sameSignal)
	}
	other := start(t, []string{"sub", "jobs", "-g", "workers", "-n", "1", "--for", "1s", "-s", b.address})
	other.ended(exitShort)
	if err := os.WriteFile(dir+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	sub.ended(128 + int(syscall.SIGHUP))
	waitFile(t, dir+"/done")
	start(t, []string{"sub", "jobs", "-g", "workers", "-n", "1", "--for", "500ms", "-s", b.address}).ended(exitShort)
}

// nohup keeps a command alive.
func TestIgnoredHangup(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	ready := t.TempDir() + "/ready"
	shell := exec.Command("sh", "-c", `trap '' HUP; exec tinybroker sub x -n 1 --ready-file "$READY"`)
	shell.Env = testEnv(t, "TINYBROKER_SERVER="+b.address, "READY="+ready)
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	waitFile(t, ready)
	if err := shell.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	b.pub("", "x", "y")
	if err := shell.Wait(); err != nil {
		t.Errorf("the subscriber ended with %v", err)
	}
}

func TestIsDouble(t *testing.T) {
	const soon, late = sameSignal / 2, 2 * sameSignal
	for _, c := range []struct {
		first, second os.Signal
		after         time.Duration
		want          bool
	}{
		{syscall.SIGTERM, syscall.SIGTERM, soon, true},
		{syscall.SIGTERM, syscall.SIGTERM, late, false},
		{syscall.SIGTERM, syscall.SIGINT, soon, false},
		{syscall.SIGHUP, syscall.SIGHUP, late, true},
		{syscall.SIGTERM, syscall.SIGHUP, late, true},
		{syscall.SIGHUP, syscall.SIGTERM, soon, true},
		{syscall.SIGHUP, syscall.SIGTERM, late, false},
	} {
		if got := isDouble(c.first, c.second, c.after); got != c.want {
			t.Errorf("%v and %v after %v: %v", c.first, c.second, c.after, got)
		}
	}
}

// One signal ends what waits for a file that does not answer, be it a pipe that nobody writes to or on a disk that is away.
func TestSilentFilesDoNotHoldUpTheEnd(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	pipe := t.TempDir() + "/pipe"
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	const killed = 128 + int(syscall.SIGTERM)
	for _, c := range []struct {
		args string
		code int
	}{
		{"serve --listen 127.0.0.1:0 --auth-file " + pipe, 0},
		{"serve --listen 127.0.0.1:0 --config " + pipe, killed},
		{"status --config " + pipe, killed},
		{"status --token-file " + pipe, killed},
		{"sub x --token-file " + pipe, killed},
		{"sub x --tls-ca " + pipe, killed},
		{"bench --token-file " + pipe, killed},
		{"top --once --token-file " + pipe, killed},
	} {
		p := start(t, strings.Fields(c.args), env("TINYBROKER_SERVER="+b.address))
		var silent *os.File
		eventually(t, "it reads", func() bool { // until then there is nobody to write to
			var err error
			silent, err = os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
			return err == nil
		})
		p.signal(syscall.SIGTERM)
		p.ended(c.code)
		silent.Close()
		if got := p.stderr.String(); got != "" {
			t.Errorf("%s: %q", c.args, got)
		}
	}
	p := start(t, []string{"__complete", "pub", ""}, env("TINYBROKER_CONFIG="+pipe))
	p.ended(0)
}
