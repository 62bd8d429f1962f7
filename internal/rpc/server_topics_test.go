package rpc

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// TestPatternTable: every pattern is subscribed, every topic published; what arrives is compared with the table.
func TestPatternTable(t *testing.T) {
	stub := newStation(t, nil).stub(t)
	topics := strings.Fields("a b c a.b a.c ab ac abc a.b.c abc.d ax.b ab.c a.bc a.d a.b.c.d ad a.bd a.bx.c a.b.x.c a.bb.c a.e.d a.b.d a.c.d a.b.e a.c.d.e a.c.e A.b x")
	for _, test := range []struct{ patterns, want string }{
		{"a.*", "a.b a.c a.bc a.d a.bd"},
		{"a.**", "a a.b a.c a.b.c a.bc a.d a.b.c.d a.bd a.bx.c a.b.x.c a.bb.c a.e.d a.b.d a.c.d a.b.e a.c.d.e a.c.e"},
		{"**.c", "c a.c a.b.c ab.c a.bx.c a.b.x.c a.bb.c"},
		{"a.**.d", "a.d a.b.c.d a.e.d a.b.d a.c.d"},
		{"**", strings.Join(topics, " ")},
		{"*", "a b c ab ac abc ad x"},
		{"a*c", "ac abc"},
		{"a.b*.c", "a.b.c a.bx.c a.bb.c"},
		{"a.?.c", "a.b.c"},
		{"a.[bc].d", "a.b.d a.c.d"},
		{"a.[!bc].d", "a.e.d"},
		{"a.{b,c.d}.e", "a.b.e a.c.d.e"},
		{`a.\*`, ""},
		{"A.b", "A.b"},
		{`\a.b`, "a.b"},
		{"a.* !a.b", "a.c a.bc a.d a.bd"},
		{"!a.** **", "b c ab ac abc abc.d ax.b ab.c ad A.b x"},
		{"a.b a.* a.?", "a.b a.c a.bc a.d a.bd"},
		{"**.**", strings.Join(topics, " ")},
	} {
		t.Run(test.patterns, func(t *testing.T) {
			sub := openPatterns(t, stub, append(strings.Fields(test.patterns), "zz.end")...)
			for _, topic := range topics {
				publishOne(t, stub, topic, nil)
			}
			publishOne(t, stub, "zz.end", nil)
			var got []string
			for len(got) == 0 || got[len(got)-1] != "zz.end" {
				for _, m := range sub.take(t, 1) {
					got = append(got, m.GetTopic())
				}
			}
			got = got[:len(got)-1]
			want := strings.Fields(test.want)
			slices.SortFunc(want, func(a, b string) int { return slices.Index(topics, a) - slices.Index(topics, b) })
			if !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			sub.cancel()
		})
	}
}

// TestNamesOfEveryLength: nothing depends on how long a name is, up to the limit.
func TestNamesOfEveryLength(t *testing.T) {
	stub := newStation(t, nil).stub(t)
	subs := map[string]*stockStream{}
	for _, p := range []string{"**", "*", "a.**"} {
		subs[p] = openPatterns(t, stub, p)
	}
	var topics []string
	for _, n := range append(upTo(70), 127, 128, 129, 255, 256, 257, 511, 512) {
		topics = append(topics, strings.Repeat("x", n))
		if n > 4 {
			topics = append(topics, "a."+strings.Repeat("y", n-2), strings.Repeat("z", n-2)+"ü", strings.Repeat("z", n-1-len("€"))+"€"+"z")
		}
		if n > 6 {
			topics = append(topics, "a."+strings.Repeat("ö", (n-2)/2), strings.Repeat("z", n-4)+"😀")
		}
	}
	for n := range 32 {
		topics = append(topics, strings.Repeat("a.", n)+"s")
	}
	topics = slices.DeleteFunc(topics, func(s string) bool { return len(s) > 512 })
	slices.Sort(topics)
	topics = slices.Compact(topics)
	want := map[string][]string{"**": topics}
	for _, topic := range topics {
		if !strings.Contains(topic, ".") {
			want["*"] = append(want["*"], topic)
		}
		if strings.HasPrefix(topic, "a.") {
			want["a.**"] = append(want["a.**"], topic)
		}
		publishOne(t, stub, topic, []byte(topic))
	}
	for p, sub := range subs {
		for i, m := range sub.take(t, len(want[p])) {
			if m.GetTopic() != want[p][i] || string(m.GetPayload()) != m.GetTopic() {
				t.Fatalf("%s: message %d is on %q, want %q", p, i, m.GetTopic(), want[p][i])
			}
		}
	}
	for _, long := range []string{strings.Repeat("x", 513), strings.Repeat("x", 511) + "ü", strings.Repeat("a.", 32) + "s"} {
		_, err := stub.Publish(t.Context(), &tinybrokerv1.PublishRequest{Topic: long})
		checkStatus(t, err, codes.InvalidArgument, "TOPIC_INVALID")
	}
}

func upTo(n int) []int {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i + 1
	}
	return numbers
}

func TestBadPatterns(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	tooMany := make([]string, 10_000)
	for i := range tooMany {
		tooMany[i] = fmt.Sprintf("p.%d", i)
	}
	for name, patterns := range map[string][]string{
		"none": nil, "one empty": {""}, "empty among good ones": {"a", ""}, "only exclusions": {"!a", "!b.**"}, "exclamation mark alone": {"!"},
		"ten thousand": tooMany, "empty segment": {"a..b"}, "final dot": {"a."}, "stars in a word": {"a**b"}, "open bracket": {"a.[b"},
		"open brace": {"a.{b,c"}, "final escape": {`a\`}, "white space": {"a b"}, "control": {"a\n"},
		"explosion of braces": {strings.Repeat("{a,b}", 12)}, "wildcards": {strings.Repeat("*a", 2000)},
		"too long": {strings.Repeat("a", 100_000)}, "hundred segments": {strings.Repeat("a.", 5000) + "a"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tryOpen(t.Context(), stub, &tinybrokerv1.OpenSubscription{TopicPatterns: patterns})
			checkStatus(t, err, codes.InvalidArgument, "PATTERN_INVALID")
		})
	}
	if n := station.broker.Stats().Subscriptions; n != 0 {
		t.Errorf("%d subscriptions", n)
	}
}

// TestBrokerTopicsStayHidden: what the broker itself publishes is seen only by those who spell the prefix.
func TestBrokerTopicsStayHidden(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	spelt := openPatterns(t, stub, "$tb.event.**", "end")
	braces := openPatterns(t, stub, "{a,$tb}.event.*.*", "end")
	hidden := openPatterns(t, stub, "**", "*.**", "*", "*.event.**", "?tb.**", "[$]tb.**", "**.opened", "*tb.event.**", "{*,**}.subscription.opened")
	openPatterns(t, stub, "x").cancel()
	eventually(t, "the subscription is gone", func() bool { return station.broker.Stats().Subscriptions == 3 })
	open(t, station.stub(t, frozenOptions()...), &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"f"}, Capacity: 1})
	published := int(fill(t, station, stub, "f"))
	publishOne(t, stub, "end", nil)
	for _, sub := range []*stockStream{spelt, braces} {
		topics := map[string]int{}
		for topics["end"] == 0 {
			for _, m := range sub.take(t, 1) {
				topics[m.GetTopic()]++
			}
		}
		if topics["$tb.event.subscription.opened"] < 2 || topics["$tb.event.subscription.evicted"] != 1 || topics["$tb.event.subscription.closed"] < 1 {
			t.Errorf("events %v", topics)
		}
	}
	for _, m := range hidden.take(t, published+1) {
		if topic := m.GetTopic(); topic != "f" && topic != "end" {
			t.Errorf("%q was delivered", topic)
		}
	}
}
