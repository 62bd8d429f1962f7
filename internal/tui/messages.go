package tui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// The messages that the program sends to itself.
type (
	// snapshotMsg is news of the watch of that number.
	snapshotMsg struct {
		watch int
		snap  *core.Snapshot
	}
	// watchEndedMsg: the watch of that number has ended, and why.
	watchEndedMsg struct {
		watch int
		err   error
	}
	// retryMsg: it is time to try again to reach the broker after the watch of that number ended.
	retryMsg struct{ watch int }
	// askMsg: the filter has not changed for a moment; ask the broker if it is still this version of it.
	askMsg struct{ version int }
	// relatedMsg answers a question about the row under the cursor.
	relatedMsg struct {
		of   string
		snap *core.Snapshot
		err  error
	}
	// closedMsg: the broker has closed a subscription, or why not.
	closedMsg struct {
		id  string
		err error
	}
	// awokenMsg: the process was stopped without having given the terminal back, and goes on.
	awokenMsg struct{}
	// resumedMsg: the terminal was given back, and is the screen's again.
	resumedMsg struct{}
	// tickMsg comes once a second.
	tickMsg struct{}
)

// suspension is what Bubble Tea takes for a program that has the terminal for a while.
type suspension func()

// Run implements tea.ExecCommand.
func (s suspension) Run() error {
	s()
	return nil
}

// SetStdin implements tea.ExecCommand.
func (suspension) SetStdin(io.Reader) {}

// SetStdout implements tea.ExecCommand.
func (suspension) SetStdout(io.Writer) {}

// SetStderr implements tea.ExecCommand.
func (suspension) SetStderr(io.Writer) {}

const (
	// answerPatience is how long after it was due a snapshot may come before the broker is taken for lost.
	answerPatience = 10 * time.Second
	// callPatience is how long any other call may take.
	callPatience = 5 * time.Second
)

var errNoAnswer = errors.New("no answer")

// watch is a question to the broker that is answered again and again.
type watch struct {
	number int
	ctx    context.Context
	cancel context.CancelCauseFunc
	news   chan *core.Snapshot // the newest snapshot that was not taken yet
}

// run asks, and keeps the newest answer for await. The watch ends when an answer is long overdue.
func (w *watch) run(s Source, q core.Query, interval time.Duration) tea.Msg {
	patience := interval + answerPatience
	overdue := time.AfterFunc(patience, func() { w.cancel(errNoAnswer) })
	defer overdue.Stop()
	err := s.Watch(w.ctx, q, interval, func(snap *core.Snapshot) error {
		overdue.Reset(patience)
		w.offer(snap)
		return nil
	})
	if cause := context.Cause(w.ctx); errors.Is(cause, errNoAnswer) {
		err = fmt.Errorf("%w for %s", errNoAnswer, span(patience))
	}
	return watchEndedMsg{w.number, err}
}

// offer replaces news that nobody has taken yet.
func (w *watch) offer(snap *core.Snapshot) {
	for {
		select {
		case w.news <- snap:
			return
		default:
		}
		select {
		case <-w.news:
		default:
		}
	}
}

// await waits for news.
func (w *watch) await(context.Context) tea.Msg {
	select {
	case snap := <-w.news:
		return snapshotMsg{w.number, snap}
	case <-w.ctx.Done():
		return nil
	}
}

// awaitAwoken waits until the process goes on after a stop by others.
func (m *model) awaitAwoken(ctx context.Context) tea.Msg {
	select {
	case <-m.options.Resumes:
		return awokenMsg{}
	case <-ctx.Done():
		return nil
	}
}

// after sends msg once d has passed.
func (j *jobs) after(d time.Duration, msg tea.Msg) tea.Cmd {
	return j.command(j.ctx, func(ctx context.Context) tea.Msg {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return msg
		case <-ctx.Done():
			return nil
		}
	})
}
