// Package certtest makes certificates for tests.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Issuer issues certificates and writes them into a folder of the test's.
type Issuer struct {
	// Dir is where the files are, CA the one with the issuer's own certificate.
	Dir, CA string

	t      testing.TB
	key    *ecdsa.PrivateKey
	cert   *x509.Certificate
	serial int64
}

// Pair names the files of a certificate and of its key, which is private, and has its serial number.
type Pair struct {
	Certificate, Key string
	Serial           int64
}

// New returns an issuer that nobody else knows.
func New(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{t: t, Dir: t.TempDir(), serial: 1}
	i.key = i.newKey()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "issuer"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der := i.create(template, template, i.key)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	i.cert = cert
	i.CA = i.Block("ca.pem", "CERTIFICATE", der, 0o644)
	return i
}

// Issue writes NAME.pem and NAME.key, in the place of earlier ones: for this machine, for an hour, unless change says something else.
func (i *Issuer) Issue(name string, change func(*x509.Certificate)) Pair {
	i.t.Helper()
	i.serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(i.serial), Subject: pkix.Name{CommonName: name},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	if change != nil {
		change(template)
	}
	key := i.newKey()
	der := i.create(template, i.cert, key)
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		i.t.Fatal(err)
	}
	return Pair{i.Block(name+".pem", "CERTIFICATE", der, 0o644), i.Block(name+".key", "PRIVATE KEY", encoded, 0o600), i.serial}
}

// Block writes a file with one block in PEM.
func (i *Issuer) Block(name, kind string, der []byte, mode os.FileMode) string {
	i.t.Helper()
	return i.File(name, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})), mode)
}

// File writes a file.
func (i *Issuer) File(name, text string, mode os.FileMode) string {
	i.t.Helper()
	path := filepath.Join(i.Dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		i.t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		i.t.Fatal(err)
	}
	return path
}

func (i *Issuer) newKey() *ecdsa.PrivateKey {
	i.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	return key
}

func (i *Issuer) create(template, parent *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	i.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, i.key)
	if err != nil {
		i.t.Fatal(err)
	}
	return der
}
