package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
)

// TestMain makes the test binary the program itself when it is called tinybroker, so that scripts and tests run real
// processes of what is being tested.
func TestMain(m *testing.M) {
	// The race detector holds up the end of every process for a second, unless told otherwise before it starts.
	os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	testscript.Main(leakChecked{m}, map[string]func(){"tinybroker": main, loadProgram: throwLoad})
}

type leakChecked struct{ *testing.M }

func (m leakChecked) Run() int {
	code := m.M.Run()
	removeExamples()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, "goroutines left behind:", err)
		return 1
	}
	return code
}

// runHere runs the program in this process, with text as its standard input.
func runHere(t *testing.T, stdin string, args ...string) (stdout, stderr string, end ending) {
	t.Helper()
	var out, errOut bytes.Buffer
	end = run(args, &streams{in: strings.NewReader(stdin), out: &out, err: &errOut})
	return out.String(), errOut.String(), end
}

// cleanEnvironment takes away every variable that could change what is tested.
func cleanEnvironment(t *testing.T) {
	t.Helper()
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, envPrefix) {
			t.Setenv(name, "")
		}
	}
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("NO_COLOR", "")
}
