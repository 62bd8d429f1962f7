package core

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A message that waits for another attempt comes when it is due, whatever else of its key its member holds.
func TestARetryBehindOthersOfItsKeyIsOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		m := join(t, b, JoinOptions{})
		publish(t, b, post{"t", "1", "k"}, post{"t", "2", "k"})
		takeEverything(m)
		second := time.Second
		m.Nack(Nack{Delay: &second}, SequenceRange{1, 1})
		if g, early := take(m); early {
			t.Fatalf("%v came early", g.payloads)
		}
		begun := time.Now()
		<-m.Wake()
		g, _ := take(m)
		wantPayloads(t, g.payloads, []string{"1"})
		if took := time.Since(begun); took != second {
			t.Errorf("it came back after %v, want %v", took, second)
		}
	})
}

// A member gives back what is behind a message that has failed bit by bit, as it comes to it. Nothing that it has not had overtakes the rest.
func TestWhatWasBehindAFailedMessageComesBeforeWhatIsNew(t *testing.T) {
	b := newBroker(t, nil)
	m := join(t, b, JoinOptions{})
	publish(t, b, post{"t", "1", "k"}, post{"t", "2", "k"}, post{"t", "3", "k"}, post{"t", "4", "k"})
	takeEverything(m)
	publish(t, b, post{"t", "5", "k"}, post{"t", "6", "k"})
	wantNext := func(want ...string) {
		t.Helper()
		got, _ := takeEverything(m)
		wantPayloads(t, got, want)
	}
	wantNext("5", "6") // the member may have more of a key that it has
	publish(t, b, post{"t", "7", "k"})
	m.Nack(Nack{Delay: new(time.Duration(0))}, SequenceRange{1, 1})
	m.Nack(Nack{Action: NackRelease}, SequenceRange{2, 3})
	wantNext("1", "2", "3")
	m.Nack(Nack{Action: NackRelease}, SequenceRange{4, 6})
	wantNext("4", "5", "6")
	m.Ack(SequenceRange{7, 11})
	wantNext()
	m.Ack(SequenceRange{12, 12})
	wantNext("7")
}

// One fails among messages that come for the second time. Those that are still to come for the second time do not overtake what the member is about to
// give back for it.
func TestWhatComesAgainDoesNotOvertakeWhatGoesBackAgain(t *testing.T) {
	b := newBroker(t, nil)
	m := join(t, b, JoinOptions{})
	for i := range 6 {
		publish(t, b, post{"t", fmt.Sprint(i + 1), "k"})
	}
	takeEverything(m)
	next := func(want string) {
		t.Helper()
		var d Delivery
		got := ""
		if m.Take(&d, 1) {
			got = strings.Join(records(&d), " ")
			m.Settle(&d, true)
		}
		if got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	atOnce := time.Duration(0)
	m.Nack(Nack{Delay: &atOnce}, SequenceRange{1, 1})
	m.Nack(Nack{Action: NackRelease}, SequenceRange{2, 5}) // 6 is still on its way back
	next("1")
	next("2")
	next("3")
	m.Ack(SequenceRange{7, 7})
	m.Nack(Nack{Delay: &atOnce}, SequenceRange{8, 8}) // 2 fails, and 3 goes back as soon as the member comes to it
	next("2")
	next("")
	m.Nack(Nack{Action: NackRelease}, SequenceRange{9, 9})
	next("3")
	next("4")
	next("5")
	m.Nack(Nack{Action: NackRelease}, SequenceRange{6, 6})
	next("6")
	m.Ack(SequenceRange{10, 14})
	wantBooks(t, b, 6, 0, 0)
}

// A key that never runs dry takes its turn like everybody else.
func TestABusyKeyDoesNotHoldUpTheRest(t *testing.T) {
	b := newBroker(t, nil)
	m := join(t, b, JoinOptions{MaxInFlight: 2})
	publish(t, b, post{"t", "k", "k"}, post{"t", "k", "k"}, post{"t", "k", "k"}, post{topic: "t", payload: "plain"}, post{"t", "l", "l"})
	var order []string
	for range 5 {
		publish(t, b, post{"t", "k", "k"}, post{"t", "k", "k"})
		g, _ := take(m)
		order = append(order, g.payloads...)
		m.Ack(SequenceRange{g.first, g.first}) // the key stays with the member
	}
	wantPayloads(t, order[:5], []string{"k", "k", "k", "plain", "l"})
}

// DROP_OLDEST bounds a group also where what fills it waits for a key or another attempt.
func TestDropOldestReachesWhatWaitsOutsideTheLanes(t *testing.T) {
	hour := time.Hour
	for name, fill := range map[string]func(m *Member, b *Broker){
		"key": func(m *Member, b *Broker) {
			publish(t, b, post{"t", "x", "k"})
			takeEverything(m)
			for range 20 {
				publish(t, b, post{"t", "x", "k"})
			}
		},
		"retry": func(m *Member, b *Broker) {
			for range 5 {
				publish(t, b, numbered("t", 0, 5)...)
				takeEverything(m)
				m.Nack(Nack{Delay: &hour}, SequenceRange{1, 1000})
			}
			publish(t, b, numbered("t", 0, 5)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBroker(t, nil)
			m := join(t, b, JoinOptions{Settings: GroupSettings{Overflow: OverflowDropOldest, Capacity: 5}})
			fill(m, b)
			if st := groupStats(t, b, "g"); st.Pending != 5 || st.Dropped == 0 {
				t.Errorf("%d pending and %d dropped, want a backlog of 5", st.Pending, st.Dropped)
			}
		})
	}
}

// A message with a key that waits does not keep the frame it came in, most of which was for others.
func TestAKeyedMessagePinsNoLargeFrame(t *testing.T) {
	b := newBroker(t, nil)
	join(t, b, JoinOptions{Patterns: []string{"t"}})
	frame := []post{{"t", "x", ""}, {"t", "y", ""}, {topic: "elsewhere", payload: strings.Repeat("z", 40_000)}}
	for i := range 100 {
		frame[0].key, frame[1].key = fmt.Sprint("k", i), fmt.Sprint("l", i)
		publish(t, b, frame...)
	}
	if held, most := b.Stats().Memory, int64(200*(frameOverhead+parcelOverhead+keyOverhead+60)+50_000); held > most {
		t.Errorf("200 small messages hold %d bytes, want no more than %d", held, most)
	}
}

// What a member says of very many messages with keys of their own takes a time that grows with their number alone.
func TestManyKeysFailAtOnce(t *testing.T) {
	took := func(n int) time.Duration {
		b := newBroker(t, func(o *Options) { o.GroupCapacity = 1 << 16 })
		m := join(t, b, JoinOptions{MaxInFlight: maxMaxInFlight})
		var posts []post
		for i := range 2 * n {
			posts = append(posts, post{topic: "t", payload: "x", key: fmt.Sprint(i % n)})
		}
		publish(t, b, posts...)
		if all, _ := takeEverything(m); len(all) != 2*n {
			t.Fatalf("%d in flight, want %d", len(all), 2*n)
		}
		at := time.Now()
		m.Nack(Nack{Delay: new(time.Duration)}, SequenceRange{1, uint64(n)})
		return time.Since(at)
	}
	few, many := took(1000), took(16_000)
	for range 4 { // a busy machine slows some down
		few, many = min(few, took(1000)), min(many, took(16_000))
	}
	if many > 120*few { // the square of 16 is 256
		t.Errorf("16,000 nacks take %v, 1000 take %v", many, few)
	}
}
