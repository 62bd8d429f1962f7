//go:build unix

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/spf13/pflag"
)

// reload has a broker reload and returns what it logs about it.
func (b *broker) reload() string {
	b.t.Helper()
	before := len(b.stderr.String())
	b.signal(syscall.SIGHUP)
	line := ""
	eventually(b.t, "it says what the reload has done", func() bool {
		for l := range strings.Lines(b.stderr.String()[before:]) {
			if strings.Contains(l, `"msg":"reload`) && strings.HasSuffix(l, "\n") {
				line = l
				return true
			}
		}
		return false
	})
	return line
}

func rewrite(t *testing.T, path, text string) {
	t.Helper()
	if err := writeFileAtomic(path, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// A broker takes over a changed log level, names what has to wait for the next start, and refuses a file with a mistake in it
// as a whole. Whatever happens, it goes on.
func TestReload(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.yaml")
	rewrite(t, path, "log_level: error\nmax_memory: 64MiB\n")
	b := startBroker(t, "--config", path)
	sub := b.sub([]string{"x"})
	takeover := func() int { // a takeover of an id is logged at level debug
		first := b.sub([]string{"y", "--id", "me"})
		b.sub([]string{"y", "--id", "me"}).signal(syscall.SIGTERM)
		first.ended(exitOther)
		return strings.Count(b.stderr.String(), `"reason":"replaced"`)
	}
	if n := takeover(); n != 0 {
		t.Errorf("%d lines below the level", n)
	}
	if got := b.reload(); !strings.Contains(got, `"level":"INFO","msg":"reloaded","changed":[]}`) {
		t.Errorf("nothing has changed: %s", got)
	}

	rewrite(t, path, "log_level: debug\nmax_memory: 128MiB\nsend_timeout: 3s\n")
	if got := b.reload(); !strings.Contains(got, `"msg":"reloaded","changed":["log_level"]}`) {
		t.Errorf("another level: %s", got)
	}
	b.says(`"level":"WARN","msg":"settings have changed that take effect at the next start","settings":["max_memory","send_timeout"]}`)
	eventually(t, "details are logged", func() bool { return takeover() > 0 })

	for _, c := range []struct{ name, text, want string }{
		{"unknown key", "log_level: error\nmax_memry: 1GiB\n", path + `:2: unknown key \"max_memry\"; did you mean \"max_memory\"?`},
		{"bad value", "log_level: error\nsend_timeout: 5\n", path + `:2: send_timeout: \"5\" has no unit`},
		{"settings that do not go together", "log_level: error\nmax_memory: 1MiB\nmax_message_size: 2MiB\n", "max_message_size: 2MiB is more than max_memory (1MiB)"},
		{"no YAML", "log_level: error\n\tx: 1\n", path + ":2: "},
		{"client section", "log_level: error\nclient: {sever: x}\n", `unknown key \"sever\"`},
		{"several", "log_level: loud\ntypo: x\n", path + `:2: unknown key \"typo\"; ` + path + ":1: log_level:"},
	} {
		rewrite(t, path, c.text)
		if got := b.reload(); !strings.Contains(got, `"level":"ERROR","msg":"reload refused, everything stays as it was","why":`) || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", c.name, got)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := b.reload(); !strings.Contains(got, "configuration file "+path+": no such file or directory") {
		t.Errorf("without the file: %s", got)
	}
	before := takeover()
	eventually(t, "details are still logged", func() bool { return takeover() > before })
	b.pub("", "x", "still here")
	sub.printed("still here\n")
	if sub.stderr.String() != "" {
		t.Errorf("the subscriber says %q", sub.stderr.String())
	}
	if n := strings.Count(b.stderr.String(), `"msg":"reload`); n != 9 {
		t.Errorf("%d lines about 9 reloads", n)
	}
}

// A flag beats the environment, and that the file, also at a reload.
func TestReloadPrecedence(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.yaml")
	rewrite(t, path, "log_level: error\n")
	byFlag := startBroker(t, "--config", path, "--log-level", "warn", "--max-memory", "64MiB")
	byEnvironment := &broker{process: start(t, []string{"serve", "--listen", "127.0.0.1:0"},
		env("TINYBROKER_CONFIG="+path, "TINYBROKER_LOG_LEVEL=warn", "TINYBROKER_MAX_MEMORY=64MiB"))}
	byEnvironment.says("listening on")
	rewrite(t, path, "log_level: info\nmax_memory: 128MiB\n")
	for what, b := range map[string]*broker{"flag": byFlag, "environment": byEnvironment} {
		if got := b.reload(); !strings.Contains(got, `"changed":[]}`) || strings.Contains(b.stderr.String(), "next start") {
			t.Errorf("%s: %s", what, b.stderr.String())
		}
	}
}

// A file that comes where a broker has looked for one and found none is read; one that has gone is a mistake.
func TestReloadFindsTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := &broker{process: start(t, []string{"serve", "--listen", "127.0.0.1:0"}, env("XDG_CONFIG_HOME="+dir))}
	b.says("listening on")
	if err := os.Mkdir(filepath.Join(dir, "tinybroker"), 0o700); err != nil {
		t.Fatal(err)
	}
	rewrite(t, filepath.Join(dir, "tinybroker", "config.yaml"), "log_level: error\n")
	if got := b.reload(); !strings.Contains(got, `"changed":["log_level"]`) {
		t.Error(got)
	}
}

// What a pipe has said at the start stays in force, since it cannot be read again; the other files are reloaded.
func TestReloadWithAPipe(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	auth := filepath.Join(t.TempDir(), "auth.yaml")
	identities := func(text string) {
		t.Helper()
		if err := os.WriteFile(auth, []byte(authText(text)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	identities(fortressIdentities)
	_, err = fmt.Fprintf(w, "log_level: warn\nmax_memory: 64MiB\nauth_file: %q\n", auth)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "addr")
	p := start(t, []string{"serve", "--config", "/dev/fd/3", "--listen", "127.0.0.1:0", "--addr-file", file},
		func(p *process) { p.cmd.ExtraFiles = []*os.File{r} })
	b := &broker{process: p, address: strings.TrimSpace(waitFile(t, file))}
	if got := b.reload(); !strings.Contains(got, `"changed":[]`) {
		t.Error(got)
	}
	identities("identities:\n" + identityTwo)
	if got := b.reload(); !strings.Contains(got, `"changed":["auth_file"]`) {
		t.Error(got)
	}
	if got := b.stderr.String(); strings.Contains(got, "next start") {
		t.Error(got)
	}
}

// Signals that come while the broker starts or stops, and many at once, do no harm.
func TestHangupsAtAnyTime(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "--shutdown-timeout", "300ms")
	b.sub([]string{"x"}, writing(stuckPipe(t)))
	b.pub(strings.Repeat(strings.Repeat("x", 1000)+"\n", 5000), "x", "--max-wait", "0") // keeps the drain busy
	hangUp := func(p *process) {
		for ; p.cmd.Process.Signal(syscall.SIGHUP) == nil; time.Sleep(time.Millisecond) {
			select {
			case <-p.done:
				return
			default:
			}
		}
	}
	go hangUp(b.process)
	b.says("reloaded")
	b.signal(syscall.SIGTERM)
	b.ended(0)
}

// A reload that does not come to an end, since a file does not, holds up neither clients nor a stop.
func TestStopDuringAReload(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "auth.yaml")
	if err := os.WriteFile(path, []byte(authText(fortressIdentities)), 0o600); err != nil {
		t.Fatal(err)
	}
	b := startBroker(t, "--auth-file", path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	b.signal(syscall.SIGHUP)
	eventually(t, "the broker reads", func() bool {
		writer, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			t.Cleanup(func() { _ = writer.Close() })
		}
		return err == nil
	})
	b.signal(syscall.SIGHUP)
	start(t, []string{"status", "-q", "-s", b.address}).ended(0)
	b.signal(syscall.SIGTERM)
	b.ended(0)
	if got := b.stderr.String(); strings.Contains(got, `"msg":"reload`) {
		t.Errorf("%s", got)
	}
}

// A broker on a terminal reloads, too, when it is asked to; but it does not outlive the window it was started in.
func TestHangupOfTheTerminal(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "addr")
	cmd := exec.Command("tinybroker", "serve", "--listen", "127.0.0.1:0", "--addr-file", file)
	cmd.Env = testEnv(t)
	tty, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	waitFile(t, file)
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	var shown []byte
	for buf := make([]byte, 4096); !strings.Contains(string(shown), "msg=reloaded"); {
		n, err := tty.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, shown)
		}
		shown = append(shown, buf[:n]...)
	}
	tty.Close() // no read may be under way, or it would wait for that
	defer time.AfterFunc(patience, func() { cmd.Process.Kill() }).Stop()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(file); !os.IsNotExist(err) {
		t.Errorf("the address file is left behind: %v", err)
	}
}

// All parts are prepared before any is committed, and one that objects keeps all back.
func TestReloadIsAllOrNothing(t *testing.T) {
	cleanEnvironment(t)
	path := writeConfig(t, "log_level: warn\n")
	cmd, err := configured(t, "serve", "--config", path)
	if err != nil {
		t.Fatal(err)
	}
	var level slog.LevelVar
	setLevel(&level, "warn")
	var done []string
	bad := errors.New("tokens: line 3: no colon")
	part := func(name string, err *error, unchanged bool) reloadable {
		return reloadable{name, func() (func(), error) {
			done = append(done, "prepare "+name)
			if *err != nil || unchanged {
				return nil, *err
			}
			return func() { done = append(done, "commit "+name) }, nil
		}}
	}
	var log lockedBuffer
	good := error(nil)
	r := &reloader{
		log: slog.New(slog.NewTextHandler(&log, nil)),
		settings: &liveSettings{flags: cmd.Flags(), file: &configFile{path: path, stays: true}, live: map[string]func(string){
			"log-level": func(name string) { setLevel(&level, name) },
		}},
		parts: []reloadable{part("certificate", &good, false), part("tokens", &bad, false), part("ca", &good, true)},
	}
	rewrite(t, path, "log_level: info\n")
	r.reload()
	if want := []string{"prepare certificate", "prepare tokens", "prepare ca"}; !slices.Equal(done, want) || level.Level() != slog.LevelWarn {
		t.Errorf("%q at level %s", done, level.Level())
	}
	if got := log.String(); !strings.Contains(got, `msg="reload refused, everything stays as it was" why="tokens: line 3: no colon"`) {
		t.Error(got)
	}
	bad, done = nil, nil
	r.reload()
	if want := []string{"prepare certificate", "prepare tokens", "prepare ca", "commit certificate", "commit tokens"}; !slices.Equal(done, want) || level.Level() != slog.LevelInfo {
		t.Errorf("%q at level %s", done, level.Level())
	}
	if got := log.String(); !strings.Contains(got, `msg=reloaded changed="[log_level certificate tokens]"`) {
		t.Error(got)
	}
}

// Whatever a setting's value is, the reload reads it back as it is: nothing waits when nothing has changed.
func TestReloadReadsEverySettingBack(t *testing.T) {
	cleanEnvironment(t)
	settingsUnderTest(t, func(command string, f *pflag.Flag) {
		if command != "serve" || f.Name == "max-message-size" {
			return
		}
		args := []string{"--insecure"}
		if strings.HasPrefix(f.Name, "tls-") {
			args = append(args, "--tls-cert=cert", "--tls-key=key") // none of them goes without these two
		}
		if f.Name != "insecure" {
			args = append(args, "--"+f.Name+"="+samples(t, f)[1])
		}
		for _, path := range []string{"", writeConfig(t, "client: {server: x}\n")} {
			with := append([]string{"--config=none"}, args...)
			if path != "" {
				with[0] = "--config=" + path
			}
			cmd, err := configured(t, "serve", with...)
			if err != nil {
				t.Fatal(err)
			}
			s := &liveSettings{flags: cmd.Flags()}
			if path != "" {
				s.file = &configFile{path: path, stays: true}
			}
			fresh, err := s.read()
			if err != nil {
				t.Fatalf("%q: %v", with, err)
			}
			if names := s.waiting(fresh); len(names) > 0 {
				t.Errorf("%q: %q differ", with, names)
			}
		}
	})
}
