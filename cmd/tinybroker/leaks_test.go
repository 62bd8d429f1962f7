//go:build unix

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// testFiles are the parsed test files of each package of the module, by folder.
func testFiles(t *testing.T) map[string][]*ast.File {
	t.Helper()
	root := filepath.Join("..", "..")
	files := map[string][]*ast.File{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		files[filepath.Dir(path)] = append(files[filepath.Dir(path)], f)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// functions are the names of a file's functions.
func functions(f *ast.File) (names []string) {
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
			names = append(names, fn.Name.Name)
		}
	}
	return names
}

// In every package with tests, TestMain fails when one of them leaves a goroutine behind.
func TestEveryPackageLooksForLeaks(t *testing.T) {
	packages := testFiles(t)
	if len(packages) < 5 {
		t.Fatalf("only %d packages with tests found", len(packages))
	}
	for dir, files := range packages {
		looks := slices.ContainsFunc(files, func(f *ast.File) bool {
			return slices.Contains(functions(f), "TestMain") && slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"go.uber.org/goleak"` })
		})
		if !looks {
			t.Errorf("%s: there is no TestMain that looks for goroutines left behind", dir)
		}
	}
}

// Each fuzz target has inputs that are run with the tests.
func TestEveryFuzzTargetHasInputs(t *testing.T) {
	targets := 0
	for dir, files := range testFiles(t) {
		for _, f := range files {
			for _, name := range functions(f) {
				if !strings.HasPrefix(name, "Fuzz") {
					continue
				}
				targets++
				if inputs, err := filepath.Glob(filepath.Join(dir, "testdata", "fuzz", name, "*")); err != nil || len(inputs) == 0 {
					t.Errorf("%s: %s has no inputs in testdata/fuzz", dir, name)
				}
			}
		}
	}
	if targets < 8 {
		t.Errorf("only %d fuzz targets found", targets)
	}
}

// The page about reliability names the test that shows each thing; there are such tests.
func TestReliabilityNamesTests(t *testing.T) {
	known := map[string]bool{}
	for _, files := range testFiles(t) {
		for _, f := range files {
			for _, name := range functions(f) {
				known[name] = true
			}
		}
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`").FindAllStringSubmatch(readFile(t, "../../docs/reliability.md"), -1)
	for _, m := range named {
		if !known[m[1]] {
			t.Errorf("there is no %s", m[1])
		}
	}
	if len(named) < 20 {
		t.Errorf("only %d tests are named", len(named))
	}
}
