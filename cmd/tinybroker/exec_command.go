package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// killPatience is how long a command that was told to end may take, and how long its output is awaited after its end: what it has left
// running in the background may hold it open.
const killPatience = time.Second

// Exit codes of a shell's command that mean more than a failure.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// children are processes that must not outlive this one. It is safe for concurrent use.
type children struct {
	mu     sync.Mutex
	pids   map[int]bool
	killed bool
}

var errKilled = errors.New("killed")

// start starts a command.
func (c *children) start(cmd *exec.Cmd) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.killed {
		return errKilled
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if c.pids == nil {
		c.pids = map[int]bool{}
	}
	c.pids[cmd.Process.Pid] = true
	return nil
}

// wait waits for the end of a command and of its output. The error is errKilled when it did not end by itself.
func (c *children) wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pids, cmd.Process.Pid)
	if err != nil && c.killed {
		return errKilled
	}
	return err
}

// kill ends all of them, with what they have started. No other can be started.
func (c *children) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killed = true
	for pid := range c.pids {
		_ = kill(pid) // it may have ended meanwhile
	}
}

// outcome is how a command ended.
type outcome struct {
	code   int    // of its exit; -1: by a signal
	text   string // the same in words; empty: it succeeded
	words  string // the last line on its standard error
	failed error  // it could not be run, or its output not be written
}

// runCommand runs a command with the message as its standard input. When ctx ends, the command is told to end, and then killed.
func (r *runner) runCommand(ctx context.Context, d *rpc.Delivery) outcome {
	env, complete := messageEnv(r.group, d)
	if !complete {
		r.notices.info("message %d (%s): what is too large for the environment is left out", d.Sequence, d.Topic)
	}
	var words lastWords
	stdout := lineWriter{write: r.print, complete: r.parallel > 1}
	stderr := lineWriter{complete: true, write: func(lines []byte) error {
		words.note(lines)
		_ = r.notices.pass(lines) // nobody could be told, and it would end the command, which has done nothing wrong
		return nil
	}}
	cmd := exec.CommandContext(ctx, "sh", "-c", r.command)
	cmd.Env = env
	cmd.Stdin = bytes.NewReader(bytes.Clone(d.Payload)) // whoever feeds it may be late to notice the end
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = killPatience
	cmd.Cancel = func() error { return terminate(cmd.Process.Pid) }
	inGroup(cmd)
	if err := r.children.start(cmd); err != nil {
		return outcome{failed: fmt.Errorf("--exec: %w", err)}
	}
	err := r.children.wait(cmd)
	if ctx.Err() != nil {
		_ = kill(cmd.Process.Pid) // the rest of its group, if there is any
	}
	_ = stderr.close() // it does not fail
	if broken := stdout.close(); broken != nil && !errors.Is(err, errKilled) {
		err = broken // the command may have died of it: it cannot write either, then
	}
	return r.outcome(cmd.ProcessState, err, words.String())
}

func (r *runner) outcome(state *os.ProcessState, err error, words string) outcome {
	if write, ok := errors.AsType[*writeError](err); ok {
		return outcome{failed: write}
	}
	if errors.Is(err, errKilled) {
		return outcome{failed: errKilled}
	}
	o := outcome{code: state.ExitCode(), words: words}
	if !state.Success() {
		o.text = state.String()
	}
	return o
}
