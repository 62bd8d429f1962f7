package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// needTool skips the test where a program is missing, or fails it where all have to be there.
func needTool(t *testing.T, tool string) string {
	t.Helper()
	path, err := exec.LookPath(tool)
	if err != nil {
		orSkip(t, "%v", err)
	}
	return path
}

// pythonWithGRPC finds a Python that has grpcio; the first one on the PATH need not.
func pythonWithGRPC(t *testing.T) string {
	t.Helper()
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(python, "-c", "import grpc, grpc_tools").Run() == nil {
			path, err := exec.LookPath(python)
			if err != nil {
				t.Fatal(err)
			}
			return path
		}
	}
	orSkip(t, "there is no Python with grpcio and grpcio-tools")
	return ""
}

// orSkip skips a test that lacks something, or fails it where nothing may be lacking.
func orSkip(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("TINYBROKER_REQUIRE_TOOLS") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// exampleCopies holds a copy of the parts of the repository that the examples need, with what they want installed or
// built; the same one for all tests. TestMain removes it.
var exampleCopies struct {
	mu    sync.Mutex
	dir   string
	ready map[string]error
}

// exampleDir is docs/examples/NAME in a copy in which it may be used: npm has installed what package.json names, Go
// programs are built, stubs for Python are generated.
func exampleDir(t *testing.T, name string) string {
	t.Helper()
	c := &exampleCopies
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dir == "" {
		dir, err := os.MkdirTemp("", "tinybroker-examples") //nolint:usetesting // outlives this test
		if err != nil {
			t.Fatal(err)
		}
		c.dir, c.ready = dir, map[string]error{}
	}
	dir := filepath.Join(c.dir, "docs", "examples", name)
	err, done := c.ready[name]
	if !done {
		err = prepareExample(t, c.dir, name)
		c.ready[name] = err
	}
	if err != nil {
		orSkip(t, "docs/examples/%s: %v", name, err)
	}
	return dir
}

func removeExamples() { os.RemoveAll(exampleCopies.dir) }

func prepareExample(t *testing.T, top, name string) error {
	t.Helper()
	from, to := filepath.Join(root, "docs", "examples", name), filepath.Join(top, "docs", "examples", name)
	if err := copyFiles(from, to); err != nil {
		t.Fatal(err)
	}
	proto := filepath.Join("proto", "tinybroker", "v1")
	if err := copyFiles(filepath.Join(root, proto), filepath.Join(top, proto)); err != nil {
		t.Fatal(err)
	}
	var cmd *exec.Cmd
	switch name {
	case "node":
		needTool(t, "npm")
		cmd = exec.Command("npm", "ci", "--no-audit", "--no-fund", "--prefer-offline")
		cmd.Dir = to
	case "go":
		cmd = exec.Command("go", "build", "-o", to+string(filepath.Separator), "./docs/examples/go/...")
		cmd.Dir = root
	case "python":
		cmd = exec.Command(pythonWithGRPC(t), "-m", "grpc_tools.protoc", "-I", "../../../proto", "--python_out=.", "--grpc_python_out=.",
			"tinybroker/v1/tinybroker.proto")
		cmd.Dir = to
	default:
		return nil
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err != nil {
		t.Logf("%s", out.String())
	}
	return err
}

// copyFiles copies the files of a folder, not those of folders in it.
func copyFiles(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, e.Name()), data, info.Mode().Perm()); err != nil {
			return err
		}
	}
	return nil
}
