package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// Every setting is a flag, and has one name in four places: --send-timeout, TINYBROKER_SEND_TIMEOUT, send_timeout in
// the file, and the default that the flag was declared with. Flag beats environment beats file beats default. What is
// not given as a flag is set on the flag from here, so a command sees only its options.

const (
	envPrefix = "TINYBROKER_"
	// The sections of the file: serve's settings are at the top level, those of all client commands under client.
	sectionServe  = "serve"
	sectionClient = "client"
	// Annotations. On a command: the section it reads. On a flag: the section where the file may name it; that it
	// can be given on the command line alone; or that it is not to be blank.
	noteSection  = "section"
	noteFlagOnly = "flag-only"
	noteNotBlank = "not-blank"
	// keyDelimiter parts section and key inside viper, whose own dot would split names that hold dots.
	keyDelimiter = "::"

	sourceDefault = "default"
)

// inSection lets the file name the flags of fs.
func inSection(fs *pflag.FlagSet, section string) {
	fs.VisitAll(func(f *pflag.Flag) { note(f, noteSection, section) })
}

func flagOnly(fs *pflag.FlagSet, names ...string) {
	for _, name := range names {
		note(fs.Lookup(name), noteFlagOnly, "true")
	}
}

// notBlank is for settings that turn on what protects: given and blank is what a script makes of a variable that nobody has set, or a key that
// was to be filled in later, and must not leave off what it was to turn on. An empty environment variable is none at all, as ever.
func notBlank(fs *pflag.FlagSet, names ...string) {
	for _, name := range names {
		note(fs.Lookup(name), noteNotBlank, "true")
	}
}

// refuseBlank is the error when such a setting has been given a blank value, at where.
func refuseBlank(f *pflag.Flag, where string) error {
	if isNotBlank(f) && strings.TrimSpace(f.Value.String()) == "" {
		return fmt.Errorf("%s is blank; give it a value or leave it out", where)
	}
	return nil
}

func isNotBlank(f *pflag.Flag) bool { return f.Annotations[noteNotBlank] != nil }

func note(f *pflag.Flag, name, value string) {
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[name] = []string{value}
}

func sectionOf(f *pflag.Flag) string {
	if v := f.Annotations[noteSection]; len(v) == 1 {
		return v[0]
	}
	return ""
}

func isFlagOnly(f *pflag.Flag) bool {
	return f.Annotations[noteFlagOnly] != nil || f.Name == "help" || f.Name == "version"
}

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func fileKey(flag string) string { return strings.ReplaceAll(flag, "-", "_") }

func viperKey(f *pflag.Flag) string {
	if sectionOf(f) == sectionClient {
		return sectionClient + keyDelimiter + fileKey(f.Name)
	}
	return fileKey(f.Name)
}

// config is what was found outside the command line.
type config struct {
	file    *configFile       // nil: none
	sources map[string]string // by flag name: where its value comes from, in words
	// meant reports whether what the environment says is meant for a flag of that name of another command. Nil: there is none.
	meant func(f *pflag.Flag, text string) bool
}

// loadConfig sets every flag of fs that the command line does not give from the environment and the file, and reports
// all that is wrong with them at once. For meant see config.
func loadConfig(fs *pflag.FlagSet, meant func(f *pflag.Flag, text string) bool) (*config, error) {
	file, err := findConfigFile(fs)
	if err != nil {
		return nil, &exitError{code: exitConfig, err: err}
	}
	return applyConfig(fs, file, meant)
}

// applyConfig does the same with a file that has been read; nil: none.
func applyConfig(fs *pflag.FlagSet, file *configFile, meant func(f *pflag.Flag, text string) bool) (*config, error) {
	c := &config{file: file, sources: map[string]string{}, meant: meant}
	var errs mistakes
	v := newViper()
	if file != nil {
		errs = append(errs, file.check()...)
		v = file.values()
	}
	fs.VisitAll(func(f *pflag.Flag) {
		source, err := c.apply(f, v)
		c.sources[f.Name] = source
		if err != nil {
			errs = append(errs, err)
		}
	})
	return c, errs.asConfigError()
}

// givenFlags are the names of the flags that do not have their default, but were set somewhere.
func givenFlags(a *app, fs *pflag.FlagSet) map[string]bool {
	given := map[string]bool{}
	fs.VisitAll(func(f *pflag.Flag) { given[f.Name] = a.config.sources[f.Name] != sourceDefault })
	return given
}

// apply sets one flag from v and says where its value comes from.
func (c *config) apply(f *pflag.Flag, v *viper.Viper) (source string, err error) {
	if f.Changed {
		return "flag --" + f.Name, refuseBlank(f, "--"+f.Name)
	}
	if isFlagOnly(f) {
		return sourceDefault, nil
	}
	key := viperKey(f)
	fromEnv := inEnvironment(envName(f.Name))
	if fromEnv {
		if err := v.BindEnv(key, envName(f.Name)); err != nil {
			return "", err
		}
	}
	if !fromEnv && (sectionOf(f) == "" || c.file == nil || !c.file.has(key)) {
		return sourceDefault, nil
	}
	if fromEnv {
		source = "environment " + envName(f.Name)
		text := v.GetString(key)
		err := f.Value.Set(text)
		if err != nil && c.meant != nil && c.meant(f, text) {
			return sourceDefault, nil
		}
		if err != nil {
			return source, fmt.Errorf("%s: %w", envName(f.Name), err)
		}
		return source, refuseBlank(f, envName(f.Name))
	}
	return "file " + c.file.at(key), c.applyFile(f, v)
}

// applyFile sets one flag from what the file says, if it does.
func (c *config) applyFile(f *pflag.Flag, v *viper.Viper) error {
	key := viperKey(f)
	if sectionOf(f) == "" || !c.file.has(key) {
		return nil
	}
	var err error
	if items, several := v.Get(key).([]string); several {
		err = f.Value.(listValue).add(items)
	} else {
		err = f.Value.Set(v.GetString(key))
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", c.file.at(key), fileKey(f.Name), err)
	}
	return refuseBlank(f, c.file.at(key)+": "+fileKey(f.Name))
}

func newViper() *viper.Viper {
	v := viper.NewWithOptions(viper.KeyDelimiter(keyDelimiter))
	v.SetConfigType("yaml")
	return v
}

// values hands to viper what is written in the file, as it is written: YAML would make 8 of 010, and a point in time of 2024-01-01, where flags
// and variables do not. The environment wins over it.
func (f *configFile) values() *viper.Viper {
	v := newViper()
	for key, value := range f.written {
		v.SetDefault(key, value)
	}
	return v
}

// findConfigFile reads the file named by --config or its environment variable, or else the first one that exists in the
// usual places. The working directory is not one of them: a file there may be anybody's. A place that may not be looked into
// has no file for whoever runs this, as with HOME=/root after a change of user; a file that is there and cannot be read is an error.
func findConfigFile(fs *pflag.FlagSet) (*configFile, error) {
	path := os.Getenv(envName("config"))
	if f := fs.Lookup("config"); f != nil && f.Changed {
		path = f.Value.String()
		if strings.TrimSpace(path) == "" {
			return nil, errors.New("--config is blank; name a file, or none")
		}
	}
	switch path {
	case "none":
		return nil, nil
	case "":
		for _, path := range configPaths() {
			if _, err := os.Lstat(path); err == nil {
				return readConfigFile(path)
			}
		}
		return nil, nil
	}
	return readConfigFile(path)
}

func configPaths() []string { return configPathsOn(runtime.GOOS) }

// configPathsOn are the usual places on a system. Windows has none for the machine: there, anybody may make a folder where
// programs would look for one.
func configPathsOn(system string) []string {
	dir := os.Getenv("XDG_CONFIG_HOME")
	switch {
	case dir != "":
	case system == "windows":
		dir = os.Getenv("AppData")
	case os.Getenv("HOME") != "":
		dir = filepath.Join(os.Getenv("HOME"), ".config")
	}
	var paths []string
	if dir != "" {
		paths = append(paths, filepath.Join(dir, "tinybroker", "config.yaml"))
	}
	if system != "windows" {
		paths = append(paths, "/etc/tinybroker/config.yaml")
	}
	return paths
}
