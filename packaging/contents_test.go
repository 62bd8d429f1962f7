package packaging

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// manual are the pages of the manual, as the archives hold them.
func manual(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob("../docs/man/*.1")
	if err != nil || len(pages) < 8 {
		t.Fatalf("%q, %v", pages, err)
	}
	for i, page := range pages {
		pages[i] = "man/" + filepath.Base(page)
	}
	return pages
}

// Every system and architecture has its archive, with the program, its licences, the pages and the completions.
func TestArchives(t *testing.T) {
	want := append([]string{
		"LICENSE", "third-party-licenses.txt", "README.md", "CHANGELOG.md", "config.yaml", "docs/index.md", "docs/cli.md",
		"docs/decisions/README.md", "docs/examples/node/README.md", "docs/examples/node/worker.js", "docs/examples/node/package.json",
		"docs/examples/python/worker.py", "docs/examples/grpcurl/publish.sh", "docs/examples/go/worker/main.go",
		"docs/prometheus/tinybroker.rules.yaml", "docs/grafana/tinybroker.json", "proto/tinybroker/v1/tinybroker.proto",
		"CONTRIBUTING.md", "SECURITY.md", "packaging/tinybroker.service",
		"completions/tinybroker.bash", "completions/_tinybroker", "completions/tinybroker.fish", "completions/tinybroker.ps1",
	}, manual(t)...)
	var built []string
	for _, a := range artifacts(t) {
		if a.Type != "Archive" {
			continue
		}
		built = append(built, a.Goos+"/"+a.Goarch)
		program := "tinybroker"
		if a.Goos == "windows" {
			program += ".exe"
		}
		files := filesOf(t, a.Path)
		checkTimes(t, a.Path)
		if i := slices.IndexFunc(files, func(path string) bool { return strings.Contains(path, "node_modules") }); i >= 0 {
			t.Errorf("%s holds %s", a.Name, files[i])
		}
		for _, path := range append([]string{program}, want...) {
			if !slices.Contains(files, path) {
				t.Errorf("%s holds no %s", a.Name, path)
			}
		}
	}
	slices.Sort(built)
	if got := strings.Join(built, " "); got != "darwin/amd64 darwin/arm64 linux/amd64 linux/arm64 windows/amd64 windows/arm64" {
		t.Errorf("archives for %s", got)
	}
}

// checkTimes: what is packed bears the time of the commit, so that the same commit gives the same archive.
func checkTimes(t *testing.T, archive string) {
	t.Helper()
	var built struct{ Commit string }
	if err := json.Unmarshal([]byte(readFile(t, filepath.Join(filepath.Dir(archive), "metadata.json"))), &built); err != nil {
		t.Fatal(err)
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(output(t, "git", "log", "-1", "--format=%ct", built.Commit)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	commit := time.Unix(seconds, 0)
	if filepath.Ext(archive) == ".zip" {
		return // has local times, in steps of two seconds
	}
	for _, h := range headersOf(t, archive) {
		if !h.ModTime.Equal(commit) {
			t.Errorf("%s: %s is of %v, the commit of %v", filepath.Base(archive), h.Name, h.ModTime.UTC(), commit.UTC())
			return
		}
	}
}

func filesOf(t *testing.T, archive string) []string {
	t.Helper()
	if filepath.Ext(archive) == ".zip" {
		z, err := zip.OpenReader(archive)
		if err != nil {
			t.Fatal(err)
		}
		defer z.Close()
		var names []string
		for _, f := range z.File {
			names = append(names, f.Name)
		}
		return names
	}
	var names []string
	for _, h := range headersOf(t, archive) {
		names = append(names, h.Name)
	}
	return names
}

// headersOf lists a compressed tar. An apk is several of them, one after the other, as one stream.
func headersOf(t *testing.T, archive string) []*tar.Header {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var list []*tar.Header
	for tr := tar.NewReader(z); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, h)
	}
}

// installedFiles are the files of a package, but for the manual.
var installedFiles = []string{
	"/etc/tinybroker/config.yaml",
	"/usr/bin/tinybroker",
	"/usr/lib/systemd/system/tinybroker.service",
	"/usr/share/bash-completion/completions/tinybroker",
	"/usr/share/doc/tinybroker/CHANGELOG.md.gz",
	"/usr/share/doc/tinybroker/copyright",
	"/usr/share/doc/tinybroker/third-party-licenses.txt.gz",
	"/usr/share/fish/vendor_completions.d/tinybroker.fish",
	"/usr/share/man/man1/tinybroker.1.gz",
	"/usr/share/man/man1/tinybroker-pub.1.gz",
	"/usr/share/man/man1/tinybroker-serve.1.gz",
}

// The other packages hold the same files; where zsh looks for completions differs.
func TestOtherPackages(t *testing.T) {
	want := append([]string{"/usr/share/zsh/site-functions/_tinybroker", "/usr/share/licenses/tinybroker/LICENSE"}, installedFiles...)
	t.Run("apk", func(t *testing.T) {
		files := filesOf(t, find(t, "Linux Package", ".apk").Path)
		for _, path := range want {
			if !slices.Contains(files, strings.TrimPrefix(path, "/")) {
				t.Errorf("no %s", path)
			}
		}
	})
	t.Run("rpm", func(t *testing.T) {
		rpm := find(t, "Linux Package", ".rpm").Path
		needs(t, "rpm")
		files := strings.Fields(output(t, "rpm", "-qpl", rpm))
		for _, path := range want {
			if !slices.Contains(files, path) {
				t.Errorf("no %s", path)
			}
		}
		if got := output(t, "rpm", "-qpc", rpm); got != "/etc/tinybroker/config.yaml\n" {
			t.Errorf("kept through updates: %q", got)
		}
	})
}

// Homebrew finds in the archives what the cask names, and the cask names every page.
func TestCask(t *testing.T) {
	var casks []string
	inArchives := map[string][]string{}
	for _, a := range artifacts(t) {
		switch {
		case a.Type == "Homebrew Cask":
			casks = append(casks, a.Path)
		case a.Type == "Archive" && a.Goos != "windows":
			inArchives[a.Name] = filesOf(t, a.Path)
		}
	}
	if len(casks) != 1 {
		t.Fatalf("casks: %q", casks)
	}
	cask := readFile(t, casks[0])
	if !strings.Contains(cask, "codeberg.org/tinybroker/tinybroker/releases/download/") {
		t.Errorf("the cask fetches from somewhere else:\n%s", cask)
	}
	var named []string
	for _, m := range regexp.MustCompile(`(?m)^\s*(?:binary|manpage|\w+_completion) "([^"]+)"`).FindAllStringSubmatch(cask, -1) {
		named = append(named, m[1])
	}
	for archive, files := range inArchives {
		for _, path := range named {
			if !slices.Contains(files, path) {
				t.Errorf("%s holds no %s", archive, path)
			}
		}
	}
	for _, page := range manual(t) {
		if !slices.Contains(named, page) {
			t.Errorf("the cask does not install %s", page)
		}
	}
}
