//go:build unix

package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The fenced blocks of every page are run as a reader would run them, page by page against a broker of the page's own.
// Words after the language say how; renderers do not show them:
//
//	sh                 a shell script; it must succeed
//	sh terminal=2      the same in a terminal of its own, where it may go on until the page ends or the terminal is used
//	                   again: it counts as started once a broker listens or a subscription is open
//	sh stays           neither ends nor says when it is ready
//	sh needs=grpcurl   wants that program; several are parted by commas
//	sh in=node         in a copy of docs/examples/node with its packages installed
//	text terminal=2    what that terminal shows, sooner or later, times and addresses aside; … is the rest of a line
//	LANG file=NAME     is in that file where the page's commands run
//	LANG from=PATH     is in that file of the repository, word for word
//	LANG by=TestName   is checked by that test
//	text drawing       is a picture, or the form of something
//	LANG untried="…"   is not tried, for that reason
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	for _, path := range documents(t) {
		t.Run(pageName(path), func(t *testing.T) {
			t.Parallel()
			var page *page
			for _, b := range readBlocks(t, path) {
				if !b.tried() {
					continue
				}
				if page == nil {
					page = openPage(t)
				}
				switch {
				case b.option("file") != "":
					page.write(b)
				case b.lang == "sh":
					page.run(b)
				default:
					page.expect(b)
				}
			}
		})
	}
}

// TestDocumentedMakeTargets checks the commands that take too long for the test above.
func TestDocumentedMakeTargets(t *testing.T) {
	makefile := readFile(t, filepath.Join(root, "Makefile"))
	for _, path := range documents(t) {
		for _, m := range regexp.MustCompile("(?m)(?:^|`)make ([a-z-]+)").FindAllStringSubmatch(readFile(t, path), -1) {
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s: the Makefile has no target %q", path, m[1])
			}
		}
	}
}
