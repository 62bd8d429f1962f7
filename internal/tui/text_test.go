package tui

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

func TestWriteText(t *testing.T) {
	for _, c := range []struct {
		view core.View
		o    TextOptions
		has  []string
	}{
		{core.ViewOverview, TextOptions{Address: "127.0.0.1:7710"}, []string{
			"tinybroker 127.0.0.1:7710  up 3d04h  42 clients  mem 118M/512M\n", "; 91,234,567 messages in all\n", "\nbusiest topics\nTOPIC ", "\nfullest queues\n", "\nlast evictions\n",
			"evictions 17, dropped 0, lost with subscriptions 9,100, dead letters 3\n",
		}},
		{core.ViewTopics, TextOptions{}, []string{"metrics.host.cpu.and-a-very-long-name-that-does-not-fit-into-any-column ", "世界.ニュース"}},
		{core.ViewSubscriptions, TextOptions{ASCII: true}, []string{"frozen-1      root@build-7.example  ** !metrics.**                 stalled       12/100 "}},
		{core.ViewGroups, TextOptions{}, []string{"GROUP    MEMBERS  PENDING  IN-FLIGHT"}},
		{core.ViewMembers, TextOptions{}, []string{"m3      worker-3  stalled      64/64    <1%     1m35s"}},
		{core.ViewEvictions, TextOptions{}, []string{"12:01:44  k3v9w1        billing-7             orders.created  queue full  65.5k"}},
	} {
		var out bytes.Buffer
		c.o.Zone = time.UTC
		if err := WriteText(&out, sample(), c.view, c.o); err != nil {
			t.Fatal(err)
		}
		for _, text := range c.has {
			if !strings.Contains(out.String(), text) {
				t.Errorf("view %d: no %q in\n%s", c.view, text, out.String())
			}
		}
		for line := range strings.Lines(out.String()) {
			if strings.TrimRight(line, " \n")+"\n" != line || strings.ContainsAny(line, "\x1b█▁") {
				t.Errorf("view %d: %q", c.view, line)
			}
		}
	}
	// That nothing is there says nothing of what there was, where only some of it was asked for.
	for filter, want := range map[string]string{"": noTopics, "zzz": `nothing here contains "zzz"`} {
		var out bytes.Buffer
		if err := WriteText(&out, &core.Snapshot{}, core.ViewTopics, TextOptions{Filter: filter}); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("filter %q: %v, %s", filter, err, out.String())
		}
	}
	// Names are escaped, and in whole.
	var out bytes.Buffer
	if err := WriteText(&out, many(len(hostileNames), hostileName), core.ViewSubscriptions, TextOptions{}); err != nil {
		t.Fatal(err)
	}
	if strings.Count(out.String(), "\n") != len(hostileNames)+1 || !strings.Contains(out.String(), strings.Repeat("a", 512)) {
		t.Errorf("%s", out.String())
	}
	if head, _, _ := strings.Cut(out.String(), "\n"); len(head) > 400 {
		t.Errorf("a long name makes every row %d columns wide", len(head))
	}
	for _, r := range out.String() {
		if r != '\n' && odd(r) || r < 0x20 && r != '\n' {
			t.Errorf("%U in the output", r)
		}
	}
}

func TestWithoutLastWord(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "word": "", "two words": "two ", "two words  ": "two ", "  ": "", "a\u3000b": "a\u3000", "a\u3000b\u00a0\u3000": "a\u3000", "世 界": "世 ",
	} {
		if got := string(withoutLastWord([]rune(text))); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}
