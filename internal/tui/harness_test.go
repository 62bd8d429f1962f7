package tui

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"go.uber.org/goleak"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stage is a model without a program around it: messages go in, the screen comes out. Commands are not run; what the
// broker would answer is played by the test.
type stage struct {
	*model
	t      testing.TB
	source *fakeSource
	time   time.Time
}

// fakeSource notes what it is asked.
type fakeSource struct {
	mu     sync.Mutex
	closed []string
	err    error
}

func (f *fakeSource) Watch(ctx context.Context, _ core.Query, _ time.Duration, _ func(*core.Snapshot) error) error {
	<-ctx.Done()
	return ctx.Err()
}

func (f *fakeSource) Observe(context.Context, core.Query) (*core.Snapshot, error) {
	return sample(), nil
}

func (f *fakeSource) CloseSubscription(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = append(f.closed, id)
	return f.err
}

// playing is a source that hands out what it is told to.
type playing struct {
	fakeSource
	watch   func(ctx context.Context, q core.Query, f func(*core.Snapshot) error) error
	observe func() (*core.Snapshot, error)
}

func (p *playing) Watch(ctx context.Context, q core.Query, _ time.Duration, f func(*core.Snapshot) error) error {
	return p.watch(ctx, q, f)
}

func (p *playing) Observe(context.Context, core.Query) (*core.Snapshot, error) { return p.observe() }

func newStage(t testing.TB, o Options, width, height int) *stage {
	t.Helper()
	j := newJobs(t.Context())
	t.Cleanup(j.close)
	s := &stage{t: t, source: &fakeSource{}, time: noon}
	if o.Address == "" {
		o.Address = "127.0.0.1:7710"
	}
	s.model = newModel(s.source, o, j)
	s.clock = func() time.Time { return s.time }
	s.zone = time.UTC
	s.Init()
	s.send(tea.WindowSizeMsg{Width: width, Height: height})
	return s
}

func (s *stage) send(msg tea.Msg) tea.Cmd {
	s.t.Helper()
	return s.update(msg)
}

// gets plays an answer of the broker to what it was last asked.
func (s *stage) gets(snap *core.Snapshot) {
	s.t.Helper()
	s.send(snapshotMsg{s.watch.number, snap})
}

// after lets time go by; rows may then change places.
func (s *stage) after(d time.Duration) { s.time = s.time.Add(d) }

var namedKeys = map[string]tea.KeyMsg{
	"up": {Type: tea.KeyUp}, "down": {Type: tea.KeyDown}, "pgup": {Type: tea.KeyPgUp}, "pgdown": {Type: tea.KeyPgDown},
	"home": {Type: tea.KeyHome}, "end": {Type: tea.KeyEnd}, "tab": {Type: tea.KeyTab}, "shift+tab": {Type: tea.KeyShiftTab},
	"enter": {Type: tea.KeyEnter}, "esc": {Type: tea.KeyEsc}, "space": {Type: tea.KeySpace, Runes: []rune{' '}},
	"backspace": {Type: tea.KeyBackspace}, "ctrl+c": {Type: tea.KeyCtrlC}, "ctrl+u": {Type: tea.KeyCtrlU}, "ctrl+w": {Type: tea.KeyCtrlW},
	"ctrl+z": {Type: tea.KeyCtrlZ},
}

// press presses keys, parted by spaces, and returns the last one's command.
func (s *stage) press(keys string) (cmd tea.Cmd) {
	s.t.Helper()
	for k := range strings.FieldsSeq(keys) {
		msg, named := namedKeys[k]
		if !named {
			msg = tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(k)}
		}
		cmd = s.send(msg)
	}
	return cmd
}

func (s *stage) lines() []string { return strings.Split(s.View(), "\n") }

func (s *stage) shows(texts ...string) {
	s.t.Helper()
	view := s.View()
	for _, text := range texts {
		if !strings.Contains(view, text) {
			s.t.Errorf("the screen does not show %q:\n%s", text, view)
		}
	}
}

func (s *stage) hides(texts ...string) {
	s.t.Helper()
	view := s.View()
	for _, text := range texts {
		if strings.Contains(view, text) {
			s.t.Errorf("the screen shows %q:\n%s", text, view)
		}
	}
}

// cursor is the line of the cursor.
func (s *stage) cursor() string {
	s.t.Helper()
	for _, line := range s.lines() {
		if row, ok := strings.CutPrefix(line, " > "); ok {
			return strings.TrimSpace(row)
		}
	}
	return ""
}

// quits reports whether a command ends the program.
func quits(cmd tea.Cmd) bool {
	if cmd == nil {
		return false
	}
	switch msg := cmd().(type) {
	case tea.QuitMsg:
		return true
	case tea.BatchMsg:
		return slices.ContainsFunc(msg, quits)
	}
	return false
}

var errRefused = errors.New("connection refused")
