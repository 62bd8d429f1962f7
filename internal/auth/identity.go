package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"slices"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// Identity is somebody who may call, and what that one may do. What is not allowed is refused. It does not change.
type Identity struct {
	// Name is unique among the identities.
	Name string
	// Publish and Subscribe say to which topics, Group which groups may be joined. None of them is nil.
	Publish, Subscribe, Group *core.Permission
	// Admin is the right to see everything and to end subscriptions.
	Admin bool
}

// Identities are all who may call. They do not change and are safe for concurrent use.
type Identities struct {
	tokens       []knownToken
	certificates map[string]*Identity // by typed name, as CertificateNames writes it
	all          []*Identity
}

type knownToken struct {
	digest   digest
	identity *Identity
}

// OnlyCertificates names the identities that have a certificate name and no token: without client certificates nobody is they.
func (ids *Identities) OnlyCertificates() []string {
	var names []string
	for _, id := range ids.all {
		if !slices.ContainsFunc(ids.tokens, func(t knownToken) bool { return t.identity == id }) {
			names = append(names, id.Name)
		}
	}
	return names
}

// Credential is what a caller has shown: a token, of which only the hash is kept, or a client certificate. The zero value is none.
type Credential struct {
	hasToken bool
	digest   digest
	names    []string
}

// TokenCredential is for a caller who has sent a token.
func TokenCredential(token string) Credential {
	return Credential{hasToken: true, digest: sha256.Sum256([]byte(token))}
}

// CertificateCredential is for a caller whose certificate was verified.
func CertificateCredential(leaf *x509.Certificate) Credential {
	return Credential{names: CertificateNames(leaf)}
}

// CertificateNames are the names of a certificate as an auth file spells them, each with its kind: whoever may have certificates
// issued for DNS names must not become the common name that reads the same.
func CertificateNames(leaf *x509.Certificate) []string {
	var names []string
	if cn := leaf.Subject.CommonName; cn != "" {
		names = append(names, "cn:"+cn)
	}
	for _, name := range leaf.DNSNames {
		names = append(names, "dns:"+name)
	}
	for _, uri := range leaf.URIs {
		names = append(names, "uri:"+uri.String())
	}
	return names
}

// The reasons why nobody is found.
var (
	errNoCredential = errors.New("no credential; send a bearer token or a client certificate")
	errBadToken     = errors.New("the token is not known")
	errBadName      = errors.New("no name of the client certificate is known")
	errTwoNames     = errors.New("the names of the client certificate belong to several identities")
)

// Find returns whose credential it is, or why it is nobody's. Every token is compared with, whole and in constant time, so that the
// time it takes says nothing about any of them.
func (ids *Identities) Find(c Credential) (*Identity, error) {
	switch {
	case c.hasToken:
		return ids.byToken(c.digest)
	case c.names == nil:
		return nil, errNoCredential
	}
	var found *Identity
	for _, name := range c.names {
		id := ids.certificates[name]
		if id != nil && found != nil && id != found {
			return nil, errTwoNames
		}
		if id != nil {
			found = id
		}
	}
	if found == nil {
		return nil, errBadName
	}
	return found, nil
}

func (ids *Identities) byToken(d digest) (*Identity, error) {
	found := -1
	for i := range ids.tokens {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(ids.tokens[i].digest[:], d[:]), i, found)
	}
	if found < 0 {
		return nil, errBadToken
	}
	return ids.tokens[found].identity, nil
}
