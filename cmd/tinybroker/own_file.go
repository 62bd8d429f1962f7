package main

import (
	"io/fs"
	"os"
)

// ownFile is a file that this process has made and takes away when it ends, unless another one has its name by then. The zero
// value is no file.
type ownFile struct {
	path string
	info fs.FileInfo
}

// claim returns the file that was just made at path.
func claim(path string) (ownFile, error) {
	info, err := os.Lstat(path)
	return ownFile{path, info}, err
}

func (f ownFile) remove() {
	if f.info == nil {
		return
	}
	// The number of a file that has gone may have been given to its successor; the time tells them apart.
	if now, err := os.Lstat(f.path); err == nil && os.SameFile(now, f.info) && now.ModTime().Equal(f.info.ModTime()) {
		_ = os.Remove(f.path) // there is nobody left to be told
	}
}
