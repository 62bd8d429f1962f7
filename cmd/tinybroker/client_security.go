package main

import (
	"errors"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"codeberg.org/tinybroker/tinybroker/internal/auth"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// clientSecurity are the settings by which a client knows the broker, and the broker the client.
type clientSecurity struct {
	useTLS     bool
	tls        auth.Files
	serverName string
	tokenFile  string
}

func (s *clientSecurity) addFlags(fs *pflag.FlagSet) {
	addBool(fs, &s.useTLS, "tls", "", "use TLS; each of the next four turns it on, too")
	fs.StringVar(&s.tls.CA, "tls-ca", "", "`file` with the certificates of those who may have issued the broker's (default: the system's)")
	fs.StringVar(&s.tls.Certificate, "tls-cert", "", "`file` with the client certificate to show")
	fs.StringVar(&s.tls.Key, "tls-key", "", "`file` with its private key, which others must not be able to read")
	fs.StringVar(&s.serverName, "tls-server-name", "", "`name` that the broker's certificate is for, if it is not the one of --server")
	fs.StringVar(&s.tokenFile, "token-file", "", "`file` with the token to send, which others must not be able to read")
	notBlank(fs, "tls-ca", "tls-cert", "tls-key", "tls-server-name", "token-file")
}

// wantsTLS reports whether any of the settings asks for TLS.
func (s *clientSecurity) wantsTLS() bool {
	return s.useTLS || s.tls != auth.Files{} || s.serverName != ""
}

// apply reads the files and has a client use what they hold, now and later. What is wrong with them later is told to n.
func (s *clientSecurity) apply(o *rpc.ClientOptions, n *notices) error {
	if s.wantsTLS() {
		if (s.tls.Certificate == "") != (s.tls.Key == "") {
			return failf(exitConfig, "--tls-cert and --tls-key: one does not work without the other")
		}
		follower, err := auth.Follow(s.tls, s.serverName, func(err error) { n.info("tls: %s; what was read before stays in use", err) })
		if err != nil {
			return failf(exitConfig, "tls: %w", err)
		}
		o.TLS = follower.Config
	}
	if s.tokenFile != "" {
		f := &tokenFile{path: s.tokenFile}
		if err := f.begin(); err != nil {
			return failf(exitConfig, "--token-file: %w", err)
		}
		o.Token = f.token
	}
	return nil
}

// tokenFile is where a token comes from. It is read for each call, so that a client which runs for months follows when the token is
// exchanged. Safe for concurrent use once it has begun.
type tokenFile struct {
	path  string
	first string // what a pipe has said, which cannot be read again; empty: it is a file
}

// begin reads it for the first time, to know whether it is any good.
func (f *tokenFile) begin() error {
	info, err := os.Stat(f.path)
	pipe := err == nil && !info.Mode().IsRegular()
	token, err := auth.ReadToken(f.path)
	if err == nil && pipe {
		f.first = token
	}
	return err
}

func (f *tokenFile) token() (string, error) {
	if f.first != "" {
		return f.first, nil
	}
	return auth.ReadToken(f.path)
}

// tlsAdvice says what to do about a connection that fails for want of TLS, or for a certificate; empty: nothing helps.
func (s *clientSecurity) tlsAdvice(cause string) string {
	switch {
	case strings.HasPrefix(cause, "TLS mismatch: the server does not speak plaintext"):
		return "; try --tls"
	case strings.HasPrefix(cause, "TLS mismatch: the server does not speak TLS"):
		return "; leave --tls and its files out"
	case (cause == "connection closed" || cause == "connection reset") && !s.wantsTLS():
		return "; if it expects TLS, try --tls" // a broker that does may be quicker to hang up than to show it
	case strings.Contains(cause, "signed by unknown authority") && s.tls.CA == "":
		return "; name its issuer with --tls-ca"
	case cause == rpc.CauseBadCertificate:
		return "; its issuer has to be in the broker's tls_client_ca, and it must not have expired"
	case cause == rpc.CauseNoCertificate:
		return "; give one with --tls-cert and --tls-key"
	}
	return ""
}

// isRefusedCertificate reports whether it is the client's certificate that stands in the way.
func isRefusedCertificate(cause string) bool {
	return cause == rpc.CauseNoCertificate || cause == rpc.CauseBadCertificate
}

// tokenError is why a token is not sent.
func tokenError(err error) error {
	if errors.Is(err, rpc.ErrTokenInClear) {
		return failf(exitConfig, "--token-file: %w; use --tls", err)
	}
	return nil
}
