package tui

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// shuffled is a snapshot with its topics in a random order, as a broker under load would send.
func shuffled(n int, r *rand.Rand) *core.Snapshot {
	snap := many(n, numbered)
	r.Shuffle(n, func(i, j int) { snap.Topics[i], snap.Topics[j] = snap.Topics[j], snap.Topics[i] })
	return snap
}

func TestCursorFollowsItsRow(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 7, 100} {
		s := newStage(t, Options{View: core.ViewTopics}, 80, 24)
		s.gets(shuffled(n, r))
		for range rand.New(rand.NewPCG(3, uint64(n))).IntN(n) + 1 {
			s.press("down")
		}
		want := strings.Fields(s.cursor())[0]
		for i := range 200 {
			s.after(time.Duration(r.IntN(5000)) * time.Millisecond)
			s.gets(shuffled(n, r))
			if got := strings.Fields(s.cursor()); len(got) == 0 || got[0] != want {
				t.Fatalf("%d rows, update %d: the cursor is on %q, want %s", n, i, s.cursor(), want)
			}
		}
		// Its row goes: the neighbour takes its place, and is then followed itself.
		snap := shuffled(n, r)
		snap.Topics = slices.DeleteFunc(snap.Topics, func(t core.TopicStats) bool { return t.Topic == want })
		s.gets(snap)
		if n == 1 {
			if s.cursor() != "" {
				t.Errorf("a cursor without rows: %q", s.cursor())
			}
			continue
		}
		next := strings.Fields(s.cursor())[0]
		s.after(10 * time.Second)
		s.gets(shuffled(n, r))
		if got := strings.Fields(s.cursor())[0]; next == want || got != next {
			t.Errorf("the neighbour is %s, then %s", next, got)
		}
	}
}

// Before it was moved, and after g, the cursor stays on the first row, whichever that is.
func TestCursorAtTheTop(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	s := newStage(t, Options{View: core.ViewTopics}, 80, 24)
	for range 20 {
		s.after(5 * time.Second)
		snap := shuffled(50, r)
		s.gets(snap)
		if got := strings.Fields(s.cursor())[0]; got != snap.Topics[0].Topic {
			t.Fatalf("the cursor is on %s, the first row is %s", got, snap.Topics[0].Topic)
		}
	}
	s.press("down down G g")
	s.after(5 * time.Second)
	snap := shuffled(50, r)
	s.gets(snap)
	if got := strings.Fields(s.cursor())[0]; got != snap.Topics[0].Topic {
		t.Errorf("after g the cursor is on %s, the first row is %s", got, snap.Topics[0].Topic)
	}
}

func order50(s *stage) []string { return slices.Clone(s.screen().panels[0].keys) }

// Rows change places at most once in two seconds, and not within two seconds of a key that moved the cursor.
func TestRowsKeepStill(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	s := newStage(t, Options{View: core.ViewTopics}, 80, 24)
	s.gets(shuffled(50, r))
	changes := 0
	for last, i := order50(s), 0; i < 40; i++ { // 10 s
		s.after(250 * time.Millisecond)
		s.gets(shuffled(50, r))
		if now := order50(s); !slices.Equal(now, last) {
			changes++
			last = now
		}
	}
	if changes != 5 {
		t.Errorf("%d changes of order in 10 s, want 5", changes)
	}
	last := order50(s)
	for range 40 {
		s.after(1900 * time.Millisecond)
		s.press("down")
		s.gets(shuffled(50, r))
	}
	if !slices.Equal(order50(s), last) {
		t.Error("rows change places under a cursor that moves")
	}
	// New rows come last until the next change, and rows that go leave no gap.
	snap := shuffled(60, r)
	snap.Topics = slices.DeleteFunc(snap.Topics, func(t core.TopicStats) bool { return t.Topic == last[3] })
	s.press("up")
	s.gets(snap)
	now := order50(s)
	if want := slices.Delete(slices.Clone(last), 3, 4); len(now) != 59 || !slices.Equal(now[:49], want) {
		t.Errorf("%d rows; the old ones moved", len(now))
	}
	// A change of the sort order is one that the user wants to see.
	s.press("s")
	snap = shuffled(50, r)
	s.gets(snap)
	if now := order50(s); now[0] != snap.Topics[0].Topic {
		t.Error("the rows are not in the order asked for")
	}
}

func TestKeysLeadToQuestions(t *testing.T) {
	s := newStage(t, Options{View: core.ViewTopics, Limit: 50}, 80, 24)
	s.gets(sample())
	steps := []struct {
		keys string
		want core.Query
	}{
		{"", core.Query{View: core.ViewTopics, Sort: "in"}},
		{"s", core.Query{View: core.ViewTopics, Sort: "topic"}},
		{"R", core.Query{View: core.ViewTopics, Sort: "topic", Reverse: true}},
		{"s", core.Query{View: core.ViewTopics, Sort: "out"}},
		{"enter", core.Query{View: core.ViewSubscriptions, Sort: "queue", Topic: "orders.created"}},
		{"enter", core.Query{View: core.ViewSubscriptions, ID: "b7k2mqx4zt"}},
		{"esc", core.Query{View: core.ViewSubscriptions, Sort: "queue", Topic: "orders.created"}},
		{"esc", core.Query{View: core.ViewTopics, Sort: "out"}},
		{"esc", core.Query{View: core.ViewTopics, Sort: "out"}},
		{"/ b i l l enter", core.Query{View: core.ViewTopics, Sort: "out", Filter: "bill"}},
		{"esc", core.Query{View: core.ViewTopics, Sort: "out"}},
		{"4", core.Query{View: core.ViewGroups, Sort: "pending"}},
		{"enter", core.Query{View: core.ViewMembers, Sort: "in-flight", Group: "workers"}},
		{"enter", core.Query{View: core.ViewMembers, ID: "m3"}},
		{"5", core.Query{View: core.ViewEvictions, Sort: "time"}},
		{"tab", core.Query{View: core.ViewOverview}},
		{"enter", core.Query{View: core.ViewSubscriptions, Sort: "queue", Topic: "orders.created"}},
		{"esc tab enter", core.Query{View: core.ViewSubscriptions, ID: "b7k2mqx4zt"}},
		{"esc down enter", core.Query{View: core.ViewMembers, Sort: "in-flight", Group: "mailers"}},
		{"esc tab enter", core.Query{View: core.ViewEvictions, Filter: "k3v9w1"}},
		{"2", core.Query{View: core.ViewTopics, Sort: "out"}},
	}
	for i, step := range steps {
		for k := range strings.FieldsSeq(step.keys) {
			s.press(k)
			s.gets(sample())
			s.after(time.Second)
		}
		step.want.Limit = 50
		if got := s.screen().query(50); got != step.want {
			t.Fatalf("step %d, %s: asks %+v, want %+v", i, step.keys, got, step.want)
		}
		if s.prompt != nil {
			t.Fatalf("step %d: the prompt is still open", i)
		}
	}
}

func TestEscNeverQuits(t *testing.T) {
	s := newStage(t, Options{}, 80, 24)
	s.gets(sample())
	for range 5 {
		if quits(s.press("esc")) {
			t.Fatal("esc quits")
		}
	}
	if !quits(s.press("q")) || s.outcome != nil {
		t.Errorf("q does not quit: %v", s.outcome)
	}
	if !quits(s.press("/ q ctrl+c")) || !errors.Is(s.outcome, ErrInterrupted) {
		t.Errorf("ctrl+c does not interrupt from within a prompt: %v", s.outcome)
	}
}

// In a prompt keys are text, but for a few.
func TestPrompt(t *testing.T) {
	s := newStage(t, Options{View: core.ViewTopics}, 80, 24)
	s.gets(sample())
	before := s.watch.number
	s.press("/ q 1 s ? x tab up")
	s.shows("filter: q1s?x_")
	if s.watch.number != before {
		t.Error("the broker is asked while the filter is being typed")
	}
	s.send(askMsg{s.version - 1})
	if s.watch.number != before {
		t.Error("the broker is asked for a filter that has changed since")
	}
	s.send(askMsg{s.version})
	if s.watch.number != before+1 || s.screen().query(0).Filter != "q1s?x" {
		t.Errorf("the filter asked for is %q", s.screen().query(0).Filter)
	}
	s.press("backspace backspace")
	s.shows("filter: q1s_")
	s.send(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("a b\x1b[2J\n世"), Paste: true})
	s.shows("filter: q1sa b[2J世_")
	s.press("ctrl+w")
	s.shows("filter: q1sa _")
	s.press("ctrl+u")
	s.shows("filter: _")
	s.press("esc")
	if s.prompt != nil || s.screen().filter != "" {
		t.Errorf("esc leaves the filter %q", s.screen().filter)
	}
	s.press("/")
	for range 300 {
		s.press("x")
	}
	if got := len(s.screen().filter); got != maxPrompt {
		t.Errorf("%d characters taken, want %d", got, maxPrompt)
	}
	s.press("enter")
	s.gets(&core.Snapshot{})
	s.shows("nothing here contains")
}

func TestPause(t *testing.T) {
	s := newStage(t, Options{View: core.ViewTopics}, 80, 24)
	s.gets(sample())
	s.press("space")
	frozen := s.View()
	for range 30 {
		s.after(time.Second)
		s.gets(many(100, numbered))
		s.send(tickMsg{})
	}
	s.shows("PAUSED 30s", "orders.created")
	if got, want := s.lines()[1:], strings.Split(frozen, "\n")[1:]; !slices.Equal(got, want) {
		t.Errorf("a paused screen changed:\n%s", s.View())
	}
	s.press("down") // the cursor still moves
	if !strings.HasPrefix(s.cursor(), "orders.updated") {
		t.Errorf("cursor on %s", s.cursor())
	}
	s.press("enter") // another question has to be answered once
	s.gets(sample())
	s.shows("subscriptions to orders.updated", "b7k2mqx4zt", "PAUSED 0s")
	s.gets(many(100, numbered))
	s.shows("b7k2mqx4zt")
	s.press("esc space")
	s.gets(many(100, numbered))
	s.hides("PAUSED", "orders.created")
	s.press("space")
	s.gets(sample())
	s.shows("name.00001")
	s.press("space") // what has come meanwhile shows at once
	s.shows("orders.created")
}

func TestDisconnected(t *testing.T) {
	s := newStage(t, Options{}, 80, 24)
	s.shows("connecting", "waiting for the broker")
	s.gets(sample())
	s.hides("connecting")
	ended := s.watch.number
	s.send(watchEndedMsg{ended, errRefused})
	s.link.retryAt = s.time.Add(1500 * time.Millisecond)
	s.shows("DISCONNECTED 0s, retry in 2s (connection refused)", "orders.created")
	s.after(time.Second)
	s.send(tickMsg{})
	s.shows("DISCONNECTED 1s, retry in 1s (connection refused)")
	s.send(retryMsg{ended - 1})
	if s.watch.number != ended {
		t.Error("an old timer asks again")
	}
	s.after(13 * time.Second)
	s.send(retryMsg{ended})
	if s.watch.number != ended+1 {
		t.Error("it is not tried again")
	}
	s.shows("DISCONNECTED 14s, trying again")
	s.send(watchEndedMsg{ended, errRefused}) // of the old watch: nothing new
	s.shows("trying again")
	for range 20 {
		s.send(watchEndedMsg{s.watch.number, errRefused})
		if d := s.link.retryAt.Sub(s.time); d < 500*time.Millisecond || d > 5*time.Second {
			t.Errorf("the next try is in %s", d)
		}
		s.send(retryMsg{s.watch.number})
	}
	restarted := sample()
	restarted.Broker.RunID = "run-2"
	restarted.Topics = restarted.Topics[2:]
	s.gets(restarted)
	s.hides("DISCONNECTED", "orders.updated")
	s.shows("reconnected after 14s; the broker was restarted")
	s.after(10 * time.Second)
	s.send(tickMsg{})
	s.hides("reconnected")
}

func TestReconnectOptions(t *testing.T) {
	s := newStage(t, Options{NoReconnect: true}, 80, 24)
	if cmd := s.send(watchEndedMsg{s.watch.number, errRefused}); !quits(cmd) || s.outcome == nil || s.outcome.Error() != "connection refused" {
		t.Errorf("goes on without a connection: %v", s.outcome)
	}
	s = newStage(t, Options{ReconnectTimeout: 10 * time.Second}, 80, 24)
	for i := range 10 {
		if s.outcome != nil {
			t.Fatalf("gives up after %d s", i)
		}
		s.send(watchEndedMsg{s.watch.number, errRefused})
		s.after(time.Second)
	}
	s.after(time.Second)
	if cmd := s.send(watchEndedMsg{s.watch.number, errRefused}); !quits(cmd) || s.outcome == nil {
		t.Error("does not give up")
	}
}

func TestSilence(t *testing.T) {
	s := newStage(t, Options{}, 80, 24)
	s.gets(sample())
	s.after(3 * time.Second)
	s.send(tickMsg{})
	s.hides("NO ANSWER")
	s.after(2 * time.Second)
	s.send(tickMsg{})
	s.shows("NO ANSWER for 5s")
	s.gets(sample())
	s.hides("NO ANSWER")
}

// The answer goes to the subscription that was under the cursor when the question was asked.
func TestCloseSubscription(t *testing.T) {
	for _, c := range []struct {
		typed  string
		err    error
		closed bool
		says   string
	}{
		{"c l o s e enter", nil, true, "closed b7k2mqx4zt"},
		{"c l o s e enter", core.ErrNotFound, true, "b7k2mqx4zt has already gone"},
		{"c l o s e enter", errRefused, true, "b7k2mqx4zt was not closed: connection refused"},
		{"y enter", nil, false, "not closed"},
		{"enter", nil, false, "not closed"},
		{"c l o s e esc", nil, false, ""},
	} {
		s := newStage(t, Options{View: core.ViewSubscriptions}, 80, 24)
		s.source.err = c.err
		s.gets(sample())
		s.press("x")
		s.shows(`type "close" to close b7k2mqx4zt of billing-8: _`)
		snap := sample()
		slices.Reverse(snap.Subscriptions)
		s.after(10 * time.Second)
		s.gets(snap)
		for _, msg := range results(s.press(c.typed)) {
			s.send(msg)
		}
		if got := len(s.source.closed) == 1 && s.source.closed[0] == "b7k2mqx4zt"; got != c.closed || len(s.source.closed) > 1 {
			t.Errorf("%s: closed %v", c.typed, s.source.closed)
		}
		if c.says != "" {
			s.shows(c.says)
		}
	}
	s := newStage(t, Options{View: core.ViewTopics}, 80, 24)
	s.gets(sample())
	s.press("x")
	s.shows("there is no subscription here to close")
	for _, step := range []struct{ keys, want string }{{"1 tab x", "to close b7k2mqx4zt"}, {"esc 4 enter x", "to close m3 of worker-3"}, {"esc enter x", "to close m3"}} {
		for k := range strings.FieldsSeq(step.keys) {
			s.press(k)
			s.gets(sample())
		}
		s.shows(step.want)
	}
}

// results runs the commands in cmd that come to an end by themselves.
func results(cmd tea.Cmd) []tea.Msg {
	if cmd == nil {
		return nil
	}
	done := make(chan tea.Msg, 1)
	go func() { done <- cmd() }()
	var msg tea.Msg
	select {
	case msg = <-done:
	case <-time.After(200 * time.Millisecond):
		return nil
	}
	batch, ok := msg.(tea.BatchMsg)
	if !ok {
		return []tea.Msg{msg}
	}
	var all []tea.Msg
	for _, c := range batch {
		all = append(all, results(c)...)
	}
	return all
}

func TestRecordThatGoes(t *testing.T) {
	s := newStage(t, Options{View: core.ViewSubscriptions}, 80, 24)
	s.gets(sample())
	s.press("enter")
	s.gets(sample())
	s.hides("it has gone")
	gone := sample()
	gone.Subscriptions = nil
	s.gets(gone)
	s.shows("it has gone", "billing-8")
	s.gets(sample())
	s.hides("it has gone")
}

func TestPace(t *testing.T) {
	s := newStage(t, Options{}, 80, 24)
	s.gets(sample())
	for _, c := range []struct {
		key  string
		want time.Duration
	}{
		{"+", 500 * time.Millisecond}, {"+", 250 * time.Millisecond}, {"+", 250 * time.Millisecond}, {"-", 500 * time.Millisecond},
		{"-", time.Second}, {"-", 2 * time.Second}, {"- - - - -", time.Minute}, {"+", 30 * time.Second},
	} {
		before := s.watch.number
		s.press(c.key)
		if s.interval != c.want {
			t.Fatalf("%s: %s, want %s", c.key, s.interval, c.want)
		}
		if c.want == 250*time.Millisecond && s.watch.number > before+1 {
			t.Error("asks again for nothing")
		}
	}
	s.shows("every 30s")
	odd := newStage(t, Options{Interval: 3 * time.Second}, 80, 24)
	odd.press("-")
	if odd.interval != 5*time.Second {
		t.Errorf("3s - is %s", odd.interval)
	}
	odd = newStage(t, Options{Interval: 3 * time.Second}, 80, 24)
	odd.press("+")
	if odd.interval != 2*time.Second {
		t.Errorf("3s + is %s", odd.interval)
	}
}

func TestRelated(t *testing.T) {
	s := newStage(t, Options{View: core.ViewGroups}, 120, 40)
	s.gets(sample())
	if s.related.of != "group workers" || !s.related.busy {
		t.Fatalf("asks about %q", s.related.of)
	}
	s.press("down") // the first answer comes too late
	s.send(relatedMsg{of: "group workers", snap: sample()})
	s.hides("worker-3")
	if s.related.of != "group mailers" || !s.related.busy {
		t.Fatalf("asks about %q, busy %v", s.related.of, s.related.busy)
	}
	s.send(relatedMsg{of: "group mailers", snap: &core.Snapshot{}})
	s.shows("no members")
	s.press("up")
	s.send(relatedMsg{of: "group workers", snap: sample()})
	s.shows("worker-3")
	if s.related.busy {
		t.Error("asks twice about one snapshot")
	}
	s.send(tea.WindowSizeMsg{Width: 80, Height: 24})
	s.hides("worker-3")
}

func TestRawBytes(t *testing.T) {
	s := newStage(t, Options{View: core.ViewTopics}, 120, 40)
	s.gets(sample())
	s.shows("3.1 MB/s", "118M/512M")
	s.press("b")
	s.shows("3100000 B/s", fmt.Sprint(118<<20))
}

// Keys that are typed fast come together.
func TestKeysThatComeTogether(t *testing.T) {
	s := newStage(t, Options{}, 80, 24)
	s.gets(sample())
	s.send(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("2ssR/or")})
	s.gets(sample())
	if got, want := s.screen().query(0), (core.Query{View: core.ViewTopics, Sort: "out", Reverse: true, Filter: "or"}); got != want {
		t.Errorf("asks %+v, want %+v", got, want)
	}
	s.press("esc")
	s.send(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("3q"), Paste: true})
	if s.root != 1 || s.outcome != nil {
		t.Error("pasted text is taken for keys")
	}
}

// However narrow the window, the prompt says what to type, and shows what is typed.
func TestNarrowPrompt(t *testing.T) {
	s := newStage(t, Options{View: core.ViewSubscriptions}, 40, 10)
	snap := sample()
	snap.Subscriptions[0].ID = strings.Repeat("long", 30)
	s.gets(snap)
	s.press("x c l o s e")
	s.shows(`type "close" to close long`, ": close_")
}
