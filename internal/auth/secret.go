package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// tokenPrefix lets people, and programs that look for secrets that got lost, know a token when they see one.
	tokenPrefix = "tb_"
	tokenBytes  = 32
	// maxToken bounds what is taken for a token.
	maxToken = 1024

	hashPrefix = "sha256:"
)

// digest is what is kept of a token.
type digest [sha256.Size]byte

// NewToken makes a token of 256 random bits.
func NewToken() string {
	secret := make([]byte, tokenBytes)
	rand.Read(secret)
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(secret)
}

// HashToken returns what an auth file says instead of the token. The token cannot be found out from it, given that it is as random as
// those of NewToken.
func HashToken(token string) string {
	d := sha256.Sum256([]byte(token))
	return hashPrefix + hex.EncodeToString(d[:])
}

var errHash = errors.New("is not sha256: and 64 hexadecimal digits; tinybroker token new makes one")

// parseHash reads what HashToken has made. The error does not repeat it: it may be a token that was put into the wrong place.
func parseHash(s string) (digest, error) {
	var d digest
	text, ok := strings.CutPrefix(s, hashPrefix)
	if !ok || len(text) != hex.EncodedLen(len(d)) {
		return d, errHash
	}
	if _, err := hex.Decode(d[:], []byte(text)); err != nil {
		return d, errHash
	}
	if d == sha256.Sum256(nil) {
		return d, errors.New("is the hash of a blank token")
	}
	return d, nil
}

// CheckToken reports what is wrong with a token before it is sent: a header could not carry it, or it is blank.
func CheckToken(token string) error {
	switch {
	case token == "":
		return errors.New("holds no token")
	case len(token) > maxToken:
		return fmt.Errorf("holds more than %d bytes, which is no token", maxToken)
	case !utf8.ValidString(token) || strings.ContainsFunc(token, func(r rune) bool { return r > unicode.MaxASCII || unicode.IsControl(r) }):
		return errors.New("holds control characters or other bytes that are not part of a token; a token is one line of text")
	case strings.Contains(token, " "):
		return errors.New("holds a space, which is not part of a token")
	}
	return nil
}

// ReadToken reads a file that holds a token and nothing else. Ends of lines behind it are not part of it.
func ReadToken(path string) (string, error) {
	data, err := ReadSecret(path)
	if err != nil {
		return "", err
	}
	token := strings.TrimRight(string(data), "\r\n")
	if err := CheckToken(token); err != nil {
		return "", fmt.Errorf("%s %w", path, err)
	}
	return token, nil
}
