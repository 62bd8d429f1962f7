package rpc

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// testProxy is set for the whole test run, since net/http reads the environment once a process. Nobody listens there:
// whatever is not to go through a proxy would fail if it did.
const testProxy = "http://user:secret@127.0.0.1:1"

func TestMain(m *testing.M) {
	for _, name := range []string{"HTTPS_PROXY", "https_proxy"} {
		if err := os.Setenv(name, testProxy); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}
