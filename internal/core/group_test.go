package core

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAGroupGetsEachMessageOnce(t *testing.T) {
	b := newBroker(t, nil)
	one, two := join(t, b, JoinOptions{}), join(t, b, JoinOptions{})
	watcher := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}})
	runs := publish(t, b, numbered("t", 0, 100)...)
	if runs[0].Receivers != 2 {
		t.Errorf("%d receivers, want 2: a group counts once", runs[0].Receivers)
	}
	a, _ := take(one)
	if len(a.payloads) != 50 {
		t.Errorf("the first to ask got %d of 100, want an even share", len(a.payloads))
	}
	c, _ := takeEverything(two)
	wantPayloads(t, append(slices.Clone(a.payloads), c...), payloads(numbered("t", 0, 100)))
	wantBooks(t, b, 0, 0, 100)
	one.Ack(SequenceRange{1, 1 << 40})
	two.Ack(SequenceRange{1, 50})
	wantBooks(t, b, 100, 0, 0)
	wantPayloads(t, takeAll(watcher), payloads(numbered("t", 0, 100)))
	wantMemory(t, b, 0)
}

func TestAMemberHasNoMoreInFlightThanAllowed(t *testing.T) {
	b := newBroker(t, nil)
	m := join(t, b, JoinOptions{MaxInFlight: 10})
	publish(t, b, numbered("t", 0, 25)...)
	all, last := takeEverything(m)
	wantPayloads(t, all, payloads(numbered("t", 0, 10)))
	m.Ack(SequenceRange{3, 4})
	next, _ := take(m)
	wantPayloads(t, next.payloads, []string{"10", "11"})
	if _, more := take(m); more {
		t.Error("a member at its cap was given more")
	}
	m.Ack(SequenceRange{1, last.first + 100})
	wantBooks(t, b, 12, 13, 0)
}

func TestAcksSettleOnlyWhatTheyName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		one, two := join(t, b, JoinOptions{}), join(t, b, JoinOptions{})
		publish(t, b, numbered("t", 0, 10)...)
		take(one)
		takeEverything(two)
		two.Ack(SequenceRange{1, 2})
		two.Ack(SequenceRange{1, 2}) // again
		two.Ack(SequenceRange{7, 9}) // never given to it
		one.Ack(SequenceRange{3, 1}) // nothing
		wantBooks(t, b, 2, 0, 8)
		one.Ack(SequenceRange{2, 2}, SequenceRange{4, 4})
		wantBooks(t, b, 4, 0, 6)
		one.Nack(Nack{Action: NackRelease}, SequenceRange{2, 2}) // acknowledged already
		wantBooks(t, b, 4, 0, 6)
		one.Close()
		one.Ack(SequenceRange{1, 5}) // late
		back, _ := take(two)
		wantPayloads(t, back.payloads, []string{"0", "2", "4"})
		take(two)
		two.Ack(SequenceRange{1, 100})
		wantBooks(t, b, 10, 0, 0)
		if st := groupStats(t, b, "g"); st.Ineffective != 5 || st.Redelivered != 3 {
			t.Errorf("%d ineffective and %d redelivered, want 5 and 3", st.Ineffective, st.Redelivered)
		}
		wantMemory(t, b, 0)
	})
}

func TestAckNone(t *testing.T) {
	b := newBroker(t, nil)
	m := join(t, b, JoinOptions{MaxInFlight: 2, Settings: GroupSettings{Ack: AckNone}})
	publish(t, b, numbered("t", 0, 100)...)
	all, _ := takeEverything(m)
	wantPayloads(t, all, payloads(numbered("t", 0, 100)))
	wantBooks(t, b, 100, 0, 0)
	if s := m.Settings(); s.Overflow != OverflowDropOldest {
		t.Errorf("without acks the overflow policy is %s, want drop-oldest", s.Overflow)
	}
	var d Delivery
	publish(t, b, post{topic: "t", payload: "x"})
	m.Take(&d, 1<<20)
	m.Settle(&d, false)
	wantBooks(t, b, 100, 1, 0)
}

func TestGroupSettingsMustAgree(t *testing.T) {
	b := newBroker(t, nil)
	second := time.Second
	hour := time.Hour
	join(t, b, JoinOptions{Settings: GroupSettings{AckDeadline: &second, MaxAttempts: 3, Capacity: 7, Overflow: OverflowDropNewest}})
	join(t, b, JoinOptions{}) // no wishes, no quarrel
	join(t, b, JoinOptions{Settings: GroupSettings{AckDeadline: &second, MaxAttempts: 3, Capacity: 7, Ack: AckExplicit, Overflow: OverflowDropNewest}})
	for setting, s := range map[string]GroupSettings{
		"ack_mode":     {Ack: AckNone},
		"overflow":     {Overflow: OverflowReject},
		"capacity":     {Capacity: 8},
		"ack_deadline": {AckDeadline: &hour},
		"max_attempts": {MaxAttempts: 4},
	} {
		_, err := b.Join(JoinOptions{Group: "g", Patterns: []string{"**"}, Settings: s})
		if !errors.Is(err, ErrGroupConfig) || !strings.Contains(err.Error(), setting) {
			t.Errorf("%s differs: %v", setting, err)
		}
	}
	if n := groupStats(t, b, "g").Members; n != 3 {
		t.Errorf("%d members, want 3", n)
	}
}

func TestJoinRefusals(t *testing.T) {
	b := newBroker(t, nil)
	minus, long := -time.Second, 25*time.Hour
	for name, o := range map[string]JoinOptions{
		"dot in the name":       {Group: "a.b"},
		"name too long":         {Group: strings.Repeat("x", 129)},
		"eviction":              {Settings: GroupSettings{Overflow: OverflowEvict}},
		"unknown ack mode":      {Settings: GroupSettings{Ack: 7}},
		"negative capacity":     {Settings: GroupSettings{Capacity: -1}},
		"negative deadline":     {Settings: GroupSettings{AckDeadline: &minus}},
		"too long a deadline":   {Settings: GroupSettings{AckDeadline: &long}},
		"negative max_attempts": {Settings: GroupSettings{MaxAttempts: -1}},
		"huge max_in_flight":    {MaxInFlight: 1 << 20},
	} {
		if o.Group == "" {
			o.Group = "g"
		}
		o.Patterns = []string{"**"}
		if _, err := b.Join(o); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v, want ErrProtocol", name, err)
		}
	}
	if _, err := b.Join(JoinOptions{Group: "g", Patterns: []string{"["}}); !errors.Is(err, ErrPatternInvalid) {
		t.Errorf("bad pattern: %v", err)
	}
	if n := len(b.Groups()); n != 0 {
		t.Errorf("%d groups after refusals", n)
	}
}

// Members with different patterns are in different lanes; a message goes to one that can take it.
func TestLanes(t *testing.T) {
	b := newBroker(t, nil)
	eu := join(t, b, JoinOptions{Patterns: []string{"job.eu"}, MaxInFlight: 2})
	all := join(t, b, JoinOptions{Patterns: []string{"job.*"}, MaxInFlight: 2})
	publish(t, b, post{topic: "job.us", payload: "us"})
	g, _ := take(all)
	wantPayloads(t, g.payloads, []string{"us"})
	if _, wrong := take(eu); wrong {
		t.Error("a member got a message that its patterns do not match")
	}
	publish(t, b, numbered("job.eu", 0, 9)...)
	a, _ := takeEverything(eu)
	c, _ := takeEverything(all)
	if len(a) != 2 || len(c) != 1 {
		t.Errorf("members with free credit 2 and 1 got %v and %v", a, c)
	}
	eu.Ack(SequenceRange{1, 100})
	all.Ack(SequenceRange{1, 100})
	for {
		x, _ := takeEverything(eu)
		y, _ := takeEverything(all)
		if len(x)+len(y) == 0 {
			break
		}
		a, c = append(a, x...), append(c, y...)
		eu.Ack(SequenceRange{1, 100})
		all.Ack(SequenceRange{1, 100})
	}
	if len(a)+len(c) != 9 {
		t.Errorf("got %v and %v, want nine messages", a, c)
	}
	publish(t, b, post{topic: "other", payload: "x"})
	wantBooks(t, b, 10, 0, 0)
}
