//go:build !unix

package auth

import "io/fs"

// checkPrivate accepts every file: who may read it is not a matter of its mode here.
func checkPrivate(fs.FileInfo) error { return nil }
