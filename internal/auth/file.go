package auth

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// maxFile bounds every file that is read here.
const maxFile = 4 << 20

// ReadSecret reads a file that holds secrets. It must be private: see checkPrivate. The error names the path and never what is in the
// file.
func ReadSecret(path string) ([]byte, error) { return readFile(path, checkPrivate) }

// readPublic reads a file that anybody may know, for example a certificate.
func readPublic(path string) ([]byte, error) {
	return readFile(path, func(fs.FileInfo) error { return nil })
}

// readFile reads a file once check has found nothing wrong with it. What is checked is what was opened: a link or a rename in between
// changes nothing.
func readFile(path string, check func(fs.FileInfo) error) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, bare(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, bare(err))
	}
	if info.IsDir() {
		return nil, fmt.Errorf("%s: is a directory", path)
	}
	if err := check(info); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, bare(err))
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: is larger than %d MiB", path, maxFile>>20)
	}
	return data, nil
}

// bare is err without the path, which stands before it already.
func bare(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}
