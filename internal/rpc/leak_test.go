package rpc

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// For TestDialNamesProxy: net/http reads it once a process, whichever test comes first. Loopback is no matter of it.
	if err := os.Setenv("HTTPS_PROXY", "http://user:secret@127.0.0.1:1"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
