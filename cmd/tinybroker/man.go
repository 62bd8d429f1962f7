package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manPages are the pages of the manual by file name: one of the program, one of each command. They are made of the texts of --help, and
// bear no date, so that the same program gives the same pages.
func manPages(root *cobra.Command) map[string][]byte {
	pages := map[string][]byte{}
	for _, c := range documented(root) {
		if c.Runnable() {
			pages[manName(c)+".1"] = manPage(c)
		}
	}
	return pages
}

// manName is what `man` is asked for: tinybroker-pub.
func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

func manPage(c *cobra.Command) []byte {
	var r roff
	r.line(`.\" Made of the program's own help by "tinybroker docs"; edit it there.`)
	r.line(`.TH ` + strings.ToUpper(manName(c)) + ` 1 "" tinybroker "tinybroker manual"`)
	r.section("name")
	r.line(escapeRoff(manName(c)) + ` \- ` + escapeRoff(lowerFirst(c.Short)))
	r.section("synopsis")
	r.line(".B " + escapeRoff(usageLine(c)))
	if c.Long != "" {
		r.section("description")
		r.prose(c.Long)
	}
	r.commands(c)
	r.options(c)
	if c.Example != "" {
		r.section("examples")
		r.verbatim(dedent(c.Example))
	}
	if !c.HasParent() {
		r.environment(c)
		r.exitStatus()
	}
	r.seeAlso(c)
	return r.Bytes()
}

// roff writes a page in the language of man.
type roff struct{ bytes.Buffer }

func (r *roff) line(s string) { r.WriteString(s + "\n") }

func (r *roff) section(title string) { r.line(".SH " + strings.ToUpper(title)) }

// prose writes paragraphs that blank lines part. One that is indented keeps its lines, as a table does.
func (r *roff) prose(text string) {
	for i, block := range strings.Split(strings.Trim(text, "\n"), "\n\n") {
		if i > 0 {
			r.line(".PP")
		}
		if strings.HasPrefix(block, " ") {
			r.verbatim(block)
			continue
		}
		for line := range strings.SplitSeq(block, "\n") {
			r.line(escapeRoff(line))
		}
	}
}

// verbatim keeps lines and spaces as they are.
func (r *roff) verbatim(text string) {
	r.line(".EX")
	for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
		r.line(escapeRoff(line))
	}
	r.line(".EE")
}

// entry is a term with its meaning indented below it. The term is roff already.
func (r *roff) entry(term, meaning string) {
	r.line(".TP")
	r.line(term)
	r.line(escapeRoff(meaning))
}

func (r *roff) commands(c *cobra.Command) {
	if !c.HasAvailableSubCommands() {
		return
	}
	r.section("commands")
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			r.entry(".B "+escapeRoff(sub.Name()), sub.Short+".")
		}
	}
}

func (r *roff) options(c *cobra.Command) {
	own, shared := splitFlags(c)
	for _, part := range []struct {
		title string
		flags []*pflag.Flag
	}{{"options", own}, {"client options", shared}} {
		if len(part.flags) > 0 {
			r.section(part.title)
		}
		for _, f := range part.flags {
			term := `\fB\-\-` + escapeRoff(f.Name) + `\fR`
			if f.Shorthand != "" {
				term = `\fB\-` + f.Shorthand + `\fR, ` + term
			}
			if kind, _ := pflag.UnquoteUsage(f); kind != "" {
				term += ` \fI` + escapeRoff(kind) + `\fR`
			}
			r.entry(term, flagMeaning(f)+".")
		}
	}
}

func (r *roff) environment(root *cobra.Command) {
	r.section("environment")
	r.prose(environmentText(root))
	r.section("files")
	r.entry(".I $XDG_CONFIG_HOME/tinybroker/config.yaml", "The user's configuration.")
	r.entry(".I /etc/tinybroker/config.yaml", "The machine's, which is read where the user has none. "+
		"It is YAML: the options of serve under their names with _ for -, those that all clients share below client:.")
}

// environmentText says how flags are set by variables.
func environmentText(root *cobra.Command) string {
	names := strings.ReplaceAll(strings.Join(flagOnlyNames(root), ", "), "`", "")
	return "Every long option can be set in the environment: --connect-timeout is TINYBROKER_CONNECT_TIMEOUT.\n" +
		"Exceptions are " + names + ".\n" +
		"The option wins over the variable, the variable over the file."
}

func (r *roff) exitStatus() {
	r.section("exit status")
	for _, c := range exitCodes {
		r.entry(fmt.Sprintf(".B %d", c.code), c.meaning+".")
	}
}

func (r *roff) seeAlso(c *cobra.Command) {
	var pages []string
	for _, other := range documented(c.Root()) {
		if other != c && other.Runnable() {
			pages = append(pages, `\fB`+escapeRoff(manName(other))+`\fR(1)`)
		}
	}
	r.section("see also")
	r.line(strings.Join(pages, ",\n"))
}

// roffSpecial are characters that roff would take for something else, or print as their typographic cousins, which a shell
// does not take back.
var roffSpecial = strings.NewReplacer(`\`, `\(rs`, `-`, `\-`, `'`, `\(aq`, "`", `\(ga`, `^`, `\(ha`, `~`, `\(ti`, `"`, `\(dq`)

// escapeRoff makes one line print as it is.
func escapeRoff(line string) string {
	line = roffSpecial.Replace(line)
	if strings.HasPrefix(line, ".") {
		return `\&` + line
	}
	return line
}

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }
