//go:build unix

package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/auth"
	"codeberg.org/tinybroker/tinybroker/internal/auth/certtest"
)

// fortress is a broker with TLS and identities, whose files can be changed.
type fortress struct {
	*broker
	issuer   *certtest.Issuer
	pair     certtest.Pair
	authFile string
	serveArg []string
}

// fortressIdentities stand in the auth file at first. HASH:x is the hash of token x.
const (
	fortressIdentities = "identities:\n" + identityOne + identityTwo

	identityOne = `  - {name: one, token_hash: "HASH:one", publish: {allow: "in.**"}, subscribe: {allow: "in.**"}, group: {allow: "work"}}
`
	identityTwo = `  - {name: two, token_hash: "HASH:two", certificate_names: "cn:two", publish: {allow: "**"}, subscribe: {allow: ["**", "$tb.**"]}, group: {allow: "*"}, admin: true}
`
)

func authText(text string) string {
	for _, token := range []string{"one", "two", "three"} {
		text = strings.ReplaceAll(text, "HASH:"+token, auth.HashToken(token))
	}
	return text
}

func newFortress(t *testing.T, args ...string) *fortress {
	t.Helper()
	f := &fortress{issuer: certtest.New(t)}
	f.pair = f.issuer.Issue("broker", nil)
	f.authFile = f.issuer.File("auth.yaml", authText(fortressIdentities), 0o600)
	for _, token := range []string{"one", "two", "three"} {
		f.issuer.File(token+".token", token+"\n", 0o600)
	}
	f.serveArg = append([]string{"--tls-cert", f.pair.Certificate, "--tls-key", f.pair.Key, "--tls-client-ca", f.issuer.CA, "--auth-file", f.authFile}, args...)
	f.broker = startBroker(t, f.serveArg...)
	return f
}

// as are the arguments of a client with a token; an empty one: without.
func (f *fortress) as(token string, args ...string) []string {
	args = append(args, "-s", f.address, "--tls-ca", f.issuer.CA)
	if token != "" {
		args = append(args, "--token-file", filepath.Join(f.issuer.Dir, token+".token"))
	}
	return args
}

// subscribe starts a sub and waits until it is subscribed.
func (f *fortress) subscribe(t *testing.T, token string, args ...string) *process {
	t.Helper()
	ready := filepath.Join(t.TempDir(), "ready")
	p := start(t, f.as(token, append([]string{"sub", "--ready-file", ready}, args...)...))
	waitFile(t, ready)
	return p
}

// setAuth exchanges the auth file and reloads.
func (f *fortress) setAuth(t *testing.T, text string) string {
	t.Helper()
	f.issuer.File("auth.yaml", authText(text), 0o600)
	return f.reload()
}

// TestSecurityOfCommands: each command with the credential it needs, without one, and with one that is not enough.
func TestSecurityOfCommands(t *testing.T) {
	t.Parallel()
	f := newFortress(t)
	cert := f.issuer.Issue("two", nil)
	withCertificate := []string{"--tls-cert", cert.Certificate, "--tls-key", cert.Key}
	stranger := certtest.New(t).Issue("two", nil)
	for _, c := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"pub", f.as("one", "pub", "in.x", "y"), 0, ""},
		{"pub, from a file", f.as("one", "pub", "in.x"), 0, ""},
		{"pub, not allowed", f.as("one", "pub", "out", "y"), exitAuth, "not allowed: to publish to out"},
		{"pub without a token", f.as("", "pub", "in.x", "y"), exitAuth, "not authenticated: no credential"},
		{"pub with a bad token", f.as("three", "pub", "in.x", "y"), exitAuth, "not authenticated: the token is not known"},
		{"sub, not allowed", f.as("one", "sub", "out", "--for", "1s"), exitAuth, `not allowed: to receive "out"`},
		{"sub, not that group", f.as("one", "sub", "in.x", "-g", "other", "--for", "1s"), exitAuth, "not allowed: to join group other"},
		{"sub without a token", f.as("", "sub", "in.x"), exitAuth, "not authenticated"},
		{"status", f.as("two", "status"), 0, ""},
		{"status, no admin", f.as("one", "status"), exitAuth, "one has no admin right"},
		{"status, the health alone", f.as("", "status", "-q"), 0, ""},
		{"ls", f.as("two", "ls", "topics"), 0, ""},
		{"ls, no admin", f.as("one", "ls", "topics"), exitAuth, "one has no admin right"},
		{"top", f.as("two", "top", "--once"), 0, ""},
		{"top, no admin", f.as("one", "top", "--once"), exitAuth, "one has no admin right"},
		{"bench", f.as("two", "bench", "--msgs", "10"), 0, ""},
		{"bench, not allowed", f.as("one", "bench", "--msgs", "10"), exitAuth, "not allowed"},
		{"by certificate", f.as("", append([]string{"status"}, withCertificate...)...), 0, ""},
		{"with somebody else's certificate", f.as("", "status", "--tls-cert", stranger.Certificate, "--tls-key", stranger.Key), exitAuth, "the broker does not take the client certificate; its issuer has to be in the broker's tls_client_ca, and it must not have expired"},
		{"without TLS", []string{"status", "-s", f.address}, exitUnavailable, "TLS mismatch: the server does not speak plaintext HTTP/2; it may expect TLS; try --tls"},
		{"without its issuer", []string{"status", "--tls", "-s", f.address}, exitUnavailable, "certificate signed by unknown authority; name its issuer with --tls-ca"},
		{"by another name", f.as("two", "status", "--tls-server-name", "elsewhere"), exitUnavailable, "certificate is valid for localhost, not elsewhere"},
		{"by a name of its own", f.as("two", "status", "--tls-server-name", "localhost"), 0, ""},
	} {
		p := start(t, c.args, reading(strings.NewReader("line\n")), env("HTTPS_PROXY=http://127.0.0.1:1", "https_proxy=http://127.0.0.1:1", "NO_PROXY=", "no_proxy="))
		p.ended(c.code)
		got, hint, _ := strings.Cut(p.stderr.String(), "\n")
		if !strings.Contains(got, c.want) || c.want != "" && !strings.HasPrefix(got, "tinybroker: ") || strings.Count(hint, "\n") > 1 {
			t.Errorf("%s: %q", c.name, got)
		}
		// Who has no right, or is not known, is told where it is said who may do what.
		if advised := strings.HasPrefix(hint, "hint: ") && strings.Contains(hint, "auth file"); advised != (strings.Contains(got, "not allowed") || strings.Contains(got, "not authenticated")) {
			t.Errorf("%s: %q, %q", c.name, got, hint)
		}
	}
}

// A broker with TLS may hang up on plaintext before the client has read what it says.
func TestAdviceAboutTLS(t *testing.T) {
	for _, c := range []struct {
		asks bool
		want string
	}{{false, "; if it expects TLS, try --tls"}, {true, ""}} {
		s := &clientSecurity{useTLS: c.asks}
		for _, cause := range []string{"connection closed", "connection reset"} {
			if got := s.tlsAdvice(cause); got != c.want {
				t.Errorf("%s, TLS %t: %q", cause, c.asks, got)
			}
		}
		if got := s.tlsAdvice("connection refused"); got != "" {
			t.Errorf("nobody is there, and the advice is %q", got)
		}
	}
}

// A plaintext broker tells whoever comes with TLS, and takes tokens from this machine.
func TestTokensWithoutTLS(t *testing.T) {
	t.Parallel()
	issuer := certtest.New(t)
	token := issuer.File("token", "one\n", 0o600)
	socket := "unix://" + issuer.Dir + "/s"
	b := startBroker(t, "--listen", socket, "--auth-file", issuer.File("auth.yaml", authText("identities:\n"+identityOne), 0o600))
	b.address, _, _ = strings.Cut(b.address, "\n")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"pub", "in.x", "y", "--token-file", token}, 0, ""},
		{[]string{"pub", "in.x", "y"}, exitAuth, "no credential"},
		{[]string{"pub", "in.x", "y", "--tls", "--token-file", token}, exitUnavailable, "TLS mismatch: the server does not speak TLS; leave --tls and its files out"},
	} {
		for _, server := range []string{b.address, socket} {
			// A proxy is for other machines.
			p := start(t, append(c.args, "-s", server), env("HTTPS_PROXY=http://127.0.0.1:1", "https_proxy=http://127.0.0.1:1", "NO_PROXY=", "no_proxy="))
			p.ended(c.code)
			if got := p.stderr.String(); !strings.Contains(got, c.want) {
				t.Errorf("%s: %q: %q", server, c.args, got)
			}
		}
	}
	for _, server := range []string{"10.255.255.1:7710", "broker.example:7710", "dns:///localhost.example"} {
		began := time.Now()
		p := start(t, []string{"pub", "x", "y", "-s", server, "--token-file", token})
		p.ended(exitConfig)
		if got := p.stderr.String(); !strings.Contains(got, "--token-file: a token is sent over TLS, to a unix socket or to a loopback address, and nowhere else; use --tls") || time.Since(began) > 5*time.Second {
			t.Errorf("%s: %q", server, got)
		}
	}
}

// What is wrong with a client's own files is said before it connects.
func TestClientSecurityFiles(t *testing.T) {
	t.Parallel()
	i := certtest.New(t)
	a, b := i.Issue("a", nil), i.Issue("b", nil)
	const secret = "tb_S3CR3T-zz"
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"no token file", []string{"--token-file", i.Dir + "/x"}, "--token-file: " + i.Dir + "/x: no such file or directory"},
		{"an empty one", []string{"--token-file", i.File("empty", "", 0o600)}, "holds no token"},
		{"a line end", []string{"--token-file", i.File("newline", "\r\n", 0o600)}, "holds no token"},
		{"two lines", []string{"--token-file", i.File("two", secret+"\nx\n", 0o600)}, "holds control characters"},
		{"that all can read", []string{"--token-file", i.File("open", secret+"\n", 0o644)}, "is open to others (mode 0644): chmod 600 it"},
		{"a folder", []string{"--token-file", i.Dir}, i.Dir + ": is a directory"},
		{"a certificate without its key", []string{"--tls-cert", a.Certificate}, "--tls-cert and --tls-key: one does not work without the other"},
		{"another's key", []string{"--tls-cert", a.Certificate, "--tls-key", b.Key}, "tls: " + b.Key + ": is not the private key of " + a.Certificate},
		{"no CA", []string{"--tls-ca", i.Dir + "/x"}, "tls: " + i.Dir + "/x: no such file or directory"},
		{"no certificates in it", []string{"--tls-ca", i.Dir + "/open"}, "holds no certificate in PEM"},
	} {
		for _, command := range [][]string{{"pub", "x", "y"}, {"sub", "x"}, {"status"}, {"top", "--once"}, {"ls", "topics"}, {"bench", "--msgs", "1"}} {
			p := start(t, append(append(command, "-s", "127.0.0.1:1"), c.args...))
			p.ended(exitConfig)
			if got := p.stderr.String(); !strings.Contains(got, c.want) || strings.Count(got, "\n") != 1 || strings.Contains(got, secret) {
				t.Errorf("%s: %s: %q", c.name, command[0], got)
			}
		}
	}
}

// Whatever is wrong with the files of serve stops the start, in one line for each mistake, and nothing listens.
func TestServeSecurityFiles(t *testing.T) {
	t.Parallel()
	i := certtest.New(t)
	a, b := i.Issue("a", nil), i.Issue("b", nil)
	const secret = "tb_S3CR3T-zz"
	key, err := os.ReadFile(a.Key)
	if err != nil {
		t.Fatal(err)
	}
	good := i.File("good.yaml", authText(`identities: [{name: one, token_hash: "HASH:one"}]`), 0o600)
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"no auth file", []string{"--auth-file", i.Dir + "/x"}, []string{"auth_file: " + i.Dir + "/x: no such file or directory"}},
		{"a blank path", []string{"--auth-file", ""}, []string{"tinybroker: --auth-file is blank; give it a value or leave it out"}},
		{"blank paths", []string{"--tls-cert=", "--tls-key= ", "--tls-client-ca=", "--auth-file", good}, []string{"--tls-cert is blank", "--tls-key is blank", "--tls-client-ca is blank"}},
		{"an empty one", []string{"--auth-file", i.File("empty", "", 0o600)}, []string{"auth_file: " + i.Dir + "/empty:1: names no identity"}},
		{"a line end", []string{"--auth-file", i.File("newline", "\n", 0o600)}, []string{"/newline:1: names no identity"}},
		{"that all can read", []string{"--auth-file", i.File("open.yaml", authText(fortressIdentities), 0o644)}, []string{"auth_file: " + i.Dir + "/open.yaml: holds a secret and is open to others (mode 0644)"}},
		{"with mistakes", []string{"--auth-file", i.File("bad.yaml", "identities:\n- {name: a, token_hash: "+secret+"}\n- {name: b, token_hash: ''}\n- {name: c, tokens: x}\n", 0o600)},
			[]string{"/bad.yaml:2: token_hash: is not sha256:", "/bad.yaml:3: token_hash: a blank entry", "/bad.yaml:4: unknown key tokens"}},
		{"certificates alone, and no CA", []string{"--auth-file", i.File("cert.yaml", "identities: [{name: a, certificate_names: 'cn:a'}]", 0o600)}, []string{"cert.yaml: a can show nothing but a certificate, which needs tls_client_ca"}},
		{"a certificate without its key", []string{"--tls-cert", a.Certificate}, []string{"tls_cert and tls_key: one does not work without the other"}},
		{"a key without its certificate", []string{"--tls-key", a.Key}, []string{"tls_cert and tls_key: one does not work without the other"}},
		{"a CA without TLS", []string{"--tls-client-ca", i.CA}, []string{"tls_client_ca: client certificates need TLS"}},
		{"another's key", []string{"--tls-cert", a.Certificate, "--tls-key", b.Key}, []string{"tls: " + b.Key + ": is not the private key of " + a.Certificate}},
		{"a key that all can read", []string{"--tls-cert", a.Certificate, "--tls-key", i.File("open.key", string(key), 0o644)}, []string{"tls: " + i.Dir + "/open.key: holds a secret and is open to others"}},
		{"no CA file", []string{"--tls-cert", a.Certificate, "--tls-key", a.Key, "--tls-client-ca", i.Dir + "/x"}, []string{"tls: " + i.Dir + "/x: no such file or directory"}},
		{"two files", []string{"--tls-cert", a.Certificate, "--tls-key", b.Key, "--auth-file", i.Dir + "/x"}, []string{"is not the private key of", "auth_file: " + i.Dir + "/x: no such file"}},
		{"everywhere, with TLS alone", []string{"--listen", "0.0.0.0:0", "--tls-cert", a.Certificate, "--tls-key", a.Key}, []string{"can be reached from other machines, which needs TLS (tls_cert, tls_key) and authentication (auth_file)"}},
		{"everywhere, with tokens alone", []string{"--listen", "0.0.0.0:0", "--auth-file", good}, []string{"can be reached from other machines"}},
		{"everywhere", []string{"--listen", "0.0.0.0:0"}, []string{"can be reached from other machines"}},
		{"a misspelt setting", []string{"--auth-fle", good}, []string{"did you mean --auth-file?"}},
	} {
		for _, check := range [][]string{nil, {"--check-config"}} {
			p := start(t, append(append([]string{"serve", "--listen", "127.0.0.1:0"}, c.args...), check...))
			code := exitConfig
			if c.name == "a misspelt setting" {
				code = exitUsage
			}
			p.ended(code)
			got := p.stderr.String()
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("%s %q: no %q in %q", c.name, check, want, got)
				}
			}
			if strings.Contains(got, secret) || strings.Contains(got, "listening") || code == exitConfig && strings.Count(got, "\n") != len(c.want) {
				t.Errorf("%s: %q", c.name, got)
			}
		}
	}
	// What a variable holds is no setting at all when it is blank, and does not open the door to other machines.
	start(t, []string{"serve", "--check-config"}, env("TINYBROKER_AUTH_FILE=")).ended(0)
	p := start(t, []string{"serve", "--check-config", "--listen", "0.0.0.0:0"}, env("TINYBROKER_AUTH_FILE=", "TINYBROKER_TLS_CERT="+a.Certificate, "TINYBROKER_TLS_KEY="+a.Key))
	p.ended(exitConfig)
	// With both, other machines may reach it.
	start(t, []string{"serve", "--check-config", "--listen", "0.0.0.0:0", "--auth-file", good, "--tls-cert", a.Certificate, "--tls-key", a.Key}).ended(0)
	start(t, []string{"serve", "--check-config", "--listen", "0.0.0.0:0", "--tls-client-ca", i.CA, "--tls-cert", a.Certificate, "--tls-key", a.Key}).ended(0)
	everywhere := startBroker(t, "--insecure", "--listen", "0.0.0.0:0", "--auth-file", good)
	everywhere.says("listening without TLS on an address that other machines may reach")
	everywhere = startBroker(t, "--listen", "0.0.0.0:0", "--auth-file", good, "--tls-cert", a.Certificate, "--tls-key", a.Key)
	everywhere.says("listening on ")
	if got := everywhere.stderr.String(); strings.Contains(got, "listening without") {
		t.Errorf("%s", got)
	}
	expired := i.Issue("old", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	startBroker(t, "--tls-cert", expired.Certificate, "--tls-key", expired.Key).says(`"level":"WARN","msg":"the certificate has expired"`)
}

// TestRevocationByReload: whose token is gone is told so and ends, and nothing more reaches it; the others notice nothing.
func TestRevocationByReload(t *testing.T) {
	t.Parallel()
	f := newFortress(t)
	sub, member := f.subscribe(t, "one", "in.**"), f.subscribe(t, "one", "in.**", "-g", "work")
	stays := f.subscribe(t, "two", "in.**")
	pub := start(t, f.as("one", "pub", "in.stream"), withStdin)
	fmt.Fprintln(pub.stdin, "before")
	for _, p := range []*process{sub, member, stays} {
		p.printed("before\n")
	}
	if got := f.setAuth(t, "identities:\n"+identityTwo); !strings.Contains(got, `"changed":["auth_file"]`) {
		t.Errorf("%s", got)
	}
	start(t, f.as("two", "pub", "in.x", "after")).ended(0)
	for _, p := range []*process{sub, member} {
		p.ended(exitAuth)
		if got := p.stderr.String(); got != "tinybroker: no longer allowed to receive: not authenticated: the token is not known\n" || p.stdout.String() != "before\n" {
			t.Errorf("%q, %q", got, p.stdout.String())
		}
	}
	fmt.Fprintln(pub.stdin, "more")
	pub.ended(exitAuth)
	if got := pub.stderr.String(); !strings.Contains(got, "not authenticated: the token is not known") {
		t.Errorf("%q", got)
	}
	stays.printed("before\nafter\n")
	if got := stays.stderr.String(); got != "" {
		t.Errorf("who stays is told %q", got)
	}

	// A file with a mistake changes nothing.
	for _, bad := range []string{"", "identities: []", fortressIdentities + "  - {name: three, token_hash: x}\n", "identities:\n\t- x"} {
		if got := f.setAuth(t, bad); !strings.Contains(got, "reload refused, everything stays as it was") || !strings.Contains(got, "auth_file: ") {
			t.Errorf("%s", got)
		}
	}
	f.issuer.File("auth.yaml", authText(fortressIdentities), 0o644)
	if got := f.reload(); !strings.Contains(got, "is open to others (mode 0644)") {
		t.Errorf("%s", got)
	}
	if got := start(t, f.as("one", "pub", "in.x", "y")).end(); got != exitAuth {
		t.Errorf("exit code %d", got)
	}
	start(t, f.as("two", "pub", "in.x", "still")).ended(0)
	stays.printed("before\nafter\nstill\n")

	// And a good one lets them in again.
	if got := f.setAuth(t, fortressIdentities); !strings.Contains(got, `"changed":["auth_file"]`) {
		t.Errorf("%s", got)
	}
	start(t, f.as("one", "pub", "in.x", "again")).ended(0)
	stays.printed("before\nafter\nstill\nagain\n")
	if got := f.reload(); !strings.Contains(got, `"changed":[]`) {
		t.Errorf("nothing has changed: %s", got)
	}
}

// TestCertificateReload: new handshakes show the new certificate, whichever way its files were exchanged; the old streams have no
// gap; a broken pair changes nothing.
func TestCertificateReload(t *testing.T) {
	t.Parallel()
	f := newFortress(t)
	served := func() int64 {
		m, err := auth.Load(auth.Files{CA: f.issuer.CA})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := tls.Dial("tcp", f.address, auth.ClientTLS(m, "localhost"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	stays := f.subscribe(t, "two", "**")
	pub := start(t, f.as("two", "pub", "x"), withStdin)
	printed := ""
	say := func(text string) {
		t.Helper()
		fmt.Fprintln(pub.stdin, text)
		printed += text + "\n"
		stays.printed(printed)
	}
	say("first")
	if got := served(); got != f.pair.Serial {
		t.Fatalf("serial %d, want %d", got, f.pair.Serial)
	}

	changed := func(how string, want int64) {
		t.Helper()
		if got := f.reload(); !strings.Contains(got, `"changed":["tls"]`) {
			t.Errorf("%s: %s", how, got)
		}
		if got := served(); got != want {
			t.Errorf("%s: serial %d, want %d", how, got, want)
		}
		say(how)
	}
	changed("in place", f.issuer.Issue("broker", nil).Serial)

	next := f.issuer.Issue("next", nil)
	for from, to := range map[string]string{next.Certificate: f.pair.Certificate, next.Key: f.pair.Key} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	changed("by rename", next.Serial)

	linked := f.issuer.Issue("linked", nil)
	for from, to := range map[string]string{linked.Certificate: f.pair.Certificate, linked.Key: f.pair.Key} {
		if err := os.Remove(to); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(from, to); err != nil {
			t.Fatal(err)
		}
	}
	changed("by link", linked.Serial)

	certificate, key := filepath.Base(linked.Certificate), filepath.Base(linked.Key)
	other := f.issuer.Issue("other", nil)
	for name, broken := range map[string]struct{ file, text string }{
		"a broken key":         {key, "nonsense"},
		"an empty key":         {key, ""},
		"another's key":        {key, readFile(t, other.Key)},
		"an empty certificate": {certificate, ""},
		"a broken CA":          {"ca.pem", "nonsense"},
	} {
		before := readFile(t, filepath.Join(f.issuer.Dir, broken.file))
		f.issuer.File(broken.file, broken.text, 0o600)
		f.issuer.File("auth.yaml", authText("identities: [{name: nobody, token_hash: \"HASH:three\"}]"), 0o600)
		got := f.reload()
		if !strings.Contains(got, `"level":"ERROR","msg":"reload refused, everything stays as it was","why":"tls: `) || strings.Contains(got, "PRIVATE") {
			t.Errorf("%s: %s", name, got)
		}
		f.issuer.File(broken.file, before, 0o600)
		f.issuer.File("auth.yaml", authText(fortressIdentities), 0o600)
		if got := served(); got != linked.Serial {
			t.Errorf("%s: serial %d, want %d", name, got, linked.Serial)
		}
		say(name)
	}

	// Clients of an issuer that is no longer trusted are refused, and those that are connected are sent away.
	cert := f.issuer.Issue("two", nil)
	byCertificate := []string{"--tls-cert", cert.Certificate, "--tls-key", cert.Key}
	start(t, f.as("", append([]string{"status", "-q"}, byCertificate...)...)).ended(0)
	watching := f.subscribe(t, "", append([]string{"y"}, byCertificate...)...)
	trusted := readFile(t, f.issuer.CA)
	f.issuer.File("ca.pem", readFile(t, certtest.New(t).CA), 0o644)
	if got := f.reload(); !strings.Contains(got, `"changed":["tls"]`) {
		t.Errorf("%s", got)
	}
	f.issuer.File("ca.pem", trusted, 0o644) // which the clients trust
	watching.ended(exitAuth)
	p := start(t, f.as("", append([]string{"status"}, byCertificate...)...))
	p.ended(exitAuth)
	if got := p.stderr.String(); !strings.Contains(got, "the broker does not take the client certificate") {
		t.Errorf("%q", got)
	}
	say("last")
	pub.stdin.Close()
	pub.ended(0)
	if got := stays.stderr.String() + pub.stderr.String(); got != "" {
		t.Errorf("who stays is told %q", got)
	}
}

// TestTokenRotation: two tokens for a while, so that nobody is cut off; a client follows when its file changes.
func TestTokenRotation(t *testing.T) {
	t.Parallel()
	f := newFortress(t)
	f.issuer.File("mine.token", "one", 0o600)
	sub := f.subscribe(t, "mine", "in.**")
	f.setAuth(t, strings.Replace(fortressIdentities, `"HASH:one"`, `["HASH:one", "HASH:three"]`, 1))
	f.issuer.File("mine.token", "three", 0o600)
	start(t, f.as("mine", "pub", "in.x", "new")).ended(0)
	sub.printed("new\n")
	// The broker goes and comes back; the subscriber comes with the new token.
	f.setAuth(t, strings.Replace(fortressIdentities, "HASH:one", "HASH:two2", 1)) // not a hash: refused
	f.issuer.File("auth.yaml", authText(strings.Replace(fortressIdentities, "HASH:one", "HASH:three", 1)), 0o600)
	f.signal(syscall.SIGKILL)
	<-f.done
	again := start(t, append([]string{"serve", "--listen", f.address, "--config", "none"}, f.serveArg...))
	again.says("listening on")
	sub.says("reconnected after")
	start(t, f.as("mine", "pub", "in.x", "after")).ended(0)
	sub.printed("new\nafter\n")
}

// TestNoSecretIsShown runs everything at its most talkative and looks for the token, its hash, the key and the payload in all that was printed
// and in the arguments of the processes.
func TestNoSecretIsShown(t *testing.T) {
	t.Parallel()
	f := newFortress(t, "--log-level", "debug")
	const token, payload = "tb_S3CR3T-zz", "P4YL0AD-zz"
	f.issuer.File("secret.token", token+"\n", 0o600)
	f.issuer.File("wrong.token", "tb_Wr0ng-zz\n", 0o600)
	text := strings.Replace(fortressIdentities, `"HASH:two"`, `"`+auth.HashToken(token)+`"`, 1)
	f.setAuth(t, text)
	var all []*process
	run := func(args []string, options ...processOption) *process {
		p := start(t, args, options...)
		all = append(all, p)
		return p
	}
	sub := run(f.as("secret", "sub", "**", "$tb.**", "-v", "--format", "{{.Topic}}", "--id", "me"))
	eventually(t, "it is subscribed", func() bool { return strings.Contains(run(f.as("secret", "ls", "subs")).after(t), "me") })
	for _, args := range [][]string{
		f.as("secret", "pub", "x", payload, "-v"), f.as("wrong", "pub", "x", payload, "-v"), f.as("secret", "status", "-v"), f.as("wrong", "status", "-v"),
		f.as("secret", "status", "-o", "json"), f.as("secret", "top", "--once", "-o", "json"), f.as("secret", "ls", "topics"), f.as("wrong", "sub", "x", "-v"),
		f.as("secret", "bench", "--msgs", "10"), f.as("secret", "sub", "x", "-v", "--nonsense"), f.as("secret", "sub"),
		append([]string{"serve", "--print-config"}, f.serveArg...), append([]string{"serve", "--check-config"}, f.serveArg...),
		{"pub", "x", "y", "--token", token[:4]},
	} {
		run(args).end()
	}
	for _, p := range append(all, f.process) {
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.cmd.Process.Pid)); err == nil && strings.Contains(string(line), token) {
			t.Errorf("the token is among the arguments of %s", p.cmd.Args[1])
		}
	}
	f.setAuth(t, strings.Replace(text, "token_hash", "token", 1)+token)
	f.setAuth(t, text)
	f.setAuth(t, fortressIdentities)
	sub.ended(exitAuth)
	f.signal(syscall.SIGTERM)
	f.ended(0)
	key := strings.Split(readFile(t, f.pair.Key), "\n")[1]
	for _, p := range append(all, f.process) {
		for what, secret := range map[string]string{"token": "S3CR3T", "wrong token": "Wr0ng", "hash": auth.HashToken(token)[7:], "key": key, "payload": "P4YL0AD", "bearer": "earer "} {
			for _, out := range []string{p.stdout.String(), p.stderr.String()} {
				if i := strings.Index(out, secret); i >= 0 {
					t.Errorf("%q shows the %s: …%s", p.cmd.Args, what, out[max(0, i-100):min(len(out), i+50)])
				}
			}
		}
	}
}

// after waits for the end of a process and returns what it has printed.
func (p *process) after(t *testing.T) string {
	t.Helper()
	p.end()
	return p.stdout.String()
}

// TestTokenFileThatIsAway: who comes back while the token is being exchanged says what is missing, and waits for it.
func TestTokenFileThatIsAway(t *testing.T) {
	t.Parallel()
	f := newFortress(t)
	sub := f.subscribe(t, "one", "in.**")
	token := filepath.Join(f.issuer.Dir, "one.token")
	if err := os.Rename(token, token+".old"); err != nil {
		t.Fatal(err)
	}
	f.signal(syscall.SIGKILL)
	<-f.done
	again := startBroker(t, append([]string{"--listen", f.address}, f.serveArg...)...)
	sub.says("no token: " + token + ": no such file or directory")
	if err := os.Rename(token+".old", token); err != nil {
		t.Fatal(err)
	}
	sub.says("reconnected after")
	start(t, f.as("one", "pub", "in.x", "y")).ended(0)
	sub.printed("y\n")
	again.signal(syscall.SIGTERM)
	again.ended(0)
}
