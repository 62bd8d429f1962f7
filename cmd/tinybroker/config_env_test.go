package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestUnknownEnvironment(t *testing.T) {
	cleanEnvironment(t)
	for _, fine := range []string{
		"TINYBROKER_READY_FILE", "TINYBROKER_VERSION", // known to other commands
		"TINYBROKER_SERVICE_HOST", "TINYBROKER_PORT", "TINYBROKER_SERVICE_PORT", "TINYBROKER_SERVICE_PORT_GRPC",
		"TINYBROKER_PORT_7710_TCP", "TINYBROKER_PORT_7710_TCP_ADDR", "TINYBROKER_PORT_7710_TCP_PROTO", "TINYBROKER_BLUE_SERVICE_HOST",
	} {
		t.Setenv(fine, "x")
	}
	if _, err := configured(t, "serve"); err != nil {
		t.Error(err)
	}
	t.Setenv("TINYBROKER_CLIENT", "x")
	t.Setenv("TINYBROKER_CONECT_TIMEOUT", "5s")
	for command, wantCode := range map[string]int{"serve": exitConfig, "pub": exitOK} {
		_, err := configured(t, command)
		if codeOf(err) != wantCode {
			t.Errorf("%s: %v", command, err)
		}
	}
	_, stderr, _ := runHere(t, "", "status", "-s", "127.0.0.1:1")
	for _, want := range []string{
		"warning: TINYBROKER_CLIENT: no setting has this name\n",
		"warning: TINYBROKER_CONECT_TIMEOUT: no setting has this name; did you mean TINYBROKER_CONNECT_TIMEOUT?\n",
	} {
		if !strings.Contains(stderr, want) {
			t.Errorf("stderr is %q", stderr)
		}
	}
	if _, stderr, _ := runHere(t, "", "status", "-q", "-s", "127.0.0.1:1"); strings.Contains(stderr, "warning") {
		t.Errorf("-q: stderr is %q", stderr)
	}
}

func TestEmptyVariableCountsAsUnset(t *testing.T) {
	cleanEnvironment(t)
	settingsUnderTest(t, func(command string, f *pflag.Flag) {
		t.Setenv(envName(f.Name), "")
		cmd, err := configured(t, command)
		if err != nil {
			t.Fatal(err)
		}
		if got := cmd.Flags().Lookup(f.Name).Value.String(); got != f.Value.String() {
			t.Errorf("%s --%s: %q, want %q", command, f.Name, got, f.Value.String())
		}
	})
}
