package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for what should come at once. It is never waited for when all is well.
const patience = time.Minute

// process is a real process of the program.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser // nil: none was asked for
	stdout lockedBuffer
	stderr lockedBuffer
	done   chan struct{} // closed when it has ended
	err    error
}

// lockedBuffer collects output while it is read.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// testEnv is an environment in which nothing is configured.
func testEnv(t *testing.T, extra ...string) []string {
	var env []string
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, envPrefix) && !strings.HasPrefix(pair, "XDG_CONFIG_HOME=") {
			env = append(env, pair)
		}
	}
	return append(append(env, "XDG_CONFIG_HOME="+t.TempDir()), extra...)
}

type processOption func(*process)

// withStdin makes a pipe of standard input; it ends when the process's stdin is closed.
func withStdin(p *process) {
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		p.t.Fatal(err)
	}
}

func reading(r io.Reader) processOption { return func(p *process) { p.cmd.Stdin = r } }
func writing(w io.Writer) processOption { return func(p *process) { p.cmd.Stdout = w } }
func env(pairs ...string) processOption {
	return func(p *process) { p.cmd.Env = append(p.cmd.Env, pairs...) }
}

// called starts the test binary as another program of TestMain.
func called(name string) processOption {
	return func(p *process) {
		path, err := exec.LookPath(name)
		if err != nil {
			p.t.Fatal(err)
		}
		p.cmd.Path, p.cmd.Args[0] = path, name
	}
}

// start starts the program. It is killed at the end of the test if it still runs then.
func start(t *testing.T, args []string, options ...processOption) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command("tinybroker", args...), done: make(chan struct{})}
	p.cmd.Env = testEnv(t)
	p.cmd.Stderr = &p.stderr
	for _, o := range options {
		o(p)
	}
	if p.cmd.Stdout == nil {
		p.cmd.Stdout = &p.stdout
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.done
		if t.Failed() && p.stderr.String() != "" {
			t.Logf("%s\n%s", strings.Join(p.cmd.Args, " "), p.stderr.String())
		}
	})
	return p
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// end waits for the end and returns the exit code, or 128 and the signal as a shell does.
func (p *process) end() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("%s has not ended\n%s", strings.Join(p.cmd.Args, " "), p.stderr.String())
	}
	if exit, ok := errors.AsType[*exec.ExitError](p.err); ok {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int(status.Signal())
		}
		return exit.ExitCode()
	}
	if p.err != nil {
		p.t.Fatal(p.err)
	}
	return 0
}

// ended waits for the end and checks the exit code.
func (p *process) ended(want int) {
	p.t.Helper()
	if got := p.end(); got != want {
		p.t.Errorf("%s: exit code %d, want %d\n%s", strings.Join(p.cmd.Args, " "), got, want, p.stderr.String())
	}
}

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
	}
}

func (p *process) says(text string) {
	p.t.Helper()
	eventually(p.t, "says "+text, func() bool { return strings.Contains(p.stderr.String(), text) })
}

func (p *process) printed(text string) {
	p.t.Helper()
	eventually(p.t, "printed "+text, func() bool { return p.stdout.String() == text })
}

// broker is a running serve.
type broker struct {
	*process
	address string
}

// startBroker starts a broker on a free port of its own, or where args say.
func startBroker(t *testing.T, args ...string) *broker {
	t.Helper()
	file := filepath.Join(t.TempDir(), "addr")
	args = append([]string{"serve", "--addr-file", file, "--listen", "127.0.0.1:0"}, args...)
	b := &broker{process: start(t, args)}
	b.address = strings.TrimSpace(waitFile(t, file))
	return b
}

func waitFile(t *testing.T, path string) string {
	t.Helper()
	var data []byte
	eventually(t, path+" exists", func() bool {
		var err error
		data, err = os.ReadFile(path)
		return err == nil
	})
	return string(data)
}

// sub starts a subscriber and returns once it is subscribed.
func (b *broker) sub(args []string, options ...processOption) *process {
	b.t.Helper()
	ready := filepath.Join(b.t.TempDir(), "ready")
	p := start(b.t, append([]string{"sub", "-s", b.address, "--ready-file", ready}, args...), options...)
	waitFile(b.t, ready)
	return p
}

// pub publishes and returns once everything is confirmed.
func (b *broker) pub(stdin string, args ...string) {
	b.t.Helper()
	start(b.t, append([]string{"pub", "-s", b.address}, args...), reading(strings.NewReader(stdin))).ended(0)
}

// status is what the broker says of itself, in JSON.
func (b *broker) status() string {
	b.t.Helper()
	p := start(b.t, []string{"status", "-s", b.address, "-o", "json", "--connect-timeout", "30s"})
	p.ended(0)
	return p.stdout.String()
}

// memory is how many bytes of messages it holds.
func (b *broker) memory() int64 {
	b.t.Helper()
	var status statusReport
	if err := json.Unmarshal([]byte(b.status()), &status); err != nil {
		b.t.Fatal(err)
	}
	return status.MemoryBytes
}
