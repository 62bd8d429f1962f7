package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the top of the repository.
var root = filepath.Join("..", "..")

// generatedPages are made of texts that other tests try.
var generatedPages = map[string]string{
	"docs/cli.md":      "TestHelpExamples",
	"docs/protocol.md": "TestProtocolPage",
}

// A block that nobody tries says so, and why. See TestDocumentedCommands for the words.
func TestDocumentedBlocksAreTried(t *testing.T) {
	tests := testNames(t)
	for page, name := range generatedPages {
		if !tests[name] {
			t.Errorf("%s: there is no test %s", page, name)
		}
	}
	for _, path := range documents(t) {
		for _, b := range readBlocks(t, path) {
			if err := b.judge(t, tests); err != "" {
				t.Errorf("%s: %s", b.where, err)
			}
		}
	}
}

func TestBlocksAreJudged(t *testing.T) {
	tests := map[string]bool{"TestIt": true}
	for info, good := range map[string]bool{
		"sh": true, "sh terminal=1": true, "sh terminal=1 needs=node stays": true, "sh in=node": true, "text terminal=1": true,
		"yaml file=a.yaml": true, "js by=TestIt": true, "text drawing": true, `sh untried="takes an hour"`: true,
		"go from=cmd/tinybroker/main.go": false, // it is there, with another text

		"": false, "text": false, "yaml": false, "js": false, "console": false, "sh ci": false, "sh terminl=1": false,
		"js by=TestNot": false, `sh untried=""`: false, `sh untried="no"`: false, "go from=no/such/file": false, "bash": false, "js terminal=1": false,
	} {
		b := newBlock("here", info)
		b.text = "something"
		if got := b.judge(t, tests); (got == "") != good {
			t.Errorf("%q: %q", info, got)
		}
	}
	for text, good := range map[string]bool{
		"# wait\nsleep 1\n# on\n": true, "grpcurl \"${TINYBROKER_SERVER:-127.0.0.1:7710}\" list\n": true, "echo 'a # b'\n": true,
		"grpcurl \"$TINYBROKER_SERVER\" list\n": false, "sleep 1 # wait\n": false,
	} {
		b := newBlock("here", "sh")
		b.text = text
		if got := b.judge(t, tests); (got == "") != good {
			t.Errorf("%q: %q", text, got)
		}
	}
}

var (
	optionWord = regexp.MustCompile(`^([a-z]+)(?:=("[^"]*"|[^\s"]+))?(?:\s+|$)`)
	// A comment behind a command, if there is no quote behind it.
	commentBehind = regexp.MustCompile(`(?m)^[^#\n]*[^#\s][ \t]+# [^'"\n]*$`)
	knownOptions  = []string{"terminal", "stays", "needs", "in", "file", "from", "by", "drawing", "untried"}
)

// block is one fenced block of a page.
type block struct {
	where   string // file:line
	lang    string
	options map[string]string
	bad     string // what is wrong with the words after the language
	text    string
}

func newBlock(where, info string) *block {
	lang, rest, _ := strings.Cut(info, " ")
	b := &block{where: where, lang: lang, options: map[string]string{}}
	for rest = strings.TrimSpace(rest); rest != ""; {
		m := optionWord.FindStringSubmatch(rest)
		if len(m) == 0 || !slices.Contains(knownOptions, m[1]) {
			b.bad = rest
			break
		}
		b.options[m[1]] = strings.Trim(m[2], `"`)
		rest = rest[len(m[0]):]
	}
	return b
}

func (b *block) has(option string) bool { _, ok := b.options[option]; return ok }

func (b *block) option(name string) string { return b.options[name] }

func (b *block) startsBroker() bool { return strings.Contains(b.text, "tinybroker serve") }

// tried tells whether a page runs, writes or compares the block.
func (b *block) tried() bool {
	if slices.ContainsFunc([]string{"from", "by", "drawing", "untried"}, b.has) {
		return false
	}
	return b.lang == "sh" || b.has("terminal") || b.has("file")
}

// judge says what is wrong with how the block is marked.
func (b *block) judge(t *testing.T, tests map[string]bool) string {
	t.Helper()
	reason := b.option("untried")
	switch {
	case b.bad != "":
		return fmt.Sprintf("what is %q?", b.bad)
	case slices.Contains([]string{"bash", "shell", "console", "zsh"}, b.lang):
		return "say sh, so that it is run"
	case b.has("untried") && len(reason) < 8:
		return fmt.Sprintf("%q is no reason", reason)
	case b.has("by") && !tests[b.option("by")]:
		return fmt.Sprintf("there is no test %s", b.option("by"))
	case b.lang == "sh" && strings.Contains(b.text, "$TINYBROKER_SERVER"):
		return "only tests set that variable; write ${TINYBROKER_SERVER:-127.0.0.1:7710}"
	case b.lang == "sh" && commentBehind.MatchString(b.text):
		return "zsh takes a comment behind a command for arguments; give it a line of its own"
	case b.has("terminal") && b.lang != "sh" && b.lang != "text":
		return "a terminal runs sh and shows text"
	case b.has("from"):
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(b.option("from"))))
		if err != nil {
			return err.Error()
		}
		if !strings.Contains(string(text), b.text) {
			return b.option("from") + " does not say that"
		}
	case !b.tried() && !b.has("by") && !b.has("drawing") && !b.has("untried"):
		return "nobody tries this block; say who does, or why nobody can"
	}
	return ""
}

// documents are all pages of the repository.
func documents(t *testing.T) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || slices.Contains([]string{"node_modules", "testdata", "dist"}, name)) {
			return filepath.SkipDir
		}
		if !d.IsDir() && filepath.Ext(name) == ".md" {
			paths = append(paths, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) < 10 {
		t.Fatalf("only %d pages found", len(paths))
	}
	return paths
}

// pageName is the path of a page from the top of the repository.
func pageName(path string) string {
	name, err := filepath.Rel(root, path)
	if err != nil {
		return path
	}
	return filepath.ToSlash(name)
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// readBlocks finds the fenced blocks of a page, save in those that are generated.
func readBlocks(t *testing.T, path string) []*block {
	t.Helper()
	if generatedPages[pageName(path)] != "" {
		return nil
	}
	var blocks []*block
	var open *block
	for i, line := range strings.Split(readFile(t, path), "\n") {
		info, fence := strings.CutPrefix(line, "```")
		where := fmt.Sprintf("%s:%d", pageName(path), i+1)
		switch {
		case fence && open != nil:
			blocks = append(blocks, open)
			open = nil
		case fence:
			open = newBlock(where, info)
		case open != nil:
			open.text += line + "\n"
		case strings.HasPrefix(strings.TrimSpace(line), "```") || strings.HasPrefix(strings.TrimSpace(line), "~~~"):
			t.Errorf("%s: fences begin at the left edge with ```, or they are not found", where)
		}
	}
	if open != nil {
		t.Fatalf("%s: the block is not closed", open.where)
	}
	return blocks
}

// testNames are the tests of all packages.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, pattern := range []string{"cmd/*/*_test.go", "internal/*/*_test.go", "packaging/*_test.go"} {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(readFile(t, path), -1) {
				names[m[1]] = true
			}
		}
	}
	return names
}
