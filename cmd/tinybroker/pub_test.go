package main

import (
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// What does not go together is refused before anything is reached or read.
func TestPubUsage(t *testing.T) {
	cleanEnvironment(t)
	t.Setenv("TINYBROKER_SERVER", "127.0.0.1:1")
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "pub: needs a TOPIC"},
		{[]string{"-i", "line"}, "pub: needs a TOPIC"},
		{[]string{"a", "b", "c"}, "pub: takes TOPIC and PAYLOAD, got 3 arguments"},
		{[]string{"x", "y", "-i", "line"}, "pub: --input is for standard input and files, and there is a PAYLOAD"},
		{[]string{"x", "y", "-f", "z"}, "pub: --file and a PAYLOAD exclude each other"},
		{[]string{"x", "-n", "2"}, "pub: --count repeats a PAYLOAD, and there is none"},
		{[]string{"x", "y", "-r", "1", "--interval", "1s"}, "pub: --rate and --interval exclude each other"},
		{[]string{"x", "-k", "a", "-K", ":"}, "pub: --key and --key-delimiter exclude each other"},
		{[]string{"x", "-K", ""}, "pub: --key-delimiter is empty"},
		{[]string{"-i", "json", "-K", ":"}, "pub: --key-delimiter has no meaning for json input"},
		{[]string{"x", "-i", "len", "-d", ","}, "pub: --delimiter is for --input line"},
		{[]string{"x", "-i", "nul", "--crlf"}, "pub: --crlf is for --input line"},
		{[]string{"x", "-i", "len", "--skip-empty"}, "pub: --skip-empty is for --input line and nul"},
		{[]string{"x", "y", "--tee", "-o", "json"}, "pub: --tee and --output json exclude each other: both write standard output"},
		{[]string{"x", "-d", ""}, "pub: --delimiter is empty; for one message use --input whole"},
		{[]string{"x", "-d", `\q`}, `pub: --delimiter: "\\q": unknown escape \q; known are \n \r \t \0 \\ \xNN`},
		{[]string{"x", "-H", "novalue"}, `pub: --header: "novalue" is not NAME:VALUE`},
		{[]string{"x", "-H", ":v"}, `pub: --header: ":v" is not NAME:VALUE`},
		{[]string{"x", "y", "-k", "\xff"}, "pub: --key is not UTF-8"},
		{[]string{"x", "-K", "\xff"}, `pub: --key-delimiter is not UTF-8; write \xNN for bytes`},
		{[]string{"a..b", "y"}, `pub: invalid topic "a..b": segment 2 is empty`},
		{[]string{"$tb.x", "y"}, `pub: invalid topic "$tb.x"`},
		{[]string{"*", "y"}, `pub: invalid topic "*"`},
		{[]string{"x", "-r", "-1"}, `--rate: "-1" is not a number of messages a second`},
		{[]string{"x", "--max-inflight", "0"}, `--max-inflight: "0" is not a whole number between 1 and 16777216`},
	} {
		stdout, stderr, end := runHere(t, "input\n", append([]string{"pub"}, c.args...)...)
		if end.code != exitUsage || stdout != "" || !strings.HasPrefix(stderr, "tinybroker: "+c.want) {
			t.Errorf("%q: %d, %q", c.args, end.code, stderr)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"x", "{{", "-T"}, "pub: template: 1: unclosed action"},
		{[]string{"{{.Nope}}", "y", "-T"}, "pub: template: 1:2: <.Nope>: can't evaluate field Nope"},
		{[]string{"x", "y", "-T", "-H", "a:{{.Nope}}"}, "pub: template: 1:2: <.Nope>: can't evaluate field Nope"},
	} {
		_, stderr, end := runHere(t, "", append([]string{"pub"}, c.args...)...)
		if end.code != exitInput || !strings.HasPrefix(stderr, "tinybroker: "+c.want+"\nhint: as in tinybroker pub -T ") {
			t.Errorf("%q: %d, %q", c.args, end.code, stderr)
		}
	}
}

// Who expects of -f - what other tools make of it learns what does that here.
func TestPubFileDash(t *testing.T) {
	cleanEnvironment(t)
	const want = "tinybroker: --file -: no such file or directory\n" +
		"hint: without --file pub reads standard input; -i whole makes one message of it\n"
	if _, stderr, end := runHere(t, "input\n", "pub", "x", "-f", "-"); end.code != exitNoInput || stderr != want {
		t.Errorf("%d, %q", end.code, stderr)
	}
}

func TestTemplates(t *testing.T) {
	o := newPubOptions()
	o.template, o.topic, o.key, o.headers = true, "t.{{.Seq}}.{{.Line}}", "{{.UUID}}", []string{"id-{{.Seq}}:{{.UUID}}", "at:{{.Now}}"}
	o.given = map[string]bool{}
	c, err := newComposer(o)
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	for n, line := range []string{"plain {{.Seq}}", "{{.UnixMilli}} {{.Host}}", `{{.Now.Format "2006"}}`} {
		m, err := c.message(record{number: uint64(n + 10), data: []byte(line)})
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("t.%d.%d", n+1, n+10); m.Topic != want {
			t.Errorf("topic %q, want %q", m.Topic, want)
		}
		if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(m.Key) {
			t.Errorf("key %q", m.Key)
		}
		if m.Headers[fmt.Sprintf("id-%d", n+1)] != m.Key {
			t.Errorf("one message has two UUIDs: %q and %v", m.Key, m.Headers)
		}
		if at, err := time.Parse(time.RFC3339Nano, m.Headers["at"]); err != nil || at.Before(before.Add(-time.Second)) {
			t.Errorf("at %q", m.Headers["at"])
		}
		if strings.Contains(string(m.Payload), "{{") {
			t.Errorf("payload %q", m.Payload)
		}
	}
	for line, want := range map[string]string{
		"{{.Seq":       "template: 1: unclosed action",
		"{{.Payload}}": "template: 1:2: <.Payload>: can't evaluate field Payload",
		"{{exec}}":     `template: 1: function "exec" not defined`,
	} {
		if _, err := c.message(record{number: 1, data: []byte(line)}); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", line, err, want)
		}
	}
	// A record that fails takes no number.
	if m, err := c.message(record{number: 1, data: nil}); err != nil || m.Topic != "t.4.1" {
		t.Errorf("%v, %v", m, err)
	}
	o.topic = "bad topic {{.Seq}}"
	if c, err = newComposer(o); err != nil {
		t.Fatal(err)
	}
	if _, err := c.message(record{number: 1}); !errors.Is(err, core.ErrTopicInvalid) {
		t.Errorf("a topic that is filled in is not checked: %v", err)
	}
}

// Without -T, braces are text.
func TestBracesAreText(t *testing.T) {
	o := newPubOptions()
	o.topic, o.given = "x", map[string]bool{}
	c, err := newComposer(o)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := c.message(record{number: 1, data: []byte("{{.Seq")}); err != nil || string(m.Payload) != "{{.Seq" {
		t.Errorf("%v, %v", m, err)
	}
}

func TestLedgerNamesWhatIsUnconfirmed(t *testing.T) {
	stdin, a, b := &input{unit: "line"}, &input{name: "a", unit: "line"}, &input{name: "b"}
	var l ledger
	for _, s := range []sent{{in: stdin, number: 1}, {in: stdin, number: 2}, {in: stdin, number: 3}, {in: stdin, number: 5}, {in: a, number: 1}, {in: a, number: 2}, {in: b, number: 1}} {
		l.add(s)
	}
	if got, want := l.unconfirmed(), "lines 1-3, line 5, a: lines 1-2, b"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if done := l.settle(2, 1, true); len(done) != 2 || done[1].where() != "line 2" {
		t.Errorf("%v", done)
	}
	l.settle(1, 0, false)
	l.takeBack()
	if got, want := l.unconfirmed(), "line 5, a: lines 1-2"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if confirmed, refused, unrouted, open := l.counts(); confirmed != 2 || refused != 1 || unrouted != 1 || open != 3 {
		t.Errorf("%d, %d, %d, %d", confirmed, refused, unrouted, open)
	}
	for n := range 20 {
		l.add(sent{in: stdin, number: uint64(2*n + 10)})
	}
	if got := l.unconfirmed(); strings.Count(got, ",") != 5 || !strings.HasSuffix(got, ", …") {
		t.Errorf("%q", got)
	}
}

func TestReceipts(t *testing.T) {
	in := &input{unit: "line"}
	for _, c := range []struct {
		r    rpc.Receipt
		want string
	}{
		{rpc.Receipt{First: 1, Last: 40, Unrouted: 2}, `{"first":1,"last":40,"unrouted":2}`},
		{rpc.Receipt{First: 41, Last: 41, Err: errors.New(`"bad"`)}, `{"first":41,"last":41,"unrouted":0,"error":"\"bad\"","record":"line 43"}`},
	} {
		if got := string(appendReceipt(nil, c.r, []sent{{in: in, number: 43}})); got != c.want+"\n" {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
	// The name of a file need not be UTF-8.
	got := string(appendReceipt(nil, rpc.Receipt{First: 1, Last: 1, Err: errors.New("bad")}, []sent{{in: &input{name: "b\xff"}}}))
	if want := `{"first":1,"last":1,"unrouted":0,"error":"bad","record":"b\ufffd"}` + "\n"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestPacer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacer{gap: 10 * time.Millisecond}
		began := time.Now()
		for range 101 {
			if err := p.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("100 gaps took %v", took)
		}
		// What was late is made up for, but not without end.
		time.Sleep(50 * time.Millisecond)
		began = time.Now()
		for range 5 {
			p.wait(t.Context())
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("5 late messages took %v", took)
		}
		time.Sleep(time.Hour)
		began = time.Now()
		for range 11 {
			p.wait(t.Context())
		}
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Errorf("after an hour, 10 gaps took %v", took)
		}
	})
}

func TestTally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []uint64
		y := tally{tell: func(n uint64) { told = append(told, n) }}
		for range 30 { // three seconds
			y.add(1)
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		y.close()
		if len(told) > 4 || told[0] != 1 { // at once, and then once a second
			t.Errorf("%v", told)
		}
		sum := uint64(0)
		for _, n := range told {
			sum += n
		}
		if sum != 30 {
			t.Errorf("%v: %d in all, want 30", told, sum)
		}
	})
}

func TestCollectorPercent(t *testing.T) {
	const room = 128 << 20
	for live, want := range map[uint64]int{0: 3200, 4 << 20: 3200, 16 << 20: 800, 128 << 20: 100, 512 << 20: 25, 4 << 30: minPercent} {
		if got := collectorPercent(room, live); got != want {
			t.Errorf("%d bytes alive: %d percent, want %d", live, got, want)
		}
	}
}

func TestTuneCollector(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	stop := tuneCollector(512 << 20)
	if got := debug.SetGCPercent(77); got != 3200 {
		t.Errorf("%d percent at the start", got)
	}
	ballast := make([]byte, 64<<20)
	eventually(t, "the percentage follows the heap", func() bool {
		debug.FreeOSMemory() // collects
		got := debug.SetGCPercent(77)
		// Other tests of this process may hold something, too.
		want := collectorPercent(128<<20, liveHeap())
		return want <= 200 && got >= want*9/10 && got <= want*11/10
	})
	clear(ballast)
	stop()
	if got := debug.SetGCPercent(100); got != 100 {
		t.Errorf("%d percent afterwards", got)
	}
	t.Setenv("GOGC", "50")
	tuneCollector(512 << 20)()
	if got := debug.SetGCPercent(100); got != 100 {
		t.Errorf("%d percent though GOGC is set", got)
	}
}

func TestVersionFallsBack(t *testing.T) {
	info := func(i debug.BuildInfo, ok bool) func() (*debug.BuildInfo, bool) {
		return func() (*debug.BuildInfo, bool) { return &i, ok }
	}
	settings := func(pairs ...string) (list []debug.BuildSetting) {
		for i := 0; i < len(pairs); i += 2 {
			list = append(list, debug.BuildSetting{Key: pairs[i], Value: pairs[i+1]})
		}
		return list
	}
	for _, c := range []struct {
		release string
		build   func() (*debug.BuildInfo, bool)
		want    string
	}{
		{"1.2.3", info(debug.BuildInfo{}, false), "1.2.3"},
		{"", info(debug.BuildInfo{}, false), "unknown"},
		{"", info(debug.BuildInfo{Main: debug.Module{Version: "v1.0.0"}}, true), "v1.0.0"},
		{"", info(debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, true), "devel"},
		{"", info(debug.BuildInfo{Settings: settings("vcs.revision", "0123456789abcdef")}, true), "devel-0123456789ab"},
		{"", info(debug.BuildInfo{Settings: settings("vcs.revision", "0123", "vcs.modified", "true")}, true), "devel-0123+dirty"},
	} {
		if got := versionFrom(c.release, c.build); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
