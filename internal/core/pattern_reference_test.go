package core

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The reference is a slow matcher in Python, ref_glob.py, that is not part of this repository. What it says about some
// pairs of pattern and topic is kept in verdictsFile.
const (
	referenceVariable = "TINYBROKER_REF_GLOB"
	verdictsFile      = "testdata/verdicts.txt"
)

var updateVerdicts = flag.Bool("update-verdicts", false, "write "+verdictsFile+" anew, by the reference matcher")

// A refVerdict is what the reference says: y matches, n does not, e the pattern is an error.
type refVerdict struct {
	answer         byte
	pattern, topic string
}

func TestAgreesWithVerdictsOfTheReference(t *testing.T) {
	data, err := os.ReadFile(filepath.FromSlash(verdictsFile))
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	var c verdictCheck
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			t.Fatalf("bad line %q", line)
		}
		c.check(t, refVerdict{f[0][0], f[1], f[2]})
		count++
	}
	if count < 2000 {
		t.Errorf("only %d verdicts", count)
	}
}

func TestAgreesWithTheReference(t *testing.T) {
	reference, python := findReference(t)
	r := rand.New(rand.NewPCG(11, 12))
	if !*updateVerdicts {
		r = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	pairs := referencePairs(r, 250_000)
	askReference(t, python, reference, pairs)
	counts := make(map[byte]int)
	var c verdictCheck
	for _, v := range pairs {
		c.check(t, v)
		counts[v.answer]++
	}
	t.Logf("%d match, %d do not, %d are errors", counts['y'], counts['n'], counts['e'])
	if min(counts['y'], counts['n'], counts['e']) < len(pairs)/100 {
		t.Error("poor sample")
	}
	if *updateVerdicts {
		writeVerdicts(t, pairs)
	}
}

// verdictCheck holds verdicts against the matcher and the index. It keeps the last pattern, since neighbours often share it.
type verdictCheck struct {
	text    string
	pattern *Pattern
	err     error
	ix      *index[int]
}

// check demands that what is taken matches as the reference says. What is refused must be an error to the reference or
// match nothing, unless it is among what only we refuse; a pattern with braces may also be refused for another alternative
// than the one that matches.
func (c *verdictCheck) check(t *testing.T, v refVerdict) {
	t.Helper()
	if v.pattern != c.text {
		c.text, c.ix = v.pattern, &index[int]{}
		if c.pattern, c.err = ParsePattern(v.pattern); c.err == nil {
			c.ix.add(mustParse(t, v.pattern), 1)
		}
	}
	if c.err != nil {
		if v.answer == 'y' && !strings.Contains(v.pattern, "{") && !stricter(c.err) {
			t.Errorf("%q is refused, the reference matches %q: %v", v.pattern, v.topic, c.err)
		}
		return
	}
	if got := c.pattern.Match(v.topic); v.answer == 'e' || got != (v.answer == 'y') {
		t.Errorf("%q matches %q: %v, the reference says %c", v.pattern, v.topic, got, v.answer)
	}
	if got := len(c.ix.match(v.topic, nil)) == 1; got != (v.answer == 'y') {
		t.Errorf("the index finds %q for %q: %v, the reference says %c", v.pattern, v.topic, got, v.answer)
	}
}

// stricter reports whether err is for something that has a meaning to the reference.
func stricter(err error) bool {
	for _, why := range []error{errDoubleStar, errSegmentEmpty, errClassBackslash, errClassNegation} {
		if strings.Contains(err.Error(), why.Error()) {
			return true
		}
	}
	return capped(err)
}

// findReference returns the paths of the reference and of Python, and skips the test where there is none.
func findReference(t *testing.T) (reference, python string) {
	t.Helper()
	reference = os.Getenv(referenceVariable)
	if reference == "" {
		reference = filepath.FromSlash("../../../shared/cases/ref_glob.py")
	}
	python, err := exec.LookPath("python3")
	if err == nil {
		_, err = os.Stat(reference)
	}
	if err != nil {
		t.Skipf("to compare with the reference matcher, install python3 and set %s to the path of ref_glob.py", referenceVariable)
	}
	return reference, python
}

// referencePairs makes pairs without exclusions and without topics of the broker, which the reference does not know. Each
// pattern meets a few topics, the truths come first.
func referencePairs(r *rand.Rand, n int) []refVerdict {
	var pairs []refVerdict
	add := func(pattern, topic string) {
		if pattern != "" && !strings.HasPrefix(pattern, "!") && !strings.HasPrefix(topic, "$") {
			pairs = append(pairs, refVerdict{pattern: pattern, topic: topic})
		}
	}
	for _, c := range truths {
		for topic := range strings.FieldsSeq(c.matches + " " + c.others) {
			add(c.pattern, topic)
		}
	}
	for len(pairs) < n {
		pattern := randomPattern(r)
		for range 4 {
			add(pattern, randomTopic(r))
		}
	}
	return pairs
}

const askProgram = `
import importlib.util, re, sys
spec = importlib.util.spec_from_file_location("reference", sys.argv[1])
reference = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reference)
sys.stdin.reconfigure(encoding="utf-8")
for line in sys.stdin:
    pattern, topic = line.rstrip("\n").split("\t")
    try:
        sys.stdout.write("y" if reference.match(pattern, topic) else "n")
    except (ValueError, IndexError, re.error):
        sys.stdout.write("e")
`

// askReference fills in the answers, all by one process.
func askReference(t *testing.T, python, reference string, pairs []refVerdict) {
	t.Helper()
	var questions bytes.Buffer
	for _, v := range pairs {
		fmt.Fprintf(&questions, "%s\t%s\n", v.pattern, v.topic)
	}
	// Its regular expressions warn of classes such as [[a].
	cmd := exec.CommandContext(t.Context(), python, "-W", "ignore", "-c", askProgram, reference)
	cmd.Stdin = &questions
	cmd.Stderr = os.Stderr
	answers, err := cmd.Output()
	if err != nil || len(answers) != len(pairs) {
		t.Fatalf("%d answers to %d questions: %v", len(answers), len(pairs), err)
	}
	for i := range pairs {
		pairs[i].answer = answers[i]
	}
}

// writeVerdicts keeps the truths and, of the rest, as many of each answer.
func writeVerdicts(t *testing.T, pairs []refVerdict) {
	t.Helper()
	f, err := os.Create(filepath.FromSlash(verdictsFile))
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	left := map[byte]int{'y': 900, 'n': 900, 'e': 300}
	for _, v := range pairs {
		if left[v.answer] > 0 && len(v.pattern) < 60 {
			left[v.answer]--
			fmt.Fprintf(w, "%c %s %s\n", v.answer, v.pattern, v.topic)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
