// Package auth knows who may do what: the identities of an auth file, their tokens, certificates and permissions, and the
// files that keep secrets and certificates. It knows no network and no flags; rpc asks it about callers.
//
// No secret is part of a text that it makes, neither of an error nor of anything printed.
package auth
