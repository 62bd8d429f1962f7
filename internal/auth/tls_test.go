//go:build unix

package auth

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/auth/certtest"
)

// files are those of a pair.
func files(p certtest.Pair) Files { return Files{Certificate: p.Certificate, Key: p.Key} }

func load(t testing.TB, f Files) *Material {
	t.Helper()
	m, err := Load(f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestLoadMistakes(t *testing.T) {
	i := certtest.New(t)
	a, b := files(i.Issue("a", nil)), files(i.Issue("b", nil))
	damaged := i.Block("damaged.pem", "CERTIFICATE", []byte("x"), 0o644)
	damagedKey := i.Block("damaged.key", "PRIVATE KEY", []byte("x"), 0o600)
	key, err := os.ReadFile(a.Key)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		f    Files
		want string
	}{
		{"missing certificate", Files{Certificate: i.Dir + "/x", Key: a.Key}, i.Dir + "/x: no such file or directory"},
		{"missing key", Files{Certificate: a.Certificate, Key: i.Dir + "/x"}, i.Dir + "/x: no such file or directory"},
		{"another's key", Files{Certificate: a.Certificate, Key: b.Key}, b.Key + ": is not the private key of " + a.Certificate},
		{"the wrong way round", Files{Certificate: a.Key, Key: a.Certificate}, a.Certificate + ": holds a secret and is open to others (mode 0644)"},
		{"the key twice", Files{Certificate: a.Key, Key: a.Key}, a.Key + ": holds no certificate in PEM"},
		{"an empty certificate", Files{Certificate: i.File("empty", "", 0o600), Key: a.Key}, i.Dir + "/empty: holds no certificate in PEM"},
		{"an empty key", Files{Certificate: a.Certificate, Key: i.File("empty.key", "", 0o600)}, i.Dir + "/empty.key: holds no private key in PEM"},
		{"a damaged certificate", Files{Certificate: damaged, Key: a.Key}, damaged + ": the certificate is damaged"},
		{"a damaged key", Files{Certificate: a.Certificate, Key: damagedKey}, damagedKey + ": the private key is damaged"},
		{"an encrypted key", Files{Certificate: a.Certificate, Key: i.Block("enc.key", "ENCRYPTED PRIVATE KEY", []byte("x"), 0o600)},
			i.Dir + "/enc.key: the private key is encrypted; store it without a passphrase"},
		{"an encrypted key of the old form", Files{Certificate: a.Certificate, Key: i.File("old.key", "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\neA==\n-----END RSA PRIVATE KEY-----\n", 0o600)},
			i.Dir + "/old.key: the private key is encrypted"},
		{"a key that all can read", Files{Certificate: a.Certificate, Key: i.File("open.key", string(key), 0o644)}, i.Dir + "/open.key: holds a secret and is open to others (mode 0644)"},
		{"a missing CA", Files{CA: i.Dir + "/x"}, i.Dir + "/x: no such file or directory"},
		{"an empty CA", Files{CA: i.File("empty", "", 0o644)}, i.Dir + "/empty: holds no certificate in PEM"},
		{"a damaged CA", Files{CA: damaged}, damaged + ": a certificate is damaged"},
		{"a key for a CA", Files{CA: a.Key}, a.Key + ": holds something else than certificates"},
		{"a folder", Files{CA: i.Dir}, i.Dir + ": is a directory"},
	} {
		_, err := Load(test.f)
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), "MIG") {
			t.Errorf("%s: shows the key: %v", test.name, err)
		}
	}
}

func TestMaterial(t *testing.T) {
	i := certtest.New(t)
	now := time.Now()
	for name, test := range map[string]struct {
		change func(*x509.Certificate)
		want   string
	}{
		"good":    {nil, ""},
		"expired": {func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Minute) }, "the certificate has expired"},
		"early":   {func(c *x509.Certificate) { c.NotBefore = now.Add(time.Minute) }, "the certificate is not valid yet"},
	} {
		m := load(t, files(i.Issue(name, test.change)))
		if got := m.Warning(now); got != test.want || m.Expires().IsZero() {
			t.Errorf("%s: %q, expires %v", name, got, m.Expires())
		}
	}
	a := files(i.Issue("a", nil))
	a.CA = i.CA
	first := load(t, a)
	if again := load(t, a); !first.Same(again) || first.Pool() == nil {
		t.Error("the same files are not the same")
	}
	i.Issue("a", nil) // in their place
	if again := load(t, a); first.Same(again) || !first.SamePool(again) {
		t.Error("another certificate of the same issuer: the files are the same, or those who may have issued are not")
	}
	a.CA = certtest.New(t).CA
	if again := load(t, a); first.SamePool(again) {
		t.Error("another issuer is the same")
	}
	if m := load(t, Files{CA: i.CA}); m.Warning(now) != "" || !m.Expires().IsZero() || m.Same(first) {
		t.Error("without a certificate")
	}
	if _, err := NewServerTLS(load(t, Files{CA: i.CA}), true); err == nil {
		t.Error("a server without a certificate")
	}
}

// shake does one handshake and returns the serial number of the server's certificate, and both ends' errors.
func shake(server, client *tls.Config) (serial int64, resumed bool, serverErr, clientErr error) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	ended := make(chan error, 1)
	go func() {
		s := tls.Server(a, server)
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte("x")) // what TLS 1.3 sends behind the handshake comes with it
		}
		ended <- err
		if err != nil {
			_ = a.Close()
		}
	}()
	c := tls.Client(b, client)
	if clientErr = c.Handshake(); clientErr == nil {
		_, clientErr = c.Read(make([]byte, 1))
		state := c.ConnectionState()
		serial, resumed = state.PeerCertificates[0].SerialNumber.Int64(), state.DidResume
	}
	_ = b.Close()
	return serial, resumed, <-ended, clientErr
}

// Exchanged material is for the handshakes that begin later; who issues clients' certificates goes with it.
func TestServerTLSFollows(t *testing.T) {
	i, other := certtest.New(t), certtest.New(t)
	brokerFiles := files(i.Issue("broker", nil))
	brokerFiles.CA = i.CA
	first := load(t, brokerFiles)
	server, err := NewServerTLS(first, false)
	if err != nil {
		t.Fatal(err)
	}
	clientFiles := files(i.Issue("client", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }))
	clientFiles.CA = i.CA
	withCert := ClientTLS(load(t, clientFiles), "localhost")
	withCert.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	without := ClientTLS(load(t, Files{CA: i.CA}), "localhost")
	config := server.Config()
	for name, c := range map[string]*tls.Config{"with a certificate": withCert, "without": without, "again": withCert} {
		serial, resumed, serverErr, clientErr := shake(config, c)
		if serverErr != nil || clientErr != nil || serial != first.certificate.Leaf.SerialNumber.Int64() || resumed {
			t.Errorf("%s: serial %d, resumed %v, %v, %v", name, serial, resumed, serverErr, clientErr)
		}
	}

	brokerFiles = files(i.Issue("broker", nil))
	brokerFiles.CA = other.CA
	second := load(t, brokerFiles)
	server.Use(second)
	if serial, _, serverErr, clientErr := shake(config, without); serverErr != nil || clientErr != nil || serial != second.certificate.Leaf.SerialNumber.Int64() {
		t.Errorf("after the exchange: serial %d, %v, %v", serial, serverErr, clientErr)
	}
	if _, _, serverErr, clientErr := shake(config, withCert); serverErr == nil || clientErr == nil {
		t.Errorf("a certificate of an issuer that has gone: %v, %v", serverErr, clientErr)
	}

	strict, err := NewServerTLS(first, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, serverErr, _ := shake(strict.Config(), without); serverErr == nil {
		t.Error("no certificate, where one is needed")
	}
	if _, _, serverErr, clientErr := shake(strict.Config(), withCert); serverErr != nil || clientErr != nil {
		t.Errorf("a certificate, where one is needed: %v, %v", serverErr, clientErr)
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	i := certtest.New(t)
	server, err := NewServerTLS(load(t, files(i.Issue("broker", nil))), false)
	if err != nil {
		t.Fatal(err)
	}
	for version, ok := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		client := ClientTLS(load(t, Files{CA: i.CA}), "localhost")
		client.MinVersion, client.MaxVersion = version, version
		if _, _, serverErr, clientErr := shake(server.Config(), client); ok != (serverErr == nil && clientErr == nil) {
			t.Errorf("%s: %v, %v", tls.VersionName(version), serverErr, clientErr)
		}
	}
	old := server.Config()
	old.GetConfigForClient, old.MinVersion, old.MaxVersion = nil, tls.VersionTLS10, tls.VersionTLS11
	old.Certificates = server.config.Load().Certificates
	if _, _, _, clientErr := shake(old, ClientTLS(load(t, Files{CA: i.CA}), "localhost")); clientErr == nil {
		t.Error("a client takes a server that speaks old TLS only")
	}
}
