package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"codeberg.org/tinybroker/tinybroker/internal/auth"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// securityFiles are the settings of serve that name certificates and identities.
type securityFiles struct {
	tls      auth.Files // CA are those who issue the clients' certificates
	authFile string
}

func (f *securityFiles) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.tls.Certificate, "tls-cert", "", "`file` with the certificate to show, which turns TLS on; PEM, with those of its issuers behind it")
	fs.StringVar(&f.tls.Key, "tls-key", "", "`file` with its private key, which others must not be able to read")
	fs.StringVar(&f.tls.CA, "tls-client-ca", "", "`file` with the certificates of those who issue the clients' certificates")
	fs.StringVar(&f.authFile, "auth-file", "", "`file` with the identities that may call and what each may do, which others must not be able to read")
	notBlank(fs, "tls-cert", "tls-key", "tls-client-ca", "auth-file")
}

// validate checks how the settings go together, not what the files hold.
func (f *securityFiles) validate() []error {
	var errs []error
	if (f.tls.Certificate == "") != (f.tls.Key == "") {
		errs = append(errs, errors.New("tls_cert and tls_key: one does not work without the other"))
	}
	if f.tls.CA != "" && f.tls.Certificate == "" {
		errs = append(errs, errors.New("tls_client_ca: client certificates need TLS; set tls_cert and tls_key, too"))
	}
	return errs
}

// missing names what a broker needs before other machines may reach it; empty: nothing.
func (f *securityFiles) missing() string {
	hasTLS, hasAuthentication := f.tls.Certificate != "", f.authFile != "" || f.tls.CA != ""
	switch {
	case hasTLS && hasAuthentication:
		return ""
	case hasTLS:
		return "authentication"
	case hasAuthentication:
		return "TLS"
	}
	return "TLS and authentication"
}

// security is what the files hold, in force.
type security struct {
	files securityFiles
	log   *slog.Logger

	material *auth.Material   // nil: no TLS
	tls      *auth.ServerTLS  // nil: no TLS
	authData []byte           // what the auth file holds
	ids      *auth.Identities // nil: everybody may do everything
}

// loadSecurity reads and checks the files. It reports all that is wrong with them at once.
func loadSecurity(files securityFiles, log *slog.Logger) (*security, error) {
	s := &security{files: files, log: log}
	var errs mistakes
	var err error
	if files.tls.Certificate != "" {
		if s.material, err = s.readTLS(); err != nil {
			errs = append(errs, err)
		} else if s.tls, err = auth.NewServerTLS(s.material, files.authFile == ""); err != nil {
			errs = append(errs, err)
		}
	}
	if files.authFile != "" {
		if s.authData, s.ids, err = s.readIdentities(); err != nil {
			errs = append(errs, err)
		}
	}
	return s, errs.asConfigError()
}

func (s *security) readTLS() (*auth.Material, error) {
	m, err := auth.Load(s.files.tls)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	return m, nil
}

func (s *security) readIdentities() ([]byte, *auth.Identities, error) {
	data, err := auth.ReadSecret(s.files.authFile)
	if err != nil {
		return nil, nil, fmt.Errorf("auth_file: %w", err)
	}
	ids, err := auth.Parse(s.files.authFile, data)
	if err != nil {
		var errs mistakes
		for _, e := range err.(auth.FileErrors) { //nolint:errorlint // Parse returns nothing else
			errs = append(errs, fmt.Errorf("auth_file: %w", e))
		}
		return nil, nil, errs
	}
	if names := ids.OnlyCertificates(); len(names) > 0 && s.files.tls.CA == "" {
		return nil, nil, fmt.Errorf("auth_file: %s: %s can show nothing but a certificate, which needs tls_client_ca",
			s.files.authFile, strings.Join(names, ", "))
	}
	return data, ids, nil
}

// apply has a server begin with what was read.
func (s *security) apply(o *rpc.ServerOptions) {
	if s.tls != nil {
		o.TLS = s.tls.Config()
		s.warn(s.material)
	}
	o.Identities = s.ids
}

// warn tells of a certificate that clients will not take.
func (s *security) warn(m *auth.Material) {
	if text := m.Warning(time.Now()); text != "" {
		s.log.Warn(text, "tls_cert", s.files.tls.Certificate, "expires", m.Expires().UTC().Format(time.RFC3339))
	}
}

// reloadables are the files as parts of a reload. The paths stay what they were at the start.
func (s *security) reloadables(server *rpc.Server) []reloadable {
	var parts []reloadable
	if s.tls != nil {
		parts = append(parts, reloadable{name: "tls", prepare: func() (func(), error) { return s.prepareTLS(server) }})
	}
	if s.ids != nil {
		parts = append(parts, reloadable{name: "auth_file", prepare: func() (func(), error) { return s.prepareIdentities(server) }})
	}
	return parts
}

func (s *security) prepareTLS(server *rpc.Server) (commit func(), err error) {
	fresh, err := s.readTLS()
	if err != nil || fresh.Same(s.material) {
		return nil, err
	}
	return func() {
		s.warn(fresh)
		samePool := fresh.SamePool(s.material)
		s.material = fresh
		s.tls.Use(fresh)
		if !samePool {
			server.UseClientCAs(fresh.Pool())
		}
	}, nil
}

func (s *security) prepareIdentities(server *rpc.Server) (commit func(), err error) {
	data, ids, err := s.readIdentities()
	if err != nil || bytes.Equal(data, s.authData) {
		return nil, err
	}
	return func() {
		s.authData, s.ids = data, ids
		server.UseIdentities(ids)
	}, nil
}
