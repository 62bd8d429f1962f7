package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// platforms are the systems that programs are released for. Some modules are in the program of one of them only.
var platforms = []string{"linux", "darwin", "windows"}

// elsewhere are the modules that say in another file what their licence is.
var elsewhere = map[string]string{"github.com/mattn/go-localereader": "README.md"}

// part is a module, or Go's standard library, in a released program.
type part struct {
	name  string
	texts []string // its licences and notices, in the order of their paths
}

// collect finds every part of the program and reads its licences. A part without any is an error.
func collect(ctx context.Context, program string) ([]part, error) {
	files := map[string]map[string]bool{} // by part, the paths of its texts
	for _, system := range platforms {
		list, err := goCommand(ctx, system, "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Dir}}\t{{$.Dir}}{{end}}{{end}}", program)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(list) {
			fields := strings.Split(strings.TrimSpace(line), "\t")
			if len(fields) != 3 {
				continue // a package of the standard library or of our own
			}
			if err := addTexts(files, fields[0], fields[1], fields[2]); err != nil {
				return nil, err
			}
		}
	}
	root, err := goCommand(ctx, "", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	root = strings.TrimSpace(root)
	if err := addTexts(files, "Go standard library", root, root); err != nil {
		return nil, err
	}
	return read(files)
}

func goCommand(ctx context.Context, system string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	if system != "" {
		cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH=amd64", "CGO_ENABLED=0")
	}
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("go %s: %w: %s", args[0], err, strings.TrimSpace(string(exit.Stderr)))
	}
	return string(out), err
}

var textName = regexp.MustCompile(`(?i)^(licen[cs]es?|copying|notice)([.-].*)?$`)

// addTexts notes the texts in the folder of a package and in those above it, up to its module's: a package that a module
// has taken over from others brings its own.
func addTexts(files map[string]map[string]bool, name, module, pkg string) error {
	if files[name] == nil {
		files[name] = map[string]bool{}
	}
	for dir := pkg; ; dir = filepath.Dir(dir) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Type().IsRegular() && (textName.MatchString(e.Name()) || dir == module && e.Name() == elsewhere[name]) {
				files[name][filepath.Join(dir, e.Name())] = true
			}
		}
		if dir == module {
			return nil
		}
	}
}

func read(files map[string]map[string]bool) ([]part, error) {
	var parts []part
	for name, paths := range files {
		p := part{name: name}
		for _, path := range sortedKeys(paths) {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			p.texts = append(p.texts, clean(string(text)))
		}
		if len(p.texts) == 0 {
			return nil, fmt.Errorf("%s comes without a licence", name)
		}
		parts = append(parts, p)
	}
	slices.SortFunc(parts, func(a, b part) int { return strings.Compare(a.name, b.name) })
	return parts, nil
}

// clean takes off what differs and does not matter: line ends, and space at the ends of lines.
func clean(text string) string {
	var lines []string
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
		lines = append(lines, strings.TrimRight(line, " \t\f"))
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n")
}

func sortedKeys(set map[string]bool) []string {
	var keys []string
	for key := range set {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
