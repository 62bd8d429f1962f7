package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts tells the stories in testdata/script. Beside the commands of testscript they know
//
//	exitcode N command...   the command ends with exactly this code
//	waitfile path           until the file is there
//	broker [NAME [flags]]   starts a broker on a free port; its address is in $NAME, by default TINYBROKER_SERVER
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(e *testscript.Env) error {
			e.Setenv("XDG_CONFIG_HOME", filepath.Join(e.WorkDir, "xdg"))
			e.Setenv("GORACE", os.Getenv("GORACE"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exitcode": scriptExitCode,
			"waitfile": scriptWaitFile,
			"broker":   scriptBroker,
		},
		Deadline:            time.Now().Add(5 * time.Minute),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

func scriptExitCode(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func scriptWaitFile(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s does not appear", args[0])
		}
	}
}

func scriptBroker(ts *testscript.TestScript, _ bool, args []string) {
	name := "TINYBROKER_SERVER"
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	file := ts.MkAbs("addr-" + name)
	cmd := exec.Command("tinybroker", append([]string{"serve", "--listen", "127.0.0.1:0", "--addr-file", file}, args...)...)
	cmd.Env = []string{"XDG_CONFIG_HOME=" + ts.MkAbs("xdg"), "PATH=" + os.Getenv("PATH"), "GORACE=" + os.Getenv("GORACE")}
	ts.Check(cmd.Start())
	ts.Defer(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	scriptWaitFile(ts, false, []string{file})
	ts.Setenv(name, strings.TrimSpace(ts.ReadFile(file)))
}
