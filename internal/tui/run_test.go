//go:build unix

package tui

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/creack/pty"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// steady sends a snapshot every 20 ms.
func steady(ctx context.Context, _ core.Query, f func(*core.Snapshot) error) error {
	for {
		if err := f(sample()); err != nil {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func observeSample() (*core.Snapshot, error) { return sample(), nil }

// terminal is a pseudo-terminal and what was written to it.
type terminal struct {
	t       *testing.T
	master  *os.File
	slave   *os.File
	before  term.State
	copied  chan struct{}
	mu      sync.Mutex
	written bytes.Buffer
}

func newTerminal(t *testing.T, width, height uint16) *terminal {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Skip(err)
	}
	term := &terminal{t: t, master: master, slave: slave, copied: make(chan struct{})}
	if err := pty.Setsize(master, &pty.Winsize{Rows: height, Cols: width}); err != nil {
		t.Fatal(err)
	}
	term.before = term.state()
	go func() {
		defer close(term.copied)
		io.Copy(term, master)
	}()
	t.Cleanup(func() {
		slave.Close()
		master.Close()
		<-term.copied
	})
	return term
}

func (t *terminal) state() term.State {
	t.t.Helper()
	s, err := term.GetState(t.slave.Fd())
	if err != nil {
		t.t.Fatal(err)
	}
	return *s
}

func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.written.Write(p)
}

func (t *terminal) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.written.String()
}

// shows waits until a text was drawn.
func (t *terminal) shows(text string) {
	t.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(t.text(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.t.Errorf("never drawn: %q", text)
			return
		}
	}
}

// restored checks that the terminal is as it was.
func (t *terminal) restored() {
	t.t.Helper()
	t.shows("\x1b[?1049l")
	t.shows("\x1b[?25h")
	if t.state() != t.before {
		t.t.Error("the terminal's modes are not as they were")
	}
	if strings.Contains(t.text(), "panic") {
		t.t.Errorf("the panic is written to the screen: %q", t.text())
	}
}

// Whatever goes wrong, wherever: the terminal is given back, the goroutines end, and the caller gets the panic with its stack.
func TestPanicsRestoreTheTerminal(t *testing.T) {
	hold := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	for _, c := range []struct {
		name   string
		o      Options
		source *playing
		spoil  func(*model)
		stack  string
	}{
		{
			"in a command", Options{}, &playing{watch: func(context.Context, core.Query, func(*core.Snapshot) error) error {
				time.Sleep(50 * time.Millisecond) // Bubble Tea asks for the size in a goroutine that it does not wait for
				panic("in a command")
			}}, nil, "playing",
		},
		{
			"in the callback of a command", Options{}, &playing{watch: func(ctx context.Context, _ core.Query, f func(*core.Snapshot) error) error {
				f(sample())
				time.Sleep(50 * time.Millisecond)
				f(nil) // taken by Update
				return hold(ctx)
			}}, nil, "update",
		},
		{
			"in update", Options{View: core.ViewGroups}, &playing{watch: steady, observe: func() (*core.Snapshot, error) { return nil, nil }}, nil, "learn",
		},
		{
			"in view", Options{View: core.ViewEvictions}, &playing{watch: steady, observe: observeSample}, func(m *model) { m.zone = nil }, "clock",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			terminal := newTerminal(t, 120, 40)
			j := newJobs(t.Context())
			defer j.close()
			m := newModel(c.source, c.o, j)
			if c.spoil != nil {
				c.spoil(m)
			}
			err := run(m, terminal.slave, terminal.slave)
			var defect *PanicError
			if !errors.As(err, &defect) || !strings.Contains(string(defect.Stack), c.stack) {
				t.Fatalf("ended with %v", err)
			}
			j.close()
			terminal.restored()
		})
	}
}

// The caller's context ends the program, and its cause is what Run returns.
func TestRunEndsWithItsContext(t *testing.T) {
	terminal := newTerminal(t, 80, 24)
	cause := errors.New("terminated")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	go func() {
		terminal.shows("busiest topics")
		cancel(cause)
	}()
	if err := Run(ctx, &playing{watch: steady, observe: observeSample}, Options{Color: true}, terminal.slave, terminal.slave); !errors.Is(err, cause) {
		t.Errorf("ended with %v", err)
	}
	terminal.restored()
}

// However fast snapshots and keys come, the terminal is drawn at most ten times a second.
func TestAtMostTenFramesASecond(t *testing.T) {
	terminal := newTerminal(t, 80, 24)
	flood := func(ctx context.Context, _ core.Query, f func(*core.Snapshot) error) error {
		for i := uint64(0); ctx.Err() == nil; i++ {
			snap := sample()
			snap.Broker.Evictions = i
			if err := f(snap); err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
		}
		return ctx.Err()
	}
	done := make(chan error)
	began := time.Now()
	go func() {
		done <- Run(t.Context(), &playing{watch: flood, observe: observeSample}, Options{}, terminal.slave, terminal.slave)
	}()
	for range 50 {
		time.Sleep(20 * time.Millisecond)
		terminal.master.WriteString("j")
	}
	took := time.Since(began)
	frames := strings.Count(terminal.text(), "\x1b[H")
	terminal.master.WriteString("q")
	if err := <-done; err != nil {
		t.Error(err)
	}
	if most := int(took.Seconds()*framesPerSecond) + 3; frames > most || frames < 3 {
		t.Errorf("%d frames in %s, want at most %d", frames, took, most)
	}
	terminal.restored()
}

// A terminal that does not know its size, or that only one side of it, is taken for one of the usual size.
func TestTerminalWithoutSize(t *testing.T) {
	for _, size := range [][2]uint16{{0, 0}, {0, 24}, {80, 0}} {
		terminal := newTerminal(t, size[0], size[1])
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			terminal.shows("busiest topics")
			cancel()
		}()
		if err := Run(ctx, &playing{watch: steady, observe: observeSample}, Options{}, terminal.slave, terminal.slave); !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
		cancel()
		terminal.restored()
	}
}
