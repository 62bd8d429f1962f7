//go:build unix

package auth

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
	"testing"

	"codeberg.org/tinybroker/tinybroker/internal/auth/certtest"
)

// shown is the serial number of the certificate that a client would show.
func shown(c *tls.Config) int64 {
	if len(c.Certificates) == 0 {
		return 0
	}
	return c.Certificates[0].Leaf.SerialNumber.Int64()
}

// TestFollow: a client's side gets what its files hold now, and keeps what they held while they are no good.
func TestFollow(t *testing.T) {
	i, other := certtest.New(t), certtest.New(t)
	broker := load(t, files(i.Issue("broker", nil))).certificate.Leaf
	trusted := func(l *Follower) error {
		_, err := broker.Verify(x509.VerifyOptions{Roots: l.Config().RootCAs, DNSName: l.Config().ServerName})
		return err
	}
	first := i.Issue("client", nil)
	f := files(first)
	f.CA = i.File("trust.pem", read(t, i.CA), 0o644)
	var problems []string
	l, err := Follow(f, "localhost", func(err error) { problems = append(problems, err.Error()) })
	if err != nil {
		t.Fatal(err)
	}
	if c := l.Config(); c != l.Config() || shown(l.Config()) != first.Serial {
		t.Error("files that stay the same give another configuration")
	}
	oldKey := read(t, f.Key)
	second := i.Issue("client", nil)
	newKey := read(t, f.Key)
	i.File("client.key", oldKey, 0o600)
	for range 3 { // the certificate is there, its key not yet
		if got := shown(l.Config()); got != first.Serial {
			t.Errorf("half of a pair: serial number %d", got)
		}
	}
	i.File("client.key", newKey, 0o600)
	if got := shown(l.Config()); got != second.Serial {
		t.Errorf("the new pair: serial number %d", got)
	}
	i.File("client.key", newKey, 0o644)
	l.Config()
	if len(problems) != 2 || !strings.Contains(problems[0], "is not the private key of") || !strings.Contains(problems[1], "is open to others") {
		t.Errorf("told: %q", problems)
	}
	i.File("client.key", newKey, 0o600)

	// Who may have issued the server's certificate is followed as well.
	if err := trusted(l); err != nil {
		t.Error(err)
	}
	i.File("trust.pem", read(t, other.CA), 0o644)
	if trusted(l) == nil {
		t.Error("a server is taken whose issuer has gone")
	}
	i.File("trust.pem", read(t, other.CA)+read(t, i.CA), 0o644)
	if err := trusted(l); err != nil {
		t.Error(err)
	}
	if _, err := Follow(Files{CA: i.Dir + "/nothing"}, "", nil); err == nil {
		t.Error("files that are not there are no error at the start")
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
