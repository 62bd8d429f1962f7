// Package tui is the screen of `tinybroker top`: it draws what a broker says of itself, as tables in which a cursor moves.
//
// The model holds all state; Update alone changes it, View only reads it. What takes time runs in commands, which come
// back as messages. Everything that is drawn comes from snapshots, whose sorting, filtering and rates are the broker's work.
package tui

import (
	"context"
	"errors"
	"os"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	_ "codeberg.org/tinybroker/tinybroker/internal/tui/background" // before Bubble Tea
)

// Source is where snapshots come from: a broker, seen through a client.
type Source interface {
	// Watch hands a snapshot to f at once and then one every interval, until ctx ends, f returns an error, or the connection
	// is lost, and returns why. It is called again for the next try; its error is shown, so it should be short.
	Watch(ctx context.Context, q core.Query, interval time.Duration, f func(*core.Snapshot) error) error
	// Observe returns one snapshot.
	Observe(ctx context.Context, q core.Query) (*core.Snapshot, error)
	// CloseSubscription ends a subscription; core.ErrNotFound: there is none of that id.
	CloseSubscription(ctx context.Context, id string) error
}

// Options say what the screen shows first, and how.
type Options struct {
	Address  string        // of the broker, for the first line
	View     core.View     // ViewOverview, ViewTopics, ViewSubscriptions, ViewGroups or ViewEvictions; others: the overview
	Interval time.Duration // between snapshots; 0: a second
	Sort     string        // a column of the view, see core.SortColumns; empty: its first
	Reverse  bool
	Filter   string
	Limit    int  // the most rows of a kind; 0: core.DefaultLimit
	ASCII    bool // nothing else is drawn
	Color    bool // with bold, faint and reversed text
	// ReconnectTimeout is how long a lost connection is tried to get back; 0: for ever. NoReconnect: not at all.
	ReconnectTimeout time.Duration
	NoReconnect      bool
	// Suspend stops the process as ctrl+z does, and returns when it goes on. It is called with the terminal given back.
	// Nil: there is no suspending.
	Suspend func()
	// Resumes tells that the process goes on after a stop without Suspend: others may have used the terminal, which is set up and drawn
	// anew. It may be nil.
	Resumes <-chan struct{}
}

// ErrInterrupted is the end by ctrl+c.
var ErrInterrupted = errors.New("interrupted")

// LostError is the end of a program that was not to try longer to get a lost connection back.
type LostError struct{ Err error }

// Error returns why the connection was lost.
func (e *LostError) Error() string { return e.Err.Error() }

// Unwrap returns why the connection was lost.
func (e *LostError) Unwrap() error { return e.Err }

// framesPerSecond is how often the terminal is drawn at most.
const framesPerSecond = 10

// Run shows the screen until its user quits. in and out must be terminals. When it returns, the terminal is as it was, and
// everything that it started has ended. The error is ErrInterrupted, a *LostError, a *PanicError, or the cause of ctx's end.
func Run(ctx context.Context, s Source, o Options, in, out *os.File) error {
	j := newJobs(ctx)
	defer j.close()
	return run(newModel(s, o, j), in, out)
}

// withSize gives a terminal that does not know its size, as one on a serial line, the usual one.
func withSize(_ tea.Model, msg tea.Msg) tea.Msg {
	size, ok := msg.(tea.WindowSizeMsg)
	if !ok {
		return msg
	}
	if size.Width <= 0 {
		size.Width = 80
	}
	if size.Height <= 0 {
		size.Height = 24
	}
	return size
}

// run draws a model until it ends.
func run(m *model, in, out *os.File) error {
	j := m.jobs
	program := tea.NewProgram(guarded{m, j},
		tea.WithInput(in),
		tea.WithOutput(out),
		tea.WithAltScreen(),
		tea.WithFPS(framesPerSecond),
		tea.WithoutSignalHandler(),
		tea.WithFilter(withSize),
	)
	// A panic and the caller's signals end the program through the context, as a quit would: a program that is killed
	// instead leaves the goroutine behind that reads its input.
	stop := context.AfterFunc(j.ctx, program.Quit)
	defer stop()
	_, err := program.Run()
	switch {
	case j.ctx.Err() != nil:
		return context.Cause(j.ctx)
	case err != nil:
		return err
	}
	return m.outcome
}
