//go:build unix

package main

import (
	"strings"
	"testing"
	"time"
)

// The judges of the soak, each with a history in which nothing is wrong and with some in which something is.
func TestSoakJudges(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	fate := func(change func(*soakFate)) map[string]*soakFate {
		f := &soakFate{
			name: "p", topic: func(int) string { return "soak.a" }, begun: 10, confirmed: 10,
			refused: map[int]bool{}, poison: map[int]bool{}, begunAt: map[int]time.Time{}, confirmedAt: map[int]time.Time{},
		}
		for n := 1; n <= 10; n++ {
			f.begunAt[n] = began.Add(time.Duration(n)*time.Second - 100*time.Millisecond)
			f.confirmedAt[n] = began.Add(time.Duration(n) * time.Second)
		}
		if change != nil {
			change(f)
		}
		return map[string]*soakFate{"p": f}
	}
	stop := func(seconds int) soakStop {
		at := began.Add(time.Duration(seconds) * time.Second)
		return soakStop{at: at, ended: at}
	}
	all := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for name, c := range map[string]struct {
		got     []int
		dropped uint64
		fate    func(*soakFate)
		change  func(*soakEpoch)
		want    string // empty: nothing is wrong
	}{
		"everything":                      {got: all},
		"all but the first, not known":    {got: all[3:], change: func(e *soakEpoch) { e.opened = nil }},
		"opened later":                    {got: all[3:], change: func(e *soakEpoch) { e.opened["p"] = 3 }},
		"a prefix of an ended one":        {got: all[:4], change: func(e *soakEpoch) { e.open = false }},
		"lost at the end":                 {got: all[:4], want: "p 5 is missing"},
		"lost at the beginning":           {got: all[4:], want: "p 1 is missing"},
		"lost in the middle":              {got: []int{1, 2, 4, 5}, change: func(e *soakEpoch) { e.open = false }, want: "p 3 is missing"},
		"nothing came":                    {want: "p 1 is missing"},
		"turned round":                    {got: []int{1, 3, 2, 4, 5, 6, 7, 8, 9, 10}, want: "p 2 came after 3"},
		"twice":                           {got: []int{1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 10}, want: "p 2 came twice"},
		"twice, and sent twice":           {got: []int{1, 2, 3, 2, 3, 4, 5, 6, 7, 8, 9, 10}, fate: func(f *soakFate) { f.doubt = []soakSpan{{2, 3}} }},
		"sent twice and lost":             {got: []int{1, 2, 4, 5, 6, 7, 8, 9, 10}, fate: func(f *soakFate) { f.doubt = []soakSpan{{2, 3}} }, want: "p 3 is missing"},
		"never sent":                      {got: append(all[:10:10], 11), want: "p 11 came and was never sent"},
		"refused":                         {got: all, fate: func(f *soakFate) { f.refused[5] = true }, want: "p 5 came though it was refused"},
		"refused, and did not come":       {got: []int{1, 2, 3, 4, 6, 7, 8, 9, 10}, fate: func(f *soakFate) { f.refused[5] = true }},
		"dropped and told":                {got: []int{1, 4, 5, 6, 7, 8, 9, 10}, dropped: 2, change: drops},
		"dropped and not told":            {got: []int{1, 4, 5, 6, 7, 8, 9, 10}, dropped: 1, change: drops, want: "2 messages are missing, 1 are said to be dropped"},
		"dropped twice, and sent twice":   {got: []int{1, 4, 5, 6, 7, 8, 9, 10}, dropped: 4, change: drops, fate: func(f *soakFate) { f.doubt = []soakSpan{{2, 3}} }},
		"told and not dropped":            {got: all, dropped: 1, change: drops, want: "1 messages are said to be dropped, 0 are missing"},
		"drops with another policy":       {got: all, dropped: 1, want: "with a policy that drops none"},
		"unconfirmed of one that is gone": {got: all[:7], fate: func(f *soakFate) { f.gone, f.confirmed = true, 6 }},
		"dropped of one that is gone":     {got: all[:7], dropped: 3, change: drops, fate: func(f *soakFate) { f.gone, f.confirmed = true, 6 }},
		"more than one that is gone sent": {got: all[:7], dropped: 4, change: drops, fate: func(f *soakFate) { f.gone, f.confirmed = true, 6 },
			want: "4 messages are said to be dropped, 0 are missing"},
	} {
		e := newSoakEpoch("s", false)
		e.opened, e.open, e.quiet, e.dropped = map[string]int{"p": 0}, true, true, c.dropped
		if c.got != nil {
			e.got["p"] = c.got
		}
		if c.change != nil {
			c.change(e)
		}
		wantVerdict(t, "broadcast: "+name, e.judge(fate(c.fate)), c.want)
	}

	m1, m2, crashed := &soakStream{name: "m1"}, &soakStream{name: "m2"}, &soakStream{name: "crashed", unclean: true}
	handled := func(numbers ...int) (hs []soakHandling) {
		for i, n := range numbers {
			hs = append(hs, soakHandling{sender: "p", n: n, key: "k", stream: []*soakStream{m1, m2}[i%2], attempt: 1})
		}
		return hs
	}
	by := func(stream *soakStream, n int) soakHandling {
		return soakHandling{sender: "p", n: n, key: "k", stream: stream, attempt: 2}
	}
	for name, c := range map[string]struct {
		handled []soakHandling
		fate    func(*soakFate)
		change  func(*soakGroup)
		stops   []soakStop
		want    string
	}{
		"everything":              {handled: handled(all...)},
		"lost":                    {handled: handled(1, 2, 3, 4, 5, 6, 7, 8, 10), want: "p 9 was accepted and handled by nobody"},
		"lost by a violent end":   {handled: handled(all[:7]...), stops: []soakStop{stop(11)}},
		"lost long before it":     {handled: handled(all[1:]...), stops: []soakStop{stop(20)}, want: "p 1 was accepted"},
		"lost after it":           {handled: handled(all[:9]...), stops: []soakStop{stop(5)}, want: "p 10 was accepted"},
		"lost by an end in order": {handled: handled(all[:7]...), stops: []soakStop{{at: began.Add(11 * time.Second), ended: began.Add(11 * time.Second), clean: true}}, want: "p 8 was accepted"},
		"published before the group is back": {handled: handled(1, 2, 3, 4, 7, 8, 9, 10), stops: []soakStop{{
			at: began.Add(4500 * time.Millisecond), ended: began.Add(4500 * time.Millisecond), clean: true, back: map[string]time.Time{"g": began.Add(6500 * time.Millisecond)},
		}}},
		"published before it, told after it": {handled: handled(1, 2, 3, 4, 6, 7, 8, 9, 10), stops: []soakStop{{
			at: began.Add(4500 * time.Millisecond), ended: began.Add(4500 * time.Millisecond), clean: true, back: map[string]time.Time{"g": began.Add(4950 * time.Millisecond)},
		}}},
		"twice":                             {handled: append(handled(all...), by(m2, 10)), want: "p 10 was handled again and again"},
		"again after a crash":               {handled: append([]soakHandling{by(crashed, 1)}, handled(all...)...)},
		"again and again after a crash":     {handled: append([]soakHandling{by(crashed, 1), by(m2, 1)}, handled(all...)...), want: "p 1 was handled again and again"},
		"late, at a crashed one":            {handled: append(handled(all...), by(crashed, 3))},
		"twice, and sent twice":             {handled: append(handled(all...), by(m2, 10)), fate: func(f *soakFate) { f.doubt = []soakSpan{{10, 10}} }},
		"a key turned round":                {handled: handled(1, 3, 2, 4, 5, 6, 7, 8, 9, 10), want: "p 2 with key k was handled after 3"},
		"refused":                           {handled: handled(all...), fate: func(f *soakFate) { f.refused[5] = true }, want: "p 5 was handled though it was refused"},
		"poison":                            {handled: handled(all...), fate: func(f *soakFate) { f.poison[5] = true }, change: func(g *soakGroup) { g.rejects = true }, want: "p 5 was rejected and handled"},
		"not for this group":                {handled: handled(all...), change: func(g *soakGroup) { g.takes = func(string) bool { return false } }, want: "is not for this group"},
		"never sent":                        {handled: handled(append(all[:10:10], 11)...), want: "p 11 was handled and never sent"},
		"lost without acks, nobody crashed": {handled: handled(all[:9]...), change: func(g *soakGroup) { g.none = true }, want: "p 10 was accepted"},
	} {
		g := soakGroup{name: "g", takes: func(string) bool { return true }, handled: c.handled}
		if c.change != nil {
			c.change(&g)
		}
		wantVerdict(t, "group: "+name, g.judge(fate(c.fate), c.stops), c.want)
	}

	seen := []soakMark{{"p", 1}, {"q", 1}, {"p", 2}}
	fates := map[string]*soakFate{"p": {}, "q": {}}
	wantVerdict(t, "shared topic", judgeSharedOrder("s", seen, seen[1:], fates), "")
	wantVerdict(t, "shared topic turned round", judgeSharedOrder("s", seen, []soakMark{{"q", 1}, {"p", 1}}, fates), "p 1 came after q 1")

	for _, payload := range []string{"", "p 1", soakText("p", 1, "t", "k", 50) + ".", soakText("p", 2, "other", "k", 50), soakText("p", 2, "t", "k", 50)[1:]} {
		if _, _, err := readSoakText("t", "k", payload); err == nil {
			t.Errorf("%q is taken for whole", payload)
		}
	}
	if sender, n, err := readSoakText("t", "k", soakText("p", 7, "t", "k", 50)); sender != "p" || n != 7 || err != nil {
		t.Errorf("%q, %d, %v", sender, n, err)
	}
}

func drops(e *soakEpoch) { e.drops = true }

// wantVerdict wants no fault, or one that says so.
func wantVerdict(t *testing.T, name string, faults []string, want string) {
	t.Helper()
	all := strings.Join(faults, "\n")
	if want == "" && all != "" || !strings.Contains(all, want) {
		t.Errorf("%s: the judge says %q, want %q", name, all, want)
	}
}
