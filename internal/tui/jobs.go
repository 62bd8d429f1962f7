package tui

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	tea "github.com/charmbracelet/bubbletea"
)

// PanicError is a panic of the screen's own code. It reaches the caller as an error, so that the terminal is given back
// before anybody prints the stack.
type PanicError struct {
	Value any
	Stack []byte
}

// Error returns what was panicked with.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// jobs are the goroutines that the program starts through Bubble Tea, which does not wait for them. A panic in one of them
// ends the program as an error would.
type jobs struct {
	ctx  context.Context
	fail context.CancelCauseFunc

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

func newJobs(ctx context.Context) *jobs {
	j := &jobs{}
	j.ctx, j.fail = context.WithCancelCause(ctx)
	return j
}

// command makes f a command. f must return soon after its context has ended.
func (j *jobs) command(ctx context.Context, f func(context.Context) tea.Msg) tea.Cmd {
	return func() (msg tea.Msg) {
		if !j.begin() {
			return nil
		}
		defer j.running.Done()
		defer j.catch()
		return f(ctx)
	}
}

func (j *jobs) begin() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return false
	}
	j.running.Add(1)
	return true
}

// catch, deferred, turns a panic into the end of the program.
func (j *jobs) catch() {
	if r := recover(); r != nil {
		j.fail(&PanicError{Value: r, Stack: debug.Stack()})
	}
}

// close ends all jobs and waits for them.
func (j *jobs) close() {
	j.fail(nil)
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	j.running.Wait()
}

// guarded is the model as Bubble Tea sees it: one whose panics are caught.
type guarded struct {
	*model
	jobs *jobs
}

func (g guarded) Init() tea.Cmd {
	defer g.jobs.catch()
	return g.model.Init()
}

func (g guarded) Update(msg tea.Msg) (next tea.Model, cmd tea.Cmd) {
	next = g // also after a panic
	defer g.jobs.catch()
	cmd = g.model.update(msg)
	return next, cmd
}

func (g guarded) View() string {
	defer g.jobs.catch()
	return g.model.View()
}
