package tui

import (
	"context"
	"slices"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// model is the state of the screen.
type model struct {
	source  Source
	jobs    *jobs
	options Options
	env     *env
	keys    keyMap
	clock   func() time.Time // this machine's; ages are told by the broker's, which snapshots bring
	zone    *time.Location
	outcome error // what Run returns after a quit

	now           time.Time // when the message being handled came
	width, height int

	roots    [len(views)]*screen // of the keys 1 to 5
	root     int
	opened   []*screen // what was opened from the root, the last one shown
	help     bool
	scroll   int     // lines of the help above the window
	prompt   *prompt // nil: none is open
	notice   notice
	interval time.Duration

	watch     *watch // nil: none has begun
	link      link
	version   int // of the filter, while it is being typed
	sortedAt  time.Time
	touchedAt time.Time // when a key last moved the cursor

	paused bool
	// thawed lets one snapshot through a pause: the question has changed, and there is nothing to show yet.
	thawed bool
	unseen *core.Snapshot // the newest one that the pause held back
	newest *core.Snapshot // the one that was shown last, on whichever screen; nil: none was

	related related
}

// link is how the connection is.
type link struct {
	runID    string    // of the broker that last answered
	heardAt  time.Time // when it did; zero: never
	lostAt   time.Time // zero: the connection stands
	err      error     // why it was lost
	attempts int       // to get it back
	retryAt  time.Time // zero: just being tried
}

// notice is a line for the user that goes away by itself.
type notice struct {
	text  string
	tone  tone
	until time.Time
}

const noticeTime = 6 * time.Second

// related is what belongs to the row under the cursor, for the pane beside the list.
type related struct {
	of   string // the row's identity; empty: nothing belongs to it
	rows rows   // nil: not known yet
	snap *core.Snapshot
	busy bool // a question is under way
}

// intervals are the steps of the keys + and -.
var intervals = []time.Duration{
	250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
}

func newModel(s Source, o Options, j *jobs) *model {
	if o.Interval <= 0 {
		o.Interval = time.Second
	}
	if o.Limit <= 0 {
		o.Limit = core.DefaultLimit
	}
	m := &model{
		source: s, jobs: j, options: o, interval: o.Interval,
		env: newEnv(o.ASCII, o.Color), clock: time.Now, zone: time.Local,
	}
	m.keys = newKeyMap(m.env.glyphs)
	for i, v := range views {
		m.roots[i] = newScreen(v)
	}
	m.root = max(0, slices.Index(views[:], o.View))
	first := m.roots[m.root]
	if o.Sort != "" {
		first.order.column = o.Sort
	}
	first.order.reverse = o.Reverse
	first.filter = o.Filter
	m.now = m.clock()
	return m
}

// Init asks the first question.
func (m *model) Init() tea.Cmd {
	return tea.Batch(m.ask(), m.jobs.after(time.Second, tickMsg{}), m.jobs.command(m.jobs.ctx, m.awaitAwoken))
}

// screen is the one that is shown.
func (m *model) screen() *screen {
	if n := len(m.opened); n > 0 {
		return m.opened[n-1]
	}
	return m.roots[m.root]
}

// ask asks the broker for what the screen shows, instead of what it was asked before.
func (m *model) ask() tea.Cmd {
	number := 1
	if m.watch != nil {
		m.watch.cancel(nil)
		number = m.watch.number + 1
	}
	w := &watch{number: number, news: make(chan *core.Snapshot, 1)}
	w.ctx, w.cancel = context.WithCancelCause(m.jobs.ctx)
	m.watch = w
	q, interval, source := m.screen().query(m.options.Limit), m.interval, m.source
	return tea.Batch(
		m.jobs.command(w.ctx, func(context.Context) tea.Msg { return w.run(source, q, interval) }),
		m.jobs.command(w.ctx, w.await),
	)
}

// askAnew asks another question than before; its first answer shows even in a pause.
func (m *model) askAnew() tea.Cmd {
	m.thawed = true
	return m.ask()
}

// tell shows a notice for a while.
func (m *model) tell(t tone, text string) {
	m.notice = notice{text: text, tone: t, until: m.now.Add(noticeTime)}
}

// show goes to a root screen.
func (m *model) show(root int) tea.Cmd {
	if root == m.root && len(m.opened) == 0 {
		return nil
	}
	m.root, m.opened = root, nil
	return m.arrive()
}

// open puts a screen on top.
func (m *model) open(s *screen) tea.Cmd {
	m.opened = append(m.opened, s)
	return m.arrive()
}

// arrive begins to look at a screen.
func (m *model) arrive() tea.Cmd {
	m.related = related{busy: m.related.busy}
	m.screen().resort = true
	m.unseen = nil
	return m.askAnew()
}

// frame is what drawing the screen's snapshot needs to know.
func (m *model) frame() *frame {
	f := &frame{env: m.env, zone: m.zone, now: m.now}
	if snap := m.screen().snap; snap != nil {
		f.now = snap.Broker.Time
	}
	return f
}

// hasPane reports whether there is room for a pane about the row under the cursor.
func (m *model) hasPane() bool {
	s := m.screen()
	return m.width >= 100 && m.height >= 28 && s.record == nil && len(s.panels) == 1
}
