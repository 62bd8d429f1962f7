//go:build !unix

package main

import (
	"errors"
	"strings"
)

func isAddressInUse(err error) bool {
	// Windows has numbers of its own for this, and words.
	return errors.Is(err, errSocketInUse) || strings.Contains(err.Error(), "Only one usage of each socket address")
}

func privateUmask() (restore func()) { return func() {} }

func lockDirectory(string) (release func()) { return func() {} }

func mostOpenFiles() uint64 { return 0 }
