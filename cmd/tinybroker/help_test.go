package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "rewrite golden files and docs/cli.md")

func testRoot() *cobra.Command {
	return newRootCmd(&app{streams: &streams{in: strings.NewReader(""), out: new(bytes.Buffer), err: new(bytes.Buffer)}})
}

// ownCommands are the commands whose texts are ours: cobra's completion is not.
func ownCommands() []*cobra.Command {
	var list []*cobra.Command
	walk(testRoot(), func(c *cobra.Command) {
		if !strings.HasPrefix(c.CommandPath(), "tinybroker completion ") {
			list = append(list, c)
		}
	})
	return list
}

// compareGolden compares with a file, or writes it with -update.
func compareGolden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not current; if the change is meant, run: go test ./cmd/tinybroker -run %s -update\ngot:\n%s", path, t.Name(), got)
	}
}

func TestHelp(t *testing.T) {
	cleanEnvironment(t)
	for _, c := range ownCommands() {
		name := strings.ReplaceAll(c.CommandPath(), " ", "-")
		args := strings.Fields(c.CommandPath() + " --help")[1:]
		if !c.Runnable() {
			args = []string{"help", c.Name()}
		}
		stdout, stderr, end := runHere(t, "", args...)
		if stderr != "" || end.code != 0 {
			t.Errorf("%s: %d, %q", name, end.code, stderr)
		}
		compareGolden(t, filepath.Join("testdata", "help", name+".txt"), []byte(stdout))
		for line := range strings.Lines(stdout) {
			if utf8.RuneCountInString(line) > helpWidth+1 && !strings.Contains(line, "tinybroker ") { // commands stay whole
				t.Errorf("%s: wider than %d columns: %s", name, helpWidth, line)
			}
		}
	}
}

// What `tinybroker docs` writes is current, and of pages that it no longer writes none is left.
func TestMadePages(t *testing.T) {
	docs := filepath.Join("..", "..", "docs")
	pages := madePages(testRoot())
	for name, page := range pages {
		compareGolden(t, filepath.Join(docs, name), page)
	}
	left, err := filepath.Glob(filepath.Join(docs, "man", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range left {
		if pages["man/"+filepath.Base(path)] == nil {
			t.Errorf("%s: there is no such command", path)
		}
	}
}

// The configuration file of the reference is one.
func TestReferenceConfig(t *testing.T) {
	cleanEnvironment(t)
	_, text, _ := strings.Cut(string(reference(testRoot())), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	for command, want := range map[string]string{"serve": "1GiB", "pub": "2s"} {
		cmd, err := configured(t, command, "--config", writeConfig(t, text))
		if err != nil {
			t.Fatal(err)
		}
		flag := map[string]string{"serve": "max-memory", "pub": "connect-timeout"}[command]
		if got := cmd.Flags().Lookup(flag).Value.String(); got != want {
			t.Errorf("%s --%s is %s, want %s", command, flag, got, want)
		}
	}
}

// Every command has an example.
func TestHelpIsComplete(t *testing.T) {
	for _, c := range ownCommands() {
		if c.Hidden || c.Name() == "completion" || !c.Runnable() {
			continue
		}
		if c.Example == "" {
			t.Errorf("%s has no example", c.CommandPath())
		}
	}
}

func TestHelpForWhatIsNot(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"help", "nosuch"}, "tinybroker: unknown command \"nosuch\"\nhint: see tinybroker --help\n"},
		{[]string{"help", "pub", "nosuch"}, "tinybroker: unknown command \"nosuch\"\nhint: see tinybroker pub --help\n"},
		{[]string{"help", "completion", "bsh"}, "tinybroker: unknown command \"bsh\"\nhint: did you mean tinybroker completion bash?\n"},
		{[]string{"bogus"}, "tinybroker: unknown command \"bogus\"\nhint: see tinybroker --help\n"},
		{[]string{"pubb"}, "tinybroker: unknown command \"pubb\"\nhint: did you mean tinybroker pub?\n"},
		{[]string{"completion", "bsh"}, "tinybroker: unknown command \"bsh\"\nhint: did you mean tinybroker completion bash?\n"},
		{[]string{"version", "x"}, "tinybroker: version: takes no arguments, got \"x\"\n"},
		{[]string{"serve", "--lisen", "x"}, "tinybroker: unknown flag --lisen\nhint: did you mean --listen?\n"},
		{[]string{"serve", "--whatever"}, "tinybroker: unknown flag --whatever\nhint: see tinybroker serve --help\n"},
		{[]string{"pub", "--output"}, "tinybroker: --output: needs a value\n"},
		{[]string{"pub", "--tee=x"}, "tinybroker: --tee: \"x\" is not true or false\n"},
		{[]string{"version", "-o", "xml"}, "tinybroker: --output: \"xml\" is not one of text, json\n"},
	} {
		stdout, stderr, end := runHere(t, "", c.args...)
		if stdout != "" || stderr != c.want || end.code != exitUsage {
			t.Errorf("%q: %d, %q, %q", c.args, end.code, stdout, stderr)
		}
	}
}

func TestRootWithoutArgumentsHelps(t *testing.T) {
	bare, _, end := runHere(t, "")
	asked, _, _ := runHere(t, "", "--help")
	if bare == "" || bare != asked || end.code != 0 {
		t.Errorf("%d, %q", end.code, bare)
	}
}

// Completion says nothing on standard error that breaks a prompt, and works whatever is wrong with the configuration.
func TestCompletion(t *testing.T) {
	cleanEnvironment(t)
	t.Setenv("TINYBROKER_CONFIG", "missing.yaml")
	t.Setenv("TINYBROKER_MAX_MEMRY", "x")
	t.Setenv("TINYBROKER_OUTPUT", "nonsense")
	for _, c := range []struct {
		args []string
		want string
	}{
		// Of a broker that is not there: one may well run where one is looked for by default.
		{[]string{"pub", "-s", "127.0.0.1:1", ""}, ":4\n"},
		{[]string{"sub", "-s", "127.0.0.1:1", "x", ""}, ":4\n"},
		{[]string{"sub", "-o", ""}, "auto\ntext\nraw\njson\nlen\nhex\nbase64\n:4\n"},
		{[]string{"pub", "x", "--on-error", ""}, "stop\ncontinue\n:4\n"},
		{[]string{"st"}, "status\tSay how the broker is\n:4\n"},
		{[]string{"ls", "--li"}, "--limit\tthe most rows of a kind\n:4\n"},
		{[]string{"ls", "--so"}, "--sort\tcolumn to sort by (default: the first one that ls --help lists)\n:4\n"},
		{[]string{"help", "ex"}, "exit-codes\tWhat the exit codes mean\n:4\n"},
	} {
		stdout, stderr, end := runHere(t, "", append([]string{"__complete"}, c.args...)...)
		if stdout != c.want || end.code != 0 || strings.Contains(stderr, "tinybroker:") {
			t.Errorf("%q: %d, %q, %q", c.args, end.code, stdout, stderr)
		}
		if stdout, stderr, _ := runHere(t, "", append([]string{"__completeNoDesc"}, c.args...)...); stderr != "" && !strings.HasPrefix(stderr, "Completion ended") {
			t.Errorf("%q: %q, %q", c.args, stdout, stderr)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		stdout, stderr, end := runHere(t, "", "completion", shell)
		if !strings.Contains(stdout, "tinybroker") || stderr != "" || end.code != 0 {
			t.Errorf("completion %s: %d, %q", shell, end.code, stderr)
		}
	}
}
