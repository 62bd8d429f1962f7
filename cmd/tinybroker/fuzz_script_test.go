//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fakeGo knows two packages with a fuzz target each. It notes what it runs, and does as MODE says.
const fakeGo = `#!/bin/sh
deadline() {
	printf -- '--- FAIL: %s (6.03s)\n    context deadline exceeded\nFAIL\nexit status 1\nFAIL\tp/a\t6.0s\n' "$1"
	exit 1
}
case "$*" in
"list ./...") echo p/a; echo p/b ;;
"test -list ^Fuzz p/a") echo FuzzA; echo "ok p/a" ;;
"test -list ^Fuzz p/b") [ "$MODE" = unlisted ] && exit 1; echo FuzzB; echo "ok p/b" ;;
*)
	echo "$*" >>"$RUNS"
	case $MODE in
	late) [ "$(wc -l <"$RUNS")" -gt 2 ] || deadline FuzzA ;;
	"always late") deadline FuzzA ;;
	"another late") deadline FuzzB ;;
	crash) printf -- '--- FAIL: FuzzA (1s)\n    --- FAIL: FuzzA (0s)\n        x.go:1: context deadline exceeded\n    Failing input written to testdata/fuzz/FuzzA/1\nFAIL\n'; exit 1 ;;
	"crash and late") printf -- '--- FAIL: FuzzA (6s)\n    process hung or terminated unexpectedly\n    context deadline exceeded\nFAIL\n'; exit 1 ;;
	"written and late") printf 'Failing input written to testdata/fuzz/FuzzA/1\n'; deadline FuzzA ;;
	broken) echo 'build failed'; exit 1 ;;
	esac
	echo PASS
	;;
esac
`

// TestFuzzScript: it fuzzes every target of every package, and what it takes for the end of the time is nothing else.
func TestFuzzScript(t *testing.T) {
	run := func(goCommand, seconds string) string {
		return "test -run ^$ -fuzz ^" + goCommand + "$ -fuzztime " + seconds
	}
	a, b := run("FuzzA", "7s")+" p/a\n", run("FuzzB", "7s")+" p/b\n"
	for _, test := range []struct {
		mode string
		ok   bool
		runs string
	}{
		{"fine", true, a + b},
		{"late", true, a + a + a + b},
		{"always late", false, a + a + a},
		{"another late", false, a},
		{"crash", false, a},
		{"crash and late", false, a},
		{"written and late", false, a},
		{"broken", false, a},
		{"unlisted", false, a},
	} {
		t.Run(test.mode, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			command, runs := filepath.Join(dir, "go"), filepath.Join(dir, "runs")
			if err := os.WriteFile(command, []byte(fakeGo), 0o700); err != nil {
				t.Fatal(err)
			}
			script := exec.Command(filepath.Join("..", "..", ".ci", "fuzz"), "7s")
			script.Env = append(os.Environ(), "GO="+command, "RUNS="+runs, "MODE="+test.mode)
			said, err := script.CombinedOutput()
			if text, _ := os.ReadFile(runs); string(text) != test.runs || (err == nil) != test.ok {
				t.Errorf("%v, runs\n%s\nwant\n%s\n%s", err, text, test.runs, said)
			}
		})
	}
	makefile, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	_, recipe, _ := strings.Cut(string(makefile), "\nfuzz:")
	recipe, _, _ = strings.Cut(recipe, "\n\n")
	if want := ".ci/fuzz $(FUZZTIME)"; !strings.Contains(recipe, want) {
		t.Errorf("make fuzz has no %q any more", want)
	}
}
