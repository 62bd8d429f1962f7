package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "codeberg.org/tinybroker/tinybroker"

// arrows are the imports of our own packages that are allowed, apart from tests: see docs/architecture.md.
var arrows = map[string][]string{
	"proto/tinybroker/v1": nil,
	"internal/core":       nil,
	"internal/auth":       {"internal/core"},
	"internal/rpc":        {"internal/auth", "internal/core", "proto/tinybroker/v1"},
	"internal/metrics":    {"internal/core"},
	"internal/tui":        {"internal/core", "internal/tui/background"},
	"internal/bench":      {"internal/core", "internal/rpc"},
	"cmd/tinybroker":      {"internal/auth", "internal/bench", "internal/core", "internal/metrics", "internal/rpc", "internal/tui"},
	// A module of its own, so that what only a comparison needs stays out of the product's.
	"internal/bench/peers": {"internal/bench", "internal/core", "internal/rpc", "proto/tinybroker/v1"},

	"internal/tui/background": nil,
	"internal/protodoc":       nil,

	// For tests alone.
	"internal/auth/certtest": nil,

	// What clients of others look like.
	"docs/examples/go/client":    nil,
	"docs/examples/go/publish":   {"docs/examples/go/client", "proto/tinybroker/v1"},
	"docs/examples/go/subscribe": {"docs/examples/go/client", "proto/tinybroker/v1"},
	"docs/examples/go/worker":    {"docs/examples/go/client", "proto/tinybroker/v1"},
	// No part of the program: what makes and looks at a release.
	"internal/licenses": nil,
	"packaging":         nil,
}

// examplesFolder is where packages of onlyIn may be met too: a client needs what it needs.
const examplesFolder = "docs/examples/go/"

// onlyIn are packages of others that have one place each.
var onlyIn = map[string][]string{
	"github.com/spf13/":                {"cmd/tinybroker"},
	"os/signal":                        {"cmd/tinybroker", "internal/bench/peers", "internal/licenses"},
	"google.golang.org/grpc":           {"internal/rpc", "proto/tinybroker/v1", "internal/bench/peers"},
	"google.golang.org/grpc/codes":     {"internal/rpc", "proto/tinybroker/v1", "cmd/tinybroker"},
	"google.golang.org/protobuf":       {"internal/protodoc", "internal/rpc", "proto/tinybroker/v1", "internal/bench/peers"},
	"github.com/HdrHistogram/":         {"internal/bench", "internal/bench/peers"},
	"github.com/prometheus/":           {"internal/metrics"},
	"net/http":                         {"internal/metrics", "internal/rpc"},
	"github.com/charmbracelet/":        {"internal/tui", "internal/tui/background"},
	module + "/proto/tinybroker/v1":    {"internal/rpc", "internal/bench/peers"},
	"github.com/go-viper/mapstructure": {"cmd/tinybroker"},
}

type importer struct {
	dir, file, path string
	test            bool
}

func importsOfTree(t *testing.T) []importer {
	t.Helper()
	var all []importer
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		for _, spec := range f.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			all = append(all, importer{filepath.ToSlash(filepath.Dir(rel)), rel, imported, strings.HasSuffix(path, "_test.go")})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 100 {
		t.Fatalf("only %d imports found", len(all))
	}
	return all
}

func TestImports(t *testing.T) {
	for _, i := range importsOfTree(t) {
		allowed, known := arrows[i.dir]
		if !known {
			t.Errorf("%s: a package in %s is not in the picture", i.file, i.dir)
			continue
		}
		if own, ok := strings.CutPrefix(i.path, module+"/"); ok && own != i.dir && !i.test && !slices.Contains(allowed, own) {
			t.Errorf("%s imports %s", i.file, own)
		}
		if i.test {
			continue
		}
		if i.dir == "internal/core" && strings.Contains(strings.Split(i.path, "/")[0], ".") {
			t.Errorf("%s imports %s: core is the standard library only", i.file, i.path)
		}
		checkPlace(t, i)
	}
}

// checkPlace applies the longest rule that covers an import.
func checkPlace(t *testing.T, i importer) {
	rule := ""
	for prefix := range onlyIn {
		if (i.path == prefix || strings.HasPrefix(i.path, strings.TrimSuffix(prefix, "/")+"/")) && len(prefix) > len(rule) {
			rule = prefix
		}
	}
	if rule != "" && !strings.HasPrefix(i.dir, examplesFolder) && !slices.Contains(onlyIn[rule], i.dir) {
		t.Errorf("%s imports %s, which belongs in %s", i.file, i.path, strings.Join(onlyIn[rule], ", "))
	}
}

// viper is met in one file: everything else knows flags and options.
func TestOneFileKnowsViper(t *testing.T) {
	for _, i := range importsOfTree(t) {
		if i.path == "github.com/spf13/viper" && filepath.Base(i.file) != "config.go" {
			t.Errorf("%s imports viper", i.file)
		}
	}
}

// os.Exit skips what is deferred; it is for the place where the program ends.
func TestNobodyExits(t *testing.T) {
	for _, dir := range []string{"internal/auth", "internal/bench", "internal/core", "internal/metrics", "internal/rpc", "internal/tui"} {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, call := range []string{"os.Exit(", "log.Fatal", "os.Args"} {
				if strings.Contains(string(text), call) {
					t.Errorf("%s: %s", path, call)
				}
			}
		}
	}
}

// The top level of the repository is what is listed here and nothing else.
func TestTopLevel(t *testing.T) {
	allowed := []string{
		"cmd", "internal", "packaging", "proto", "docs", "go.mod", "go.sum", ".goreleaser.yaml",
		"README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile", ".golangci.yml", ".ci", ".gitignore", ".gitattributes", ".editorconfig", ".git",
	}
	for _, name := range trackedTopLevel(t) {
		if !slices.Contains(allowed, name) {
			t.Errorf("%s does not belong at the top level", name)
		}
	}
	for dir, names := range map[string][]string{"cmd": {"tinybroker"}, "internal": {"auth", "bench", "core", "licenses", "metrics", "protodoc", "rpc", "tui"}} {
		entries, err := os.ReadDir(filepath.Join("..", "..", dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !slices.Contains(names, e.Name()) {
				t.Errorf("%s/%s does not belong there", dir, e.Name())
			}
		}
	}
}

// trackedTopLevel asks git, so that what tools leave behind and .gitignore names does not count. Without git, or outside
// a clone, it is everything there is.
func trackedTopLevel(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	var names []string
	if out, err := cmd.Output(); err == nil && len(out) > 0 {
		for line := range strings.Lines(string(out)) {
			name, _, _ := strings.Cut(strings.TrimSpace(line), "/")
			names = append(names, name)
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
