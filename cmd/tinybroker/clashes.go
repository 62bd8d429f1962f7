package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// clash is settings of a command that do not go together. A flag on the command line wins over what the environment says for other
// commands, too; and what the environment says and this use of the command has no use for is passed over.
type clash struct {
	flag  string      // the setting that has no meaning here
	with  []string    // those that rob it of its meaning, and give way to it where it is on the command line and they are not
	equal bool        // neither is the odd one out: when the environment sets both, it contradicts itself
	found func() bool // asked again after each setting that gave way
	text  string
}

// settle resolves the clashes among the flags of a command, or says which of them it cannot. given loses the names of settings that
// gave way; they have their defaults again.
func settle(command string, fs *pflag.FlagSet, given map[string]bool, clashes []clash) error {
	for _, c := range clashes {
		for _, name := range c.yielding(fs) {
			if given[name] && !fs.Changed(name) && c.found() {
				setDefault(fs.Lookup(name))
				delete(given, name)
			}
		}
		if c.found() {
			return withHint(usagef("%s: %s", command, c.text), c.variables(fs, given))
		}
	}
	return nil
}

// yielding are the settings that give way, if they are not on the command line.
func (c *clash) yielding(fs *pflag.FlagSet) []string {
	if fs.Changed(c.flag) {
		return c.with
	}
	if !c.equal {
		return []string{c.flag}
	}
	if slices.ContainsFunc(c.with, fs.Changed) {
		return []string{c.flag}
	}
	return nil
}

// variables says where to look for what is not on the command line; empty: all of it is there.
func (c *clash) variables(fs *pflag.FlagSet, given map[string]bool) string {
	var names []string
	for _, name := range append([]string{c.flag}, c.with...) {
		if given[name] && !fs.Changed(name) {
			names = append(names, envName(name))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "the environment sets " + strings.Join(names, " and ")
}

// meantForOthers reports whether a text that one of a client command's own flags does not take is a value of another client command's
// flag of that name: TINYBROKER_OUTPUT=hex is for sub, and does not stop pub.
func meantForOthers(cmd *cobra.Command) func(f *pflag.Flag, text string) bool {
	return func(f *pflag.Flag, text string) bool {
		if cmd.Annotations[noteSection] != sectionClient || sectionOf(f) != "" {
			return false
		}
		return slices.ContainsFunc(cmd.Root().Commands(), func(other *cobra.Command) bool {
			theirs := other.Flags().Lookup(f.Name)
			if other == cmd || other.Annotations[noteSection] != sectionClient || theirs == nil || theirs.Value.Set(text) != nil {
				return false
			}
			setDefault(theirs)
			return true
		})
	}
}

// setDefault gives a flag the value that it was declared with.
func setDefault(f *pflag.Flag) {
	if v, ok := f.Value.(interface{ setDefault(text string) }); ok {
		v.setDefault(f.DefValue)
		return
	}
	_ = f.Value.Set(f.DefValue) // a value reads what it prints
}
