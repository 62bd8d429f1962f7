// Command licenses writes, or with -check checks, the file that names the modules in the released programs and holds their
// licences. It fails for a licence that it does not know, and for one that asks more of those who pass a program on than to pass
// its text on as well.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

var errNotCurrent = errors.New("is not current: run make licenses")

func run(ctx context.Context, args []string, log io.Writer) error {
	fs := flag.NewFlagSet("licenses", flag.ContinueOnError)
	fs.SetOutput(log)
	program := fs.String("program", "./cmd/tinybroker", "`package` of the program")
	path := fs.String("file", "docs/third-party-licenses.txt", "`file` to write")
	check := fs.Bool("check", false, "compare with the file instead of writing it")
	if err := fs.Parse(args); err != nil {
		return err
	}
	parts, err := collect(ctx, *program)
	if err != nil {
		return err
	}
	text, err := page(parts)
	if err != nil {
		return err
	}
	if !*check {
		return os.WriteFile(*path, text, 0o644)
	}
	current, err := os.ReadFile(*path)
	if err != nil {
		return err
	}
	if !bytes.Equal(current, text) {
		return fmt.Errorf("%s %w", *path, errNotCurrent)
	}
	return nil
}
