package main

import (
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// linkedHosts are the only hosts that pages link to: few, since nobody checks here whether they are still there.
var linkedHosts = []string{
	"github.com", "codeberg.org", "www.apache.org",
	// What the comparisons are about, as their makers describe it.
	"kafka.apache.org", "docs.nats.io", "redis.io", "www.rabbitmq.com", "docs.oasis-open.org", "www.postgresql.org",
	"grpc.io", "protobuf.dev",
}

var (
	inlineCode = regexp.MustCompile("`[^`]*`")
	inlineLink = regexp.MustCompile(`\]\(\s*([^)\s]+)[^)]*\)`)
	namedLink  = regexp.MustCompile(`(?m)^\[[^\]]+\]:\s*(\S+)`)
	bareURL    = regexp.MustCompile(`https?://[^\s)>\]"]+`)
	heading    = regexp.MustCompile(`(?m)^#{1,6} +(.*?) *#*$`)
)

// TestDocumentedLinks checks that links between pages lead somewhere, to a heading too, and that links to elsewhere are
// well formed.
func TestDocumentedLinks(t *testing.T) {
	found := 0
	for _, page := range documents(t) {
		for _, target := range linksOf(readFile(t, page)) {
			found++
			if problem := checkLink(t, page, target); problem != "" {
				t.Errorf("%s: link to %s: %s", pageName(page), target, problem)
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d links found", found)
	}
}

func TestLinksAreChecked(t *testing.T) {
	text := "[a](x.md) `[b](y.md)` ![c](z.png \"title\")\n\n```text\n[d](d.md)\n```\n[e]: https://github.com/x\n<https://nowhere.example/>\n"
	if got := linksOf(text); !slices.Equal(got, []string{"x.md", "z.png", "https://github.com/x", "https://nowhere.example/"}) {
		t.Errorf("found %q", got)
	}
	page := filepath.Join(root, "docs", "index.md")
	for target, good := range map[string]bool{
		"broadcast.md": true, "broadcast.md#eviction": true, "../README.md": true, "#tinybroker": true, "decisions": true,
		"broadcast.md#no-such-heading": false, "nothing.md": false, "#nothing": false, "/docs/broadcast.md": false,
		"https://github.com/fullstorydev/grpcurl": true, "http://github.com/": false, "https://nowhere.example/": false, "ftp://github.com/x": false,
	} {
		if got := checkLink(t, page, target); (got == "") != good {
			t.Errorf("%s: %q", target, got)
		}
	}
	if got := anchors("# A `b`, c-d\n## What's _new_?\n## What's _new_?\n```sh\n# not one\n```\n"); !slices.Equal(got, []string{"a-b-c-d", "whats-_new_", "whats-_new_-1"}) {
		t.Errorf("anchors %q", got)
	}
}

// TestEveryPageIsLinked: whoever begins with docs/index.md gets to every page, in one way or another.
func TestEveryPageIsLinked(t *testing.T) {
	reached := map[string]bool{}
	next := []string{filepath.Join(root, "docs", "index.md")}
	for len(next) > 0 {
		page := next[0]
		next = next[1:]
		if reached[page] {
			continue
		}
		reached[page] = true
		for _, target := range linksOf(readFile(t, page)) {
			file, _, _ := strings.Cut(target, "#")
			file = filepath.Join(filepath.Dir(page), filepath.FromSlash(file))
			if info, err := os.Stat(file); err == nil && info.IsDir() {
				inside, err := filepath.Glob(filepath.Join(file, "*.md"))
				if err != nil {
					t.Fatal(err)
				}
				next = append(next, inside...)
			} else if err == nil && filepath.Ext(file) == ".md" {
				next = append(next, file)
			}
		}
	}
	for _, page := range documents(t) {
		if !reached[page] && strings.HasPrefix(pageName(page), "docs/") {
			t.Errorf("%s: nothing leads there; add it to docs/index.md", pageName(page))
		}
	}
}

// TestDecisions: the pages are numbered without a gap, begin with their number, and are all in the table, in order.
func TestDecisions(t *testing.T) {
	dir := filepath.Join(root, "docs", "decisions")
	pages, err := filepath.Glob(filepath.Join(dir, "[0-9]*.md"))
	if err != nil || len(pages) < 18 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	slices.Sort(pages)
	var listed []string
	for _, target := range linksOf(readFile(t, filepath.Join(dir, "README.md"))) {
		listed = append(listed, filepath.Join(dir, target))
	}
	if !slices.Equal(listed, pages) {
		t.Errorf("the table has %q,\nthere are %q", listed, pages)
	}
	for i, page := range pages {
		if number := fmt.Sprintf("%04d-", i+1); !strings.HasPrefix(filepath.Base(page), number) {
			t.Errorf("%s: want %s…", filepath.Base(page), number)
		}
		if title := fmt.Sprintf("# %d. ", i+1); !strings.HasPrefix(readFile(t, page), title) {
			t.Errorf("%s does not begin with %q", pageName(page), title)
		}
	}
}

// withoutCode takes away what only looks like Markdown.
func withoutCode(text string) string {
	var b strings.Builder
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		} else if !fenced {
			b.WriteString(line)
		}
	}
	return b.String()
}

func linksOf(text string) []string {
	text = inlineCode.ReplaceAllString(withoutCode(text), "")
	var targets []string
	for _, form := range []*regexp.Regexp{inlineLink, namedLink} {
		for _, m := range form.FindAllStringSubmatch(text, -1) {
			targets = append(targets, m[1])
		}
		text = form.ReplaceAllString(text, "")
	}
	return append(targets, bareURL.FindAllString(text, -1)...)
}

func checkLink(t *testing.T, page, target string) string {
	t.Helper()
	u, err := url.Parse(target)
	switch {
	case err != nil:
		return err.Error()
	case u.Scheme != "" && u.Scheme != "https":
		return "not https"
	case u.Host != "" && !slices.Contains(linkedHosts, u.Host):
		return "not a host that pages link to"
	case u.Host != "":
		return ""
	case path.IsAbs(u.Path):
		return "not relative"
	}
	file := page
	if u.Path != "" {
		file = filepath.Join(filepath.Dir(page), filepath.FromSlash(u.Path))
	}
	if _, err := os.Stat(file); err != nil {
		return err.Error()
	}
	if u.Fragment != "" && (filepath.Ext(file) != ".md" || !slices.Contains(anchors(readFile(t, file)), u.Fragment)) {
		return "no such heading"
	}
	return ""
}

// anchors are the names that renderers give to the headings of a page.
func anchors(text string) []string {
	var names []string
	times := map[string]int{}
	for _, m := range heading.FindAllStringSubmatch(withoutCode(text), -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1])
		times[name]++
		if n := times[name] - 1; n > 0 {
			name += "-" + string(rune('0'+n))
		}
		names = append(names, name)
	}
	return names
}
