package core

import (
	"testing"
)

func join(t testing.TB, b *Broker, o JoinOptions) *Member {
	t.Helper()
	if o.Group == "" {
		o.Group = "g"
	}
	if o.Patterns == nil {
		o.Patterns = []string{"**"}
	}
	m, err := b.Join(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// got is what one Take of a member brought.
type got struct {
	payloads []string
	first    uint64
	attempt  int
}

func (g got) all() SequenceRange {
	return SequenceRange{g.first, g.first + uint64(len(g.payloads)) - 1}
}

// take takes one delivery as a stream would that is written at once.
func take(m *Member) (got, bool) {
	var d Delivery
	if !m.Take(&d, 64<<10) {
		return got{}, false
	}
	g := got{payloads: records(&d), first: d.FirstSequence, attempt: d.Attempt}
	m.Settle(&d, true)
	return g, true
}

// takeEverything takes until nothing comes.
func takeEverything(m *Member) (payloads []string, last got) {
	for {
		g, ok := take(m)
		if !ok {
			return payloads, last
		}
		payloads = append(payloads, g.payloads...)
		last = g
	}
}

func groupStats(t testing.TB, b *Broker, name string) GroupStats {
	t.Helper()
	for _, st := range b.Groups() {
		if st.Name == name {
			if st.Pending < 0 || st.InFlight < 0 {
				t.Fatalf("negative gauge: %+v", st)
			}
			return st
		}
	}
	t.Fatalf("there is no group %q", name)
	return GroupStats{}
}

func wantBooks(t testing.TB, b *Broker, acked uint64, pending, inFlight int) {
	t.Helper()
	st := groupStats(t, b, "g")
	if st.Acked != acked || st.Pending != pending || st.InFlight != inFlight {
		t.Fatalf("acked %d, pending %d, in flight %d; want %d, %d, %d", st.Acked, st.Pending, st.InFlight, acked, pending, inFlight)
	}
}

// work hands every delivery of m to f until m has ended.
func work(m *Member, f func(g got)) {
	for {
		if g, ok := take(m); ok {
			f(g)
			continue
		}
		select {
		case <-m.Wake():
		case <-m.Done():
			return
		}
	}
}

// serve has members take whatever they were woken for until nobody is any more, and acknowledge it at once if they are to.
func serve(t *testing.T, acks map[*Member]bool, members ...*Member) (got map[*Member][]string) {
	t.Helper()
	got = map[*Member][]string{}
	for again := true; again; {
		again = false
		for _, m := range members {
			select {
			case <-m.Wake():
			default:
				continue
			}
			again = true
			for g, ok := take(m); ok; g, ok = take(m) {
				got[m] = append(got[m], g.payloads...)
				if acks[m] {
					m.Ack(g.all())
				}
			}
		}
	}
	return got
}
