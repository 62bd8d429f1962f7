package auth

import (
	"crypto/tls"
	"os"
	"sync"
)

// Follower is a client's side of TLS that follows its files: each handshake gets what they hold then. Files that cannot be used, as
// when only half of a pair has been written, leave what was read before in use. It is safe for concurrent use.
type Follower struct {
	files      Files
	serverName string
	tell       func(error)
	fixed      bool // what the files are cannot be read twice, such as a pipe

	mu       sync.Mutex
	material *Material
	config   *tls.Config
	told     string // the last problem; empty: there is none
}

// Follow reads files for the first time, and returns an error when they cannot be used. Later tell is told why they cannot: each problem once,
// until there is another one. It must not block, and may be nil. serverName is that of ClientTLS.
func Follow(f Files, serverName string, tell func(error)) (*Follower, error) {
	m, err := Load(f)
	if err != nil {
		return nil, err
	}
	l := &Follower{files: f, serverName: serverName, tell: tell, material: m, config: ClientTLS(m, serverName)}
	for _, path := range []string{f.Certificate, f.Key, f.CA} {
		if info, err := os.Stat(path); path != "" && (err != nil || !info.Mode().IsRegular()) {
			l.fixed = true
		}
	}
	return l, nil
}

// Config returns what to use for a handshake now. It must not be changed.
func (l *Follower) Config() *tls.Config {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fixed {
		return l.config
	}
	m, err := Load(l.files)
	if err != nil {
		l.tellLocked(err)
		return l.config
	}
	l.told = ""
	if !m.Same(l.material) {
		l.material, l.config = m, ClientTLS(m, l.serverName)
	}
	return l.config
}

func (l *Follower) tellLocked(err error) {
	if text := err.Error(); text != l.told {
		l.told = text
		if l.tell != nil {
			l.tell(err)
		}
	}
}
