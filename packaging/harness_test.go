// Package packaging holds what goes into the packages and the container image beside the program. Its tests look at what goreleaser
// has built, in the folder that TINYBROKER_DIST names; make check-release builds it and runs them.
package packaging

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// artifact is something that goreleaser has made, as its own list tells.
type artifact struct {
	Name   string `json:"name"`
	Path   string `json:"path"`
	Goos   string `json:"goos"`
	Goarch string `json:"goarch"`
	Type   string `json:"type"`
	Extra  struct {
		Format string `json:"Format"`
		Ext    string `json:"Ext"`
	} `json:"extra"`
}

// artifacts lists what has been built, with absolute paths.
func artifacts(t *testing.T) []artifact {
	t.Helper()
	dist := os.Getenv("TINYBROKER_DIST")
	if dist == "" {
		t.Skip("TINYBROKER_DIST names no build of goreleaser: make check-release makes one")
	}
	text, err := os.ReadFile(filepath.Join(dist, "artifacts.json"))
	if err != nil {
		t.Fatal(err)
	}
	var list []artifact
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	for i := range list {
		list[i].Path = filepath.Join(filepath.Dir(dist), list[i].Path)
	}
	return list
}

// find returns the one artifact of a kind for this machine.
func find(t *testing.T, kind, ext string) artifact {
	t.Helper()
	for _, a := range artifacts(t) {
		if a.Type == kind && a.Goos == "linux" && a.Goarch == runtime.GOARCH && strings.HasSuffix(a.Name, ext) {
			return a
		}
	}
	t.Fatalf("no %s%s was built", kind, ext)
	return artifact{}
}

// needs skips the test where a program is missing, or fails it where that was asked for.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			missing(t, err.Error())
		}
	}
}

func needsRoot(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		missing(t, "only root can do this")
	}
}

func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("TINYBROKER_REQUIRE_TOOLS") != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

func command(t *testing.T, program string, args ...string) *exec.Cmd {
	return exec.CommandContext(t.Context(), program, args...)
}

// output runs a program that must succeed and returns what it prints.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := command(t, program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(cmd.Args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String()
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func writeFile(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}
