// Command tinybroker is the broker, its publisher, its subscriber and its tools in one program.
package main

import (
	"os"

	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

func main() {
	rpc.SetUpProcess()
	end := run(os.Args[1:], systemStreams())
	end.raise()
	os.Exit(end.code)
}
