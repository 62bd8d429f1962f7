//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestPortTaken(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	second := start(t, []string{"serve", "--listen", b.address})
	second.ended(exitUnavailable)
	want := "tinybroker: listen on " + b.address + ": address already in use; is another tinybroker running?\n" +
		"hint: tinybroker status -s " + b.address + " tells; --listen 127.0.0.1:0 takes any free port\n"
	if got := second.stderr.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// One address that cannot be had and nothing listens, not even for a moment.
func TestListenAllOrNothing(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	socket := filepath.Join(t.TempDir(), "s")
	second := start(t, []string{"serve", "--listen", "unix://" + socket, "--listen", b.address})
	second.ended(exitUnavailable)
	if _, err := os.Lstat(socket); err == nil {
		t.Error("the socket is left behind")
	}
}

func TestListenLine(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "--log-format", "text", "--log-level", "error")
	b.says("\n")
	if got, want := b.stderr.String(), "listening on "+b.address+"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if b.stdout.String() != "" {
		t.Errorf("standard output holds %q", b.stdout.String())
	}
	b = startBroker(t)
	b.says(`"level":"INFO","msg":"listening on ` + b.address + `","address":"` + b.address + `"}`)
	b = startBroker(t, "--insecure", "--listen", "0.0.0.0:0", "--max-message-size", "4MiB")
	for _, want := range []string{"without TLS and authentication on an address that other machines may reach", "larger than the 4 MiB"} {
		b.says(want)
	}
}

// A broker that may not open as many files as it may have connections says so at once, not when they come.
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	for limits, want := range map[string]string{
		"ulimit -n 300; exec tinybroker serve --listen 127.0.0.1:0 --max-connections 150": "",
		"ulimit -n 300; exec tinybroker serve --listen 127.0.0.1:0 --max-connections 151": `needs; raise the limit (ulimit -n, LimitNOFILE)","limit":300,"needed":301}`,
	} {
		p := start(t, nil, func(p *process) {
			p.cmd.Path, p.cmd.Args = "/bin/sh", []string{"sh", "-c", limits}
		})
		p.says(`"msg":"listening on`)
		if got := p.stderr.String(); !strings.Contains(got, want) || want == "" && strings.Contains(got, "limit") {
			t.Errorf("%s: %s", limits, got)
		}
	}
}

func TestAddrFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "addr")
	if err := os.WriteFile(file, []byte("left behind"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, []string{"serve", "--listen", "127.0.0.1:0", "--listen", "unix:" + dir + "/s", "--addr-file", file})
	eventually(t, "the file is new", func() bool { return waitFile(t, file) != "left behind" })
	lines := strings.Split(strings.TrimSpace(waitFile(t, file)), "\n")
	if len(lines) != 2 || lines[1] != "unix://"+dir+"/s" {
		t.Errorf("%q", lines)
	}
	for _, address := range lines {
		start(t, []string{"status", "-q", "-s", address}).ended(0)
	}
	p.signal(syscall.SIGTERM)
	p.ended(0)
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	p = start(t, []string{"serve", "--listen", "127.0.0.1:0", "--addr-file", dir + "/missing/addr"})
	p.ended(exitIO)
	if !strings.Contains(p.stderr.String(), "tinybroker: --addr-file "+dir+"/missing/addr: no such file or directory\n") {
		t.Error(p.stderr.String())
	}
}

// What is no file is not replaced by one, nor taken away.
func TestAddrFileIsNoFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, device := filepath.Join(dir, "pipe"), filepath.Join(dir, "device")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink("/dev/null", device)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, device, dir} {
		before, _ := os.Lstat(path)
		p := start(t, []string{"serve", "--listen", "127.0.0.1:0", "--addr-file", path})
		p.ended(exitConfig)
		if got := p.stderr.String(); got != "tinybroker: addr_file: "+path+": is not a regular file\n" {
			t.Errorf("%q", got)
		}
		if after, err := os.Lstat(path); err != nil || after.Mode() != before.Mode() {
			t.Errorf("%s: %v, %v", path, after, err)
		}
	}
}

// What a killed broker has left in its address file is gone before the next one has done anything that may take long.
func TestAddrFileOfAKilledBroker(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, auth := filepath.Join(dir, "addr"), filepath.Join(dir, "auth.yaml")
	killed := start(t, []string{"serve", "--listen", "127.0.0.1:0", "--listen", "unix://" + dir + "/s",
		"--metrics-listen", "unix://" + dir + "/metrics", "--addr-file", file})
	waitFile(t, file)
	killed.signal(syscall.SIGKILL)
	<-killed.done
	if waitFile(t, file) == "" {
		t.Fatal("it has left nothing behind")
	}
	if err := syscall.Mkfifo(auth, 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, []string{"serve", "--listen", "127.0.0.1:0", "--auth-file", auth, "--addr-file", file}) // waits for what the pipe says
	eventually(t, "the old address is gone", func() bool {
		_, err := os.Lstat(file)
		return os.IsNotExist(err)
	})
	if err := os.WriteFile(auth, []byte(authText(fortressIdentities)), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, []string{"status", "-q", "-s", strings.TrimSpace(waitFile(t, file))}).ended(0)
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "t.sock")
	listen := []string{"--listen", "unix://" + path}
	serve := func() *broker {
		b := &broker{process: start(t, append([]string{"serve"}, listen...)), address: "unix://" + path}
		b.says("listening on unix://" + path)
		return b
	}
	b := serve()
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	sub := b.sub([]string{"x"})
	for _, spelling := range []string{"unix://" + path, "unix:" + path, path} {
		start(t, []string{"pub", "x", "y", "-s", spelling}).ended(0)
	}
	sub.printed("y\ny\ny\n")

	// A second broker leaves the first its socket.
	second := start(t, append([]string{"serve"}, listen...))
	second.ended(exitUnavailable)
	if got := second.stderr.String(); got != "tinybroker: listen on unix://"+path+": address already in use; is another tinybroker running?\n"+
		"hint: tinybroker status -s unix://"+path+" tells; --listen takes another path\n" {
		t.Errorf("%q", got)
	}
	b.pub("", "x", "still there")
	sub.printed("y\ny\ny\nstill there\n")

	// What a killed broker leaves behind is no obstacle.
	b.signal(syscall.SIGKILL)
	<-b.done
	b = serve()
	sub.says("reconnected after")
	b.signal(syscall.SIGTERM)
	b.ended(0)
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}

	// A file that is no socket is not removed.
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, append([]string{"serve"}, listen...))
	p.ended(exitUnavailable)
	if !strings.Contains(p.stderr.String(), "a file that is not a socket is in the way") || waitFile(t, path) != "precious" {
		t.Error(p.stderr.String())
	}
	for _, c := range []struct {
		path string
		code int
		want string
	}{
		{dir + "/" + strings.Repeat("long", 40), exitConfig, "the path of a unix socket is at most about 100 bytes long"},
		{dir + "/missing/s", exitConfig, "no such file or directory"},
	} {
		p := start(t, []string{"serve", "--listen", "unix://" + c.path})
		p.ended(c.code)
		if !strings.Contains(p.stderr.String(), c.want) {
			t.Errorf("%s: %q", c.path, p.stderr.String())
		}
	}
}

// The owner alone may use a socket, unless the broker is told otherwise; the umask has no say.
func TestSocketMode(t *testing.T) {
	t.Parallel()
	for mode, args := range map[os.FileMode][]string{
		0o600: {},
		0o660: {"--socket-mode", "0660"},
		0o666: {"--socket-mode", "666"},
		0o770: {"--socket-mode", "0o770"},
	} {
		b := startSocketBroker(t, filepath.Join(t.TempDir(), "s"), args...)
		info, err := os.Lstat(strings.TrimPrefix(b.address, "unix://"))
		if err != nil || info.Mode() != os.ModeSocket|mode {
			t.Errorf("%q: %v, %v", args, info.Mode(), err)
		}
		b.pub("", "x", "y")
	}
	p := start(t, []string{"serve", "--socket-mode", "0060"})
	p.ended(exitUsage)
	if want := "tinybroker: --socket-mode: \"0060\" is not a mode such as 0600 or 0660, with which the owner can read and write\n"; p.stderr.String() != want {
		t.Errorf("%q", p.stderr.String())
	}
	p = start(t, []string{"serve", "--listen", "unix:@abstract"})
	p.ended(exitConfig)
	if !strings.Contains(p.stderr.String(), "an abstract socket has no mode, so anybody could use it; give a path") {
		t.Errorf("%q", p.stderr.String())
	}
}

func startSocketBroker(t *testing.T, path string, args ...string) *broker {
	t.Helper()
	b := &broker{process: start(t, append([]string{"serve", "--listen", "unix://" + path}, args...)), address: "unix://" + path}
	b.says("listening on unix://" + path)
	return b
}

// A broker that ends leaves alone what another has put in the place of its socket and its address file.
func TestSuccessorKeepsItsFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket, file := filepath.Join(dir, "s"), filepath.Join(dir, "addr")
	old := startSocketBroker(t, socket, "--addr-file", file)
	waitFile(t, file)
	if err := os.Remove(socket); err != nil { // as somebody may do who takes it for stale
		t.Fatal(err)
	}
	successor := startSocketBroker(t, socket, "--listen", "127.0.0.1:0", "--addr-file", file)
	eventually(t, "the address file is the successor's", func() bool { return strings.Count(waitFile(t, file), "\n") == 2 })
	old.signal(syscall.SIGTERM)
	old.ended(0)
	if strings.Count(waitFile(t, file), "\n") != 2 {
		t.Error("the address file has changed")
	}
	successor.pub("", "x", "y")
	successor.signal(syscall.SIGTERM)
	successor.ended(0)
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}

	// One that could not start has no file to take away, neither that of who has its address nor one that was never an address file.
	file = filepath.Join(dir, "other")
	running := start(t, []string{"serve", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--addr-file", file})
	before := waitFile(t, file)
	start(t, []string{"serve", "--listen", strings.Split(before, "\n")[0], "--addr-file", file}).ended(exitUnavailable)
	if got := waitFile(t, file); got != before {
		t.Errorf("the file holds %q, and held %q", got, before)
	}
	running.signal(syscall.SIGTERM)
	running.ended(0)
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	taken := startBroker(t)
	start(t, []string{"serve", "--listen", taken.address, "--addr-file", file}).ended(exitUnavailable)
	if got := waitFile(t, file); got != "precious" {
		t.Errorf("the file holds %q", got)
	}
}

// Proxy variables do not come between programs on one machine.
func TestProxyVariables(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := startBroker(t, "--listen", "unix://"+dir+"/s")
	_, port, err := net.SplitHostPort(strings.Split(b.address, "\n")[0])
	if err != nil {
		t.Fatal(err)
	}
	proxy := env("HTTPS_PROXY=http://127.0.0.1:1", "https_proxy=http://127.0.0.1:1", "NO_PROXY=", "no_proxy=")
	for _, server := range []string{"127.0.0.1:" + port, "localhost:" + port, "unix://" + dir + "/s"} {
		start(t, []string{"status", "-q", "-s", server}, proxy).ended(0)
	}
	p := start(t, []string{"status", "-s", "broker.example:7710", "--connect-timeout", "2s"}, proxy)
	p.ended(exitUnavailable)
	if !strings.Contains(p.stderr.String(), "by proxy 127.0.0.1:1") {
		t.Errorf("%q", p.stderr.String())
	}
}

// What answers on the port may be something else.
func TestNotABroker(t *testing.T) {
	t.Parallel()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	h2c := httptest.NewUnstartedServer(http.NotFoundHandler())
	h2c.Config.Protocols = new(http.Protocols)
	h2c.Config.Protocols.SetUnencryptedHTTP2(true)
	h2c.Start()
	defer h2c.Close()
	tls := httptest.NewUnstartedServer(http.NotFoundHandler())
	tls.Config.ErrorLog = log.New(io.Discard, "", 0)
	tls.StartTLS()
	defer tls.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, c := range []struct{ name, address, want string }{
		{"HTTP/1", plain.Listener.Addr().String(), "not a gRPC server"},
		{"HTTP/2", h2c.Listener.Addr().String(), "what answers there is not a broker"},
		{"TLS", tls.Listener.Addr().String(), "TLS"},
		{"silence", silent.Addr().String(), "timed out"},
	} {
		for _, args := range [][]string{{"status"}, {"pub", "x", "y"}, {"sub", "x"}} {
			p := start(t, append(args, "-s", c.address, "--connect-timeout", "1s"))
			p.ended(exitUnavailable)
			if got := p.stderr.String(); !strings.Contains(got, c.want) || strings.Count(got, "\n") != 1 {
				t.Errorf("%s: %s: %q", c.name, args[0], got)
			}
		}
	}
}

// A broker does not end with what collects its log.
func TestLogReaderGoes(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "addr")
	p := start(t, []string{"serve", "--listen", "127.0.0.1:0", "--addr-file", file, "--insecure", "--shutdown-timeout", "1s"},
		func(p *process) { p.cmd.Stderr = w })
	b := &broker{process: p, address: strings.TrimSpace(waitFile(t, file))}
	w.Close()
	r.Close()
	first := b.sub([]string{"x", "--id", "me"})
	b.sub([]string{"x", "--id", "me"}) // a takeover is logged
	first.ended(exitOther)
	b.pub("", "x", "y")
	p.signal(syscall.SIGTERM) // and so is the stop
	p.ended(0)
}

func TestStatus(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	b.sub([]string{"x"})
	b.pub("", "x", "y")
	p := start(t, []string{"status", "-s", b.address})
	p.ended(0)
	for _, want := range []string{"address        " + b.address + "\n", "health         SERVING\n", "subscriptions  1, 0 messages queued\n", "published      1 message, ", "delivered      1 message, "} {
		if !strings.Contains(p.stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, p.stdout.String())
		}
	}
	if got := b.status(); !strings.HasPrefix(got, `{"address":"`+b.address+`","version":"`) || !strings.Contains(got, `"health":"SERVING"`) ||
		!strings.Contains(got, `"published_messages":1,`) || strings.Count(got, "\n") != 1 {
		t.Errorf("%s", got)
	}
}

// A broker without room: try again later.
func TestBrokerWithoutRoom(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "--max-memory", "1MiB", "--consumer-capacity-bytes", "16MiB", "--max-subscriptions", "1")
	sub := b.sub([]string{"x"}, writing(stuckPipe(t)))
	second := start(t, []string{"sub", "x", "-s", b.address})
	second.ended(exitRetry)
	if got := second.stderr.String(); !strings.Contains(got, "max_subscriptions") && !strings.Contains(got, "quota") {
		t.Errorf("%q", got)
	}
	sub.signal(syscall.SIGSTOP)
	full := start(t, []string{"pub", "x", strings.Repeat("x", 100_000), "-n", "200", "--max-wait", "0", "-s", b.address})
	full.ended(exitRetry)
	if got := full.stderr.String(); !strings.HasPrefix(got, "tinybroker: message ") || !strings.Contains(got, "broker memory is full") {
		t.Errorf("%q", got)
	}
}

func TestTooLargeRecords(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	sub := b.sub([]string{"x", "--format", "{{.Size}}"})
	const limit = 1<<20 - len("x") // the topic counts, too
	lines := func(sizes ...int) string {
		var text strings.Builder
		for _, n := range sizes {
			fmt.Fprintln(&text, strings.Repeat("x", n))
		}
		return text.String()
	}
	for _, c := range []struct {
		name   string
		sizes  []int
		args   []string
		code   int
		stderr string
	}{
		{"at the limit", []int{limit - 1, limit}, nil, 0, ""},
		{"over it by one", []int{1, limit + 1}, nil, exitInput, "tinybroker: line 2: 1,048,577 B is over the broker's 1,048,576 B limit\n"},
		{"far over it", []int{1, 3_200_000}, nil, exitInput, "tinybroker: line 2: 3.2 MB is over the broker's 1 MiB limit\n"},
		{"passed over", []int{2, 3_200_000, 3, 1_500_000, 4}, []string{"--on-error", "continue"}, exitInput,
			"tinybroker: line 2: 3.2 MB is over the broker's 1 MiB limit\ntinybroker: line 4: 1.5 MB is over the broker's 1 MiB limit\ntinybroker: 2 records not published\n"},
		{"over what a frame may have", []int{5, 9_200_000, 6}, []string{"--on-error", "continue"}, exitInput,
			"tinybroker: line 2: 9.2 MB is over the broker's 1 MiB limit\ntinybroker: 1 record not published\n"},
		{"over what the transport takes", []int{5, 17_000_000, 6}, []string{"--on-error", "continue"}, exitInput,
			"tinybroker: line 2: 17 MB is over the broker's limit\ntinybroker: 1 record not published\n"},
		{"over what is kept in memory", []int{7, maxRecord + 1, 8}, []string{"--on-error", "continue"}, exitInput,
			"tinybroker: line 2: 67,108,865 B is over the limit of 67,108,864 B for one record\ntinybroker: 1 record not published\n"},
	} {
		p := start(t, append([]string{"pub", "x", "-s", b.address}, c.args...), reading(strings.NewReader(lines(c.sizes...))))
		p.ended(c.code)
		if got := p.stderr.String(); got != c.stderr {
			t.Errorf("%s: %q, want %q", c.name, got, c.stderr)
		}
	}
	want := fmt.Sprintf("%d\n%d\n1\n1\n2\n3\n4\n5\n6\n5\n6\n7\n8\n", limit-1, limit)
	sub.printed(want)
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, []byte(lines(2_000_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, []string{"pub", "x", "-f", big, "-s", b.address})
	p.ended(exitInput)
	if got := p.stderr.String(); got != "tinybroker: "+big+": 2.0 MB is over the broker's 1 MiB limit\n" {
		t.Errorf("%q", got)
	}
}

// An input that never ends, as /dev/zero and a pipe without line ends, is refused like any other that is too large.
func TestEndlessInput(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/zero"); err != nil {
		t.Skip(err)
	}
	b := startBroker(t)
	sub := b.sub([]string{"x"})
	after := filepath.Join(t.TempDir(), "after")
	if err := os.WriteFile(after, []byte("after"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   []string
		stdin  io.Reader
		stderr string
	}{
		{[]string{"-f", "/dev/zero"}, nil, "tinybroker: /dev/zero: is over the limit of 64 MiB for one record\n"},
		{[]string{"-f", "/dev/zero", "-i", "line"}, nil, "tinybroker: /dev/zero: line 1: is over the limit of 64 MiB for one record\n"},
		{[]string{"-i", "whole"}, zeros{}, "tinybroker: the message: is over the limit of 64 MiB for one record\n"},
		{nil, zeros{}, "tinybroker: line 1: is over the limit of 64 MiB for one record\n"},
		{[]string{"-d", "--"}, io.MultiReader(strings.NewReader("before--"), zeros{}), "tinybroker: line 2: is over the limit of 64 MiB for one record\n"},
		{[]string{"-f", "/dev/zero", "-f", after, "--on-error", "continue"}, nil,
			"tinybroker: /dev/zero: is over the limit of 64 MiB for one record\ntinybroker: 1 record not published\n"},
	} {
		p := start(t, append([]string{"pub", "x", "-s", b.address}, c.args...), reading(c.stdin))
		p.ended(exitInput)
		if got := p.stderr.String(); got != c.stderr {
			t.Errorf("%q: %q, want %q", c.args, got, c.stderr)
		}
	}
	sub.printed("before\nafter\n")
}
