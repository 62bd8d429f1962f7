package packaging

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// machine is a folder with just enough of a system for packages to be installed into it: a shell for the package's scripts, and a
// systemctl that writes down what it is asked for. The machine that runs the test is left alone.
type machine struct {
	t    *testing.T
	root string
}

// bookkeeping is what dpkg and the machine itself leave, package or not.
var bookkeeping = regexp.MustCompile(`^/(var|run|systemctl\.log)(/|$)`)

func newMachine(t *testing.T) *machine {
	t.Helper()
	needsRoot(t)
	needs(t, "ldd")
	m := &machine{t, t.TempDir()}
	if err := os.Chmod(m.root, 0o755); err != nil {
		t.Fatal(err)
	}
	copyFile(t, "/bin/sh", m.path("/bin/sh"))
	for _, library := range regexp.MustCompile(`/\S+`).FindAllString(output(t, "ldd", "/bin/sh"), -1) {
		copyFile(t, library, m.path(library))
	}
	writeFile(t, m.path("/usr/bin/systemctl"), "#!/bin/sh\necho \"$@\" >>/systemctl.log\n", 0o755)
	writeFile(t, m.path("/dev/null"), "", 0o666)
	writeFile(t, m.path("/var/lib/dpkg/status"), "", 0o644)
	for _, dir := range []string{"/run/systemd/system", "/var/lib/dpkg/info", "/var/lib/dpkg/updates", "/var/lib/dpkg/triggers"} {
		if err := os.MkdirAll(m.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (m *machine) path(path string) string { return filepath.Join(m.root, path) }

func (m *machine) dpkg(args ...string) {
	m.t.Helper()
	m.t.Setenv("PATH", os.Getenv("PATH")+":/usr/local/sbin:/usr/sbin:/sbin")
	output(m.t, "dpkg", append([]string{"--root=" + m.root}, args...)...)
}

// asked is what systemctl was asked for since the last call.
func (m *machine) asked() string {
	m.t.Helper()
	text, err := os.ReadFile(m.path("/systemctl.log"))
	if err != nil && !os.IsNotExist(err) {
		m.t.Fatal(err)
	}
	_ = os.Remove(m.path("/systemctl.log")) // it may not be there
	return string(text)
}

// The package of this machine's architecture is installed, does what it should, is updated, removed and purged.
func TestDeb(t *testing.T) {
	deb := find(t, "Linux Package", ".deb").Path
	needs(t, "dpkg")
	m := newMachine(t)
	before := paths(t, m.root, bookkeeping)

	m.dpkg("-i", deb)
	if got := m.asked(); got != "daemon-reload\n" {
		t.Errorf("the installation asks systemd for %q", got)
	}
	for _, path := range append([]string{"/usr/share/zsh/vendor-completions/_tinybroker"}, installedFiles...) {
		info, err := os.Stat(m.path(path))
		if err != nil {
			t.Error(err)
			continue
		}
		want := os.FileMode(0o644)
		if path == "/usr/bin/tinybroker" {
			want = 0o755
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode(), want)
		}
	}
	t.Run("unit", func(t *testing.T) { m.verifyUnit(t) })
	t.Run("serve", func(t *testing.T) { m.serve(t) })

	// What the user has changed stays through an update, and the running broker is left alone.
	config := m.path("/etc/tinybroker/config.yaml")
	changed := readFile(t, config) + "max_memory: 1GiB\n"
	writeFile(t, config, changed, 0o644)
	m.dpkg("-i", deb)
	if got := m.asked(); strings.ReplaceAll(got, "daemon-reload\n", "") != "" {
		t.Errorf("the update asks systemd for %q", got)
	}
	if readFile(t, config) != changed {
		t.Error("the update has replaced the configuration")
	}

	m.dpkg("-r", "tinybroker")
	if got := m.asked(); got != "disable --now --quiet tinybroker.service\ndaemon-reload\n" {
		t.Errorf("the removal asks systemd for %q", got)
	}
	if readFile(t, config) != changed {
		t.Error("the removal has taken the configuration")
	}
	m.dpkg("-P", "tinybroker")
	if after := paths(t, m.root, bookkeeping); !slices.Equal(after, before) {
		t.Errorf("left behind: %q, was %q", after, before)
	}
}

// verifyUnit lets systemd read the unit, with the program where this test has put it, and say how far a broker that somebody has taken
// over would get: 0 is nowhere, 100 is everywhere.
func (m *machine) verifyUnit(t *testing.T) {
	needs(t, "systemd-analyze")
	text := readFile(t, m.path("/usr/lib/systemd/system/tinybroker.service"))
	text = strings.Replace(text, "ExecStart=/usr/bin/", "ExecStart="+m.path("/usr/bin")+"/", 1)
	unit := filepath.Join(t.TempDir(), "tinybroker.service")
	writeFile(t, unit, text, 0o644)
	verify := func() string {
		out, err := command(t, "systemd-analyze", "verify", "--man=no", unit).CombinedOutput()
		if err != nil {
			return string(out) + err.Error()
		}
		return string(out) // what systemd passes over, it complains of
	}
	if complaint := verify(); complaint != "" {
		t.Error(complaint)
	}
	output(t, "systemd-analyze", "security", "--offline=yes", "--threshold=15", unit)

	// Both checks see something.
	writeFile(t, unit, strings.Replace(text, "LimitNOFILE=65536", "LimitNOFILE=many", 1), 0o644)
	if verify() == "" {
		t.Error("a unit with a mistake passes")
	}
	writeFile(t, unit, strings.Replace(text, "DynamicUser=yes", "", 1), 0o644)
	if command(t, "systemd-analyze", "security", "--offline=yes", "--threshold=15", unit).Run() == nil {
		t.Error("a broker that runs as root passes")
	}
}

// serve starts what the unit starts, as another user and with the installed files alone, and publishes.
func (m *machine) serve(t *testing.T) {
	run := m.path("/run/tinybroker")
	if err := os.Mkdir(run, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(run, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path("/run/notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer notify.Close()
	if err := os.Chmod(m.path("/run/notify"), 0o777); err != nil {
		t.Fatal(err)
	}
	start := regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(readFile(t, m.path("/usr/lib/systemd/system/tinybroker.service")))
	if start == nil {
		t.Fatal("the unit starts nothing")
	}
	env := []string{"TINYBROKER_LISTEN=127.0.0.1:0", "NOTIFY_SOCKET=/run/notify"}
	s := startInside(t, m.root, env, strings.Fields(start[1])...)
	client := []string{"TINYBROKER_SERVER=" + s.address(), "TINYBROKER_CONFIG=none"}
	if err := notify.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 1024)
	n, err := notify.Read(said)
	if err != nil || !strings.Contains("\n"+string(said[:n])+"\n", "\nREADY=1\n") {
		t.Errorf("systemd is told %q, %v", said[:n], err)
	}
	for _, args := range [][]string{{"status"}, {"pub", "deploy.rollout", "x"}} {
		if out, err := inside(t, m.root, client, append([]string{"/usr/bin/tinybroker"}, args...)...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", args[0], err, out)
		}
	}
	s.stop()
}
