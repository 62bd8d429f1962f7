package packaging

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// image is what an engine would make of the Dockerfile: a folder, and how to start what is in it.
type image struct {
	root, user          string
	env                 []string
	entry, args, health []string
}

// There is no engine here, but the image is a folder with files and a user, so the test makes that folder as the Dockerfile says
// and runs its commands with nothing else to see.
func TestImage(t *testing.T) {
	program := find(t, "Binary", "tinybroker").Path
	needsRoot(t)
	img := readDockerfile(t, program)
	if img.user != "65532:65532" {
		t.Errorf("it runs as %q", img.user)
	}

	// As it stands, it must not be open to everybody.
	refused := inside(t, img.root, img.env, append(img.entry, img.args...)...)
	out, err := refused.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 78 || !strings.Contains(string(out), `":7710" can be reached`) {
		t.Errorf("without TLS: %v\n%s", err, out)
	}

	env := append([]string{}, img.env...)
	for i, pair := range env {
		if strings.HasPrefix(pair, "TINYBROKER_LISTEN=") {
			env[i] = "TINYBROKER_LISTEN=127.0.0.1:0"
		}
	}
	s := startInside(t, img.root, env, append(img.entry, img.args...)...)
	env = append(env, "TINYBROKER_SERVER="+s.address())
	if out, err := inside(t, img.root, env, img.health...).CombinedOutput(); err != nil {
		t.Errorf("HEALTHCHECK of a healthy broker: %v\n%s", err, out)
	}
	s.stop()
	began := time.Now()
	if err := inside(t, img.root, env, img.health...).Run(); err == nil {
		t.Error("HEALTHCHECK without a broker succeeds")
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("HEALTHCHECK took %v, more than its timeout", took)
	}
}

// readDockerfile does what an engine does with the few instructions that are used, and fails for any other.
func readDockerfile(t *testing.T, program string) *image {
	t.Helper()
	img := &image{root: t.TempDir()}
	if err := os.Chmod(img.root, 0o755); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(readFile(t, "Dockerfile")) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "", "#", "ARG", "EXPOSE", "STOPSIGNAL":
		case "FROM":
			if rest != "scratch" {
				t.Fatalf("FROM %s: the test knows an empty image only", rest)
			}
		case "USER":
			img.user = rest
		case "ENV":
			img.env = append(img.env, rest)
		case "COPY":
			img.copy(t, strings.Fields(rest), program)
		case "ENTRYPOINT":
			img.entry = words(t, rest)
		case "CMD":
			img.args = words(t, rest)
		case "HEALTHCHECK":
			_, rest, _ = strings.Cut(rest, " CMD ")
			img.health = words(t, rest)
		default:
			t.Fatalf("the test does not know %s", word)
		}
	}
	return img
}

func (img *image) copy(t *testing.T, files []string, program string) {
	t.Helper()
	to := files[len(files)-1]
	for _, from := range files[:len(files)-1] {
		target := filepath.Join(img.root, to)
		if strings.HasSuffix(to, "/") {
			target = filepath.Join(target, filepath.Base(from))
		}
		if from == "$TARGETPLATFORM/tinybroker" {
			copyFile(t, program, target)
			continue
		}
		if !regexp.MustCompile(`extra_files: .*\b` + regexp.QuoteMeta(from) + `[],]`).MatchString(readFile(t, "../.goreleaser.yaml")) {
			t.Errorf("goreleaser does not hand over %s", from)
		}
		copyFile(t, filepath.Join("..", from), target)
	}
}

// words reads a command in the form without a shell, which is the only one that works where there is none.
func words(t *testing.T, text string) []string {
	t.Helper()
	var list []string
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return list
}
