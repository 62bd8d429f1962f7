package auth

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// Files name the files of one end of a TLS connection; empty: none.
type Files struct {
	// Certificate is a chain in PEM, the end's own certificate first; Key its private key, which must be private.
	Certificate, Key string
	// CA are the certificates, in PEM, of those who may have issued the other end's.
	CA string
}

// Material is what was read from Files, checked.
type Material struct {
	certificate *tls.Certificate // nil: none
	pool        *x509.CertPool   // nil: none
	read        [][]byte
	ca          []byte // of which the pool was made
}

// Load reads and checks files. The errors name the files.
func Load(f Files) (*Material, error) {
	m := &Material{}
	if f.Certificate != "" || f.Key != "" {
		chain, err := readPublic(f.Certificate)
		if err != nil {
			return nil, err
		}
		key, err := ReadSecret(f.Key)
		if err != nil {
			return nil, err
		}
		if m.certificate, err = pair(f, chain, key); err != nil {
			return nil, err
		}
		m.read = append(m.read, chain, key)
	}
	if f.CA != "" {
		data, err := readPublic(f.CA)
		if err != nil {
			return nil, err
		}
		if m.pool, err = certificates(f.CA, data); err != nil {
			return nil, err
		}
		m.read, m.ca = append(m.read, data), data
	}
	return m, nil
}

// pair makes a certificate of a chain and a key. What crypto/tls says about a key is not repeated but for one thing: it does not fit.
func pair(f Files, chain, key []byte) (*tls.Certificate, error) {
	if !hasBlock(chain, func(kind string) bool { return kind == "CERTIFICATE" }) {
		return nil, fmt.Errorf("%s: holds no certificate in PEM", f.Certificate)
	}
	if isEncrypted(key) {
		return nil, fmt.Errorf("%s: the private key is encrypted; store it without a passphrase, readable by its owner only", f.Key)
	}
	if !hasBlock(key, func(kind string) bool { return kind == "PRIVATE KEY" || strings.HasSuffix(kind, " PRIVATE KEY") }) {
		return nil, fmt.Errorf("%s: holds no private key in PEM", f.Key)
	}
	c, err := tls.X509KeyPair(chain, key)
	if err != nil {
		if _, parseErr := x509.ParseCertificate(firstBlock(chain)); parseErr != nil {
			return nil, fmt.Errorf("%s: the certificate is damaged", f.Certificate)
		}
		if isMismatch(err) {
			return nil, fmt.Errorf("%s: is not the private key of %s", f.Key, f.Certificate)
		}
		return nil, fmt.Errorf("%s: the private key is damaged", f.Key)
	}
	return &c, nil
}

// isEncrypted reports whether a key needs a passphrase, in the form of PKCS #8 or in the one before that.
func isEncrypted(key []byte) bool {
	for block, rest := pem.Decode(key); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED") {
			return true
		}
	}
	return false
}

// isMismatch reports whether a pair was refused since its halves do not belong together. crypto/tls says so in words only.
func isMismatch(err error) bool {
	return strings.Contains(err.Error(), "does not match")
}

func hasBlock(data []byte, is func(kind string) bool) bool {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if is(block.Type) {
			return true
		}
	}
	return false
}

func firstBlock(data []byte) []byte {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			return block.Bytes
		}
	}
	return nil
}

func certificates(path string, data []byte) (*x509.CertPool, error) {
	pool, n := x509.NewCertPool(), 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("%s: holds something else than certificates", path)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: a certificate is damaged", path)
		}
		pool.AddCert(c)
		n++
	}
	if n == 0 {
		return nil, fmt.Errorf("%s: holds no certificate in PEM", path)
	}
	return pool, nil
}

// Same reports whether the files had the same contents.
func (m *Material) Same(other *Material) bool {
	if len(m.read) != len(other.read) {
		return false
	}
	for i := range m.read {
		if !bytes.Equal(m.read[i], other.read[i]) {
			return false
		}
	}
	return true
}

// SamePool reports whether the files had the same contents as to who may have issued the other end's certificate.
func (m *Material) SamePool(other *Material) bool { return bytes.Equal(m.ca, other.ca) }

// Pool holds those who may have issued the other end's certificate; nil: no file names any.
func (m *Material) Pool() *x509.CertPool { return m.pool }

// Warning says what is odd about the certificate at the given time: it has expired or is not valid yet. Empty: nothing.
func (m *Material) Warning(now time.Time) string {
	if m.certificate == nil || m.certificate.Leaf == nil {
		return ""
	}
	switch leaf := m.certificate.Leaf; {
	case now.After(leaf.NotAfter):
		return "the certificate has expired"
	case now.Before(leaf.NotBefore):
		return "the certificate is not valid yet"
	}
	return ""
}

// Expires is when the certificate does; zero: there is none.
func (m *Material) Expires() time.Time {
	if m.certificate == nil || m.certificate.Leaf == nil {
		return time.Time{}
	}
	return m.certificate.Leaf.NotAfter
}

// ServerTLS is a server's side of TLS. Its material can be exchanged while it is in use: handshakes that begin later get the new one,
// connections that stand are not touched. It is safe for concurrent use.
type ServerTLS struct {
	// needCertificate makes a client without a certificate fail in the handshake.
	needCertificate bool
	config          atomic.Pointer[tls.Config]
}

// NewServerTLS returns the server's side for some material, which must have a certificate. With needCertificate every client must show
// one that the material's pool has issued; else one is verified if it is shown.
func NewServerTLS(m *Material, needCertificate bool) (*ServerTLS, error) {
	if m.certificate == nil {
		return nil, errors.New("a server needs a certificate")
	}
	s := &ServerTLS{needCertificate: needCertificate}
	s.Use(m)
	return s, nil
}

// Use exchanges the material.
func (s *ServerTLS) Use(m *Material) {
	c := baseConfig()
	c.Certificates = []tls.Certificate{*m.certificate}
	// A resumed session would keep a certificate, and a client's, that are no longer in force.
	c.SessionTicketsDisabled = true
	if m.pool != nil {
		c.ClientCAs, c.ClientAuth = m.pool, tls.VerifyClientCertIfGiven
		if s.needCertificate {
			c.ClientAuth = tls.RequireAndVerifyClientCert
		}
	}
	s.config.Store(c)
}

// Config returns a configuration that follows Use.
func (s *ServerTLS) Config() *tls.Config {
	c := baseConfig()
	c.SessionTicketsDisabled = true
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.config.Load(), nil }
	return c
}

// ClientTLS returns a client's side. Without a pool the system's certificate authorities are trusted. serverName replaces the name that the
// server's certificate must be for; empty: the one that is dialled.
func ClientTLS(m *Material, serverName string) *tls.Config {
	c := baseConfig()
	c.RootCAs = m.pool
	c.ServerName = serverName
	if m.certificate != nil {
		c.Certificates = []tls.Certificate{*m.certificate}
	}
	return c
}

func baseConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
}
