package bench

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// script makes a program of a few lines of shell.
func script(t *testing.T, text string) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell")
	}
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestStartBrokerThatDoesNotStart(t *testing.T) {
	if _, err := StartBroker(t.Context(), filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("a program that is not there has started")
	}
	_, err := StartBroker(t.Context(), script(t, "echo first >&2; echo no room >&2; exit 3"))
	if err == nil || err.Error() != "start a broker: it ended at once: no room" {
		t.Errorf("got %v", err)
	}
}

// What is set for another broker, or for clients, is not for this one.
func TestBrokerHasNoSettings(t *testing.T) {
	t.Setenv("TINYBROKER_METRICS_LISTEN", "127.0.0.1:7711")
	t.Setenv("GOGC", "33")
	_, err := StartBroker(t.Context(), script(t, `echo "[$TINYBROKER_METRICS_LISTEN$GOGC]" >&2; exit 1`))
	if err == nil || !strings.Contains(err.Error(), "[33]") {
		t.Errorf("got %v", err)
	}
}

func TestBrokerIsStopped(t *testing.T) {
	b, err := StartBroker(t.Context(), script(t, `echo 127.0.0.1:7 >"$5"; trap 'exit 0' INT; while :; do sleep 0.01; done`))
	if err != nil {
		t.Fatal(err)
	}
	if b.Address != "127.0.0.1:7" || b.PID() == 0 {
		t.Errorf("address %q, process %d", b.Address, b.PID())
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(b.dir); !os.IsNotExist(err) {
		t.Errorf("its directory is left behind: %v", err)
	}
}

func TestOutputKeepsTheEnd(t *testing.T) {
	var o output
	for range 1000 {
		o.Write([]byte("a line like any other\n"))
	}
	o.Write([]byte("the last one\n\n"))
	if len(o.text) > keptOutput || o.lastLine() != "the last one" {
		t.Errorf("%d bytes, last line %q", len(o.text), o.lastLine())
	}
}
