//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// The fenced blocks of the README and of docs/*.md are run as a reader would run them, page by page against a broker of
// the page's own. Words after the language say how; renderers do not show them:
//
//	sh               a shell script; it must succeed
//	sh terminal=2    the same in a terminal of its own, where it may go on until the page ends or the terminal is used
//	                 again: it counts as started once a broker listens or a subscription is open
//	sh stays         neither ends nor says when it is ready
//	sh needs=grpcurl wants that program
//	sh ci            run by .ci/run, not here
//	text terminal=2  what that terminal shows, sooner or later, times and addresses aside; … is the rest of a line
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	for _, path := range documents(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			var page *page
			if filepath.Base(path) == "cli.md" {
				t.Skip("made from the help, whose examples are tested there")
			}
			for _, b := range readBlocks(t, path) {
				if b.lang == "text" && b.option("terminal") == "" || b.lang != "sh" && b.lang != "text" || b.has("ci") {
					continue
				}
				if page == nil {
					page = openPage(t)
				}
				if b.lang == "sh" {
					page.run(b)
				} else {
					page.expect(b)
				}
			}
		})
	}
}

// TestDocumentedMakeTargets checks the commands that the test above leaves to .ci/run.
func TestDocumentedMakeTargets(t *testing.T) {
	makefile := readFile(t, "../../Makefile")
	for _, path := range documents(t) {
		for _, m := range regexp.MustCompile("(?m)(?:^|`)make ([a-z-]+)").FindAllStringSubmatch(readFile(t, path), -1) {
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s: the Makefile has no target %q", path, m[1])
			}
		}
	}
}

// TestDocumentedPatterns checks every table whose columns are patterns, what they match and what they do not.
func TestDocumentedPatterns(t *testing.T) {
	rows := 0
	quoted := regexp.MustCompile("`([^`]*)`")
	for _, path := range documents(t) {
		inTable := false
		for i, line := range strings.Split(readFile(t, path), "\n") {
			cells := strings.Split(line, "|")
			switch {
			case len(cells) != 5:
				inTable = false
				continue
			case strings.HasPrefix(strings.TrimSpace(cells[1]), "pattern"):
				inTable = true
				continue
			case !inTable || strings.Contains(line, "---"):
				continue
			}
			rows++
			var words [3][]string
			for c := range words {
				for _, m := range quoted.FindAllStringSubmatch(cells[c+1], -1) {
					words[c] = append(words[c], m[1])
				}
			}
			set, err := core.ParsePatterns(words[0])
			if err != nil {
				t.Errorf("%s:%d: %v", path, i+1, err)
				continue
			}
			for c, want := range []bool{true, false} {
				for _, topic := range words[c+1] {
					if set.Match(topic) != want {
						t.Errorf("%s:%d: %q against %q: want match %v", path, i+1, words[0], topic, want)
					}
				}
			}
		}
	}
	if rows < 10 {
		t.Errorf("only %d rows of patterns found", rows)
	}
}

func TestDocumentedLimits(t *testing.T) {
	page := readFile(t, "../../docs/topics-and-patterns.md")
	for _, row := range []struct {
		what string
		most int
	}{
		{"bytes of a pattern", core.MaxPatternBytes},
		{"alternatives of a pattern after its braces are expanded", core.MaxPatternAlternatives},
		{"segments of an alternative", core.MaxPatternSegments},
		{"wildcards of an alternative (each `*`, `?`, `[ ]`, `**`)", core.MaxPatternWildcards},
		{"`**` of an alternative", core.MaxPatternDoubleStars},
		{"patterns of a subscription, counted after their braces are expanded", core.MaxSetPatterns},
		{"bytes of them all, likewise", core.MaxSetBytes},
		{"wildcards of them all", core.MaxSetWildcards},
	} {
		if want := fmt.Sprintf("| %s | %d |", row.what, row.most); !strings.Contains(page, want) {
			t.Errorf("no row %q", want)
		}
	}
}

// TestDocumentedLinks checks that links between pages lead somewhere.
func TestDocumentedLinks(t *testing.T) {
	for _, path := range documents(t) {
		for _, m := range regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`).FindAllStringSubmatch(readFile(t, path), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s: link to %s: %v", path, m[1], err)
			}
		}
	}
}

// block is one fenced block of a page.
type block struct {
	where   string // file:line
	lang    string
	options []string
	text    string
}

func (b *block) has(option string) bool { return slices.Contains(b.options, option) }

func (b *block) startsBroker() bool { return strings.Contains(b.text, "tinybroker serve") }

func (b *block) option(name string) string {
	for _, o := range b.options {
		if value, ok := strings.CutPrefix(o, name+"="); ok {
			return value
		}
	}
	return ""
}

func documents(t *testing.T) []string {
	t.Helper()
	paths := []string{"../../README.md", "../../CHANGELOG.md"}
	for _, pattern := range []string{"../../docs/*.md", "../../docs/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, found...)
	}
	return paths
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func readBlocks(t *testing.T, path string) []*block {
	t.Helper()
	var blocks []*block
	var open *block
	for i, line := range strings.Split(readFile(t, path), "\n") {
		info, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open != nil:
			blocks = append(blocks, open)
			open = nil
		case fence:
			words := append(strings.Fields(info), "")
			open = &block{where: fmt.Sprintf("%s:%d", path, i+1), lang: words[0], options: words[1:]}
		case open != nil:
			open.text += line + "\n"
		}
	}
	if open != nil {
		t.Fatalf("%s: the block is not closed", open.where)
	}
	return blocks
}

// page is a reader at work: some terminals, one broker.
type page struct {
	t         *testing.T
	dir       string
	env       []string
	terminals map[string]*terminal
	started   int
	server    string // address of the broker; empty: none yet
}

func openPage(t *testing.T) *page {
	t.Helper()
	p := &page{t: t, dir: t.TempDir(), terminals: map[string]*terminal{}}
	bin := filepath.Join(p.dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	// TestMain has put this program on the PATH as tinybroker. `go run` would build it once more, and only in the top
	// folder.
	shim := "#!/bin/sh\n[ \"$1 $2\" = 'run ./cmd/tinybroker' ] && shift 2 && exec tinybroker \"$@\"\nexit 1\n"
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte(shim), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, envPrefix) {
			p.env = append(p.env, pair)
		}
	}
	p.env = append(p.env,
		"PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"),
		"HOME="+p.dir, "XDG_CONFIG_HOME="+p.dir, "NO_COLOR=1",
		"TINYBROKER_LISTEN=127.0.0.1:0")
	t.Cleanup(p.close)
	return p
}

// run starts the block in its terminal and waits until it has ended or says that it is ready.
func (p *page) run(b *block) {
	p.t.Helper()
	if tool := b.option("needs"); tool != "" {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("TINYBROKER_REQUIRE_TOOLS") != "" {
				p.t.Fatalf("%s: %v", b.where, err)
			}
			p.t.Skipf("%s: %v", b.where, err)
		}
	}
	if p.server == "" && !b.startsBroker() {
		p.run(&block{where: "the broker of " + b.where, options: []string{"terminal=broker"}, text: "tinybroker serve\n"})
	}
	name := b.option("terminal")
	if before := p.terminals[name]; before != nil {
		before.interrupt(p.t)
	}
	p.started++
	ready := filepath.Join(p.dir, fmt.Sprintf("ready-%d", p.started))
	env := append(slices.Clone(p.env), "TINYBROKER_READY_FILE="+ready, "TINYBROKER_ADDR_FILE="+ready)
	if p.server != "" {
		env = append(env, "TINYBROKER_SERVER="+p.server)
	}
	term := startTerminal(p.t, b, p.dir, env)
	p.terminals[name] = term
	if b.has("stays") {
		return
	}
	term.wait(func() bool {
		select {
		case <-term.ended:
			if term.err != nil {
				p.t.Fatalf("%s: %v\n%s%s", b.where, term.err, b.text, term.screen())
			}
			return true
		default:
		}
		said, err := os.ReadFile(ready)
		if err != nil || len(said) == 0 {
			return false
		}
		if b.startsBroker() {
			p.server = strings.TrimSpace(string(said))
		}
		return true
	})
}

// expect waits until the block's terminal shows the block.
func (p *page) expect(b *block) {
	p.t.Helper()
	term := p.terminals[b.option("terminal")]
	if term == nil {
		p.t.Fatalf("%s: nothing was run in this terminal", b.where)
	}
	want := regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(mask(b.text)), "…", "[^\n]*"))
	shown := func() bool { return want.MatchString(mask(term.screen())) }
	if term.wait(shown); !shown() {
		p.t.Fatalf("%s: want\n%s\nbut the terminal shows\n%s", b.where, b.text, mask(term.screen()))
	}
}

// close ends what still runs, as Ctrl-C in each terminal would, the broker last.
func (p *page) close() {
	brokers := []*terminal{}
	for _, term := range p.terminals {
		if term.block.startsBroker() {
			brokers = append(brokers, term)
			continue
		}
		term.interrupt(p.t)
	}
	for _, term := range brokers {
		term.interrupt(p.t)
	}
}

var volatile = []struct {
	pattern *regexp.Regexp
	is      string
}{
	{regexp.MustCompile(`\r\n`), "\n"},
	{regexp.MustCompile(`\d\d:\d\d:\d\d\.\d\d\d`), "12:01:02.345"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:7710"},
}

// mask replaces what differs from run to run.
func mask(s string) string {
	for _, v := range volatile {
		s = v.pattern.ReplaceAllString(s, v.is)
	}
	return s
}

// terminal is a pseudo-terminal with a shell that runs one block.
type terminal struct {
	block *block
	tty   *os.File
	ended chan struct{}
	err   error // how the shell ended; valid once ended is closed

	mu     sync.Mutex
	output []byte
}

func startTerminal(t *testing.T, b *block, dir string, env []string) *terminal {
	t.Helper()
	// Long enough for any page, short enough to fail before the test run as a whole does.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	cmd := exec.CommandContext(ctx, "sh", "-e", "-c", b.text)
	cmd.Dir, cmd.Env = dir, env
	tty, err := pty.Start(cmd)
	if err != nil {
		cancel()
		t.Fatalf("%s: %v", b.where, err)
	}
	term := &terminal{block: b, tty: tty, ended: make(chan struct{})}
	go func() {
		defer cancel()
		buf := make([]byte, 4096)
		for {
			n, err := tty.Read(buf)
			term.mu.Lock()
			term.output = append(term.output, buf[:n]...)
			term.mu.Unlock()
			if err != nil {
				break
			}
		}
		term.err = cmd.Wait()
		tty.Close()
		close(term.ended)
	}()
	return term
}

func (term *terminal) screen() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return string(term.output)
}

// wait returns once reached does, or after a while that is too long for anything on a page.
func (term *terminal) wait(reached func() bool) {
	for range 1500 {
		if reached() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// interrupt types Ctrl-C and waits for the end.
func (term *terminal) interrupt(t *testing.T) {
	t.Helper()
	select {
	case <-term.ended:
		return
	default:
	}
	term.tty.Write([]byte{3}) // unless it ends by itself just now
	select {
	case <-term.ended:
	case <-time.After(20 * time.Second):
		t.Errorf("%s: still running 20 s after Ctrl-C\n%s", term.block.where, term.screen())
	}
}
