package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"codeberg.org/tinybroker/tinybroker/internal/auth"
	"codeberg.org/tinybroker/tinybroker/internal/core"
)

type tokenOptions struct {
	name string
	out  string
}

func newTokenCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make tokens, by which a broker knows its clients",
		Long: `A broker with --auth-file knows its clients by tokens or by certificates. It
keeps no token, only a hash of each. See docs/security.md.`,
		Example: `  # a token for billing, and its entry in the auth file of the broker
  tinybroker token new --name billing --out billing.token >> auth.yaml`,
	}
	cmd.AddCommand(newTokenNewCmd(a))
	return cmd
}

func newTokenNewCmd(a *app) *cobra.Command {
	o := &tokenOptions{}
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Make a token, and the line for the broker's auth file",
		Long: `Make a new random token and print it, and below it the line of the broker's auth
file that lets it in. With --out the token goes into a file of its own instead,
which is for the client's --token-file and which only you can read; only the
line is printed then. With --name that is a whole entry for the list of
identities, to which you add what the identity may do.

The token is shown once. The broker has its hash, and cannot tell it again.`,
		Example: `  # the token, and the line with its hash
  tinybroker token new

  # the token into a file, the entry into the broker's auth file
  tinybroker token new --name billing --out billing.token >> auth.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runTokenNew(cmd.Context(), a, o) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.name, "name", "", "`name` of the identity that the token is for")
	fs.StringVar(&o.out, "out", "", "write the token to a new `file` that only you can read")
	flagOnly(fs, "name", "out")
	return cmd
}

func runTokenNew(ctx context.Context, a *app, o *tokenOptions) error {
	if o.name != "" {
		if err := core.ValidateName("--name", o.name); err != nil {
			return usagef("token new: %s", strings.TrimPrefix(err.Error(), core.ErrProtocol.Error()+": "))
		}
	}
	token := auth.NewToken()
	text := token + "\n"
	if o.out != "" {
		if err := writeToken(o.out, text); err != nil {
			return err
		}
		text = ""
	}
	text += authEntry(o.name, auth.HashToken(token))
	err := a.report(ctx, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
	if err != nil {
		if o.out != "" {
			_ = os.Remove(o.out) // no broker will ever know this token
		}
		return err
	}
	if isTerminal(a.out) {
		fmt.Fprintln(a.err, "\n"+tokenHint(o))
	}
	return nil
}

func tokenHint(o *tokenOptions) string {
	if o.out == "" {
		return "The token is shown only now. It goes into a file for the client's --token-file, the rest into the broker's auth file."
	}
	return "This goes into the broker's auth file; the token is in " + safe(o.out) + "."
}

// authEntry is what an auth file says about a token: an item of its list of identities, or a line of one that is there.
func authEntry(name, hash string) string {
	if name == "" {
		return "token_hash: [" + hash + "]\n"
	}
	quoted, err := yaml.Marshal(name)
	if err != nil {
		return "" // not reached: a text can be encoded
	}
	return "  - name: " + string(quoted) + "    token_hash: [" + hash + "]\n"
}

// writeToken writes a file that only its owner can read and that was not there before: whoever might have it open already must not
// get to see the token.
func writeToken(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return failf(exitIO, "token new: %s: is there already; remove it first", path)
	}
	if err == nil {
		_, err = f.WriteString(text)
		if err = errors.Join(err, f.Close()); err != nil {
			_ = os.Remove(path) // it holds no whole token
		}
	}
	if err != nil {
		return failf(exitIO, "token new: %s: %s", path, rootCause(err))
	}
	return nil
}
