//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// page is a reader at work: some terminals, one broker.
type page struct {
	t         *testing.T
	dir       string
	env       []string
	terminals map[string]*terminal
	started   int
	// server is the address of the broker, and serverTerminal where it runs; empty: none yet.
	server, serverTerminal string
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
	shim := `#!/bin/sh
what=$2
shift 2
case $what in
./cmd/tinybroker) exec tinybroker "$@" ;;
./docs/examples/go/*) exec "./${what##*/}" "$@" ;;
esac
exit 1
`
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
	if b.has("needs") {
		for tool := range strings.SplitSeq(b.option("needs"), ",") {
			if tool == "python3-grpcio" {
				p.link("python3", pythonWithGRPC(p.t))
			} else {
				needTool(p.t, tool)
			}
		}
	}
	if p.server == "" && !b.startsBroker() {
		p.run(&block{where: "the broker of " + b.where, options: map[string]string{"terminal": "the broker"}, text: "tinybroker serve\n"})
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
	dir := p.dir
	if b.has("in") {
		dir = exampleDir(p.t, b.option("in"))
	}
	term := startTerminal(p.t, b, dir, env)
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
		if b.startsBroker() && (p.server == "" || p.serverTerminal == name) {
			p.server, p.serverTerminal = strings.TrimSpace(string(said)), name
		}
		return true
	})
}

// link makes a program be found under name.
func (p *page) link(name, path string) {
	p.t.Helper()
	shim := fmt.Sprintf("#!/bin/sh\nexec %s \"$@\"\n", path)
	if err := os.WriteFile(filepath.Join(p.dir, "bin", name), []byte(shim), 0o755); err != nil {
		p.t.Fatal(err)
	}
}

// write puts the block into its file.
func (p *page) write(b *block) {
	p.t.Helper()
	path := filepath.Join(p.dir, filepath.FromSlash(b.option("file")))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(b.text), 0o600); err != nil {
		p.t.Fatal(err)
	}
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
