package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker in releases: -X main.version=1.2.3.
var version string

// buildVersion is the release, or what the build knows of where it comes from.
func buildVersion() string {
	return versionFrom(version, debug.ReadBuildInfo)
}

func versionFrom(release string, build func() (*debug.BuildInfo, bool)) string {
	if release != "" {
		return release
	}
	info, ok := build()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	if revision == "" {
		return "devel"
	}
	return "devel-" + revision[:min(12, len(revision))] + dirty
}

func newVersionCmd(a *app) *cobra.Command {
	output := "text"
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Example: `  tinybroker version
  tinybroker version -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := map[string]string{
				"version": buildVersion(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
			}
			return a.report(cmd.Context(), func(w io.Writer) error {
				if output == "json" {
					return json.NewEncoder(w).Encode(v)
				}
				_, err := fmt.Fprintf(w, "tinybroker %s %s %s/%s\n", v["version"], v["go"], v["os"], v["arch"])
				return err
			})
		},
	}
	cmd.Flags().VarP(choice(&output, "text", "json"), "output", "o", "`format`: text or json")
	return cmd
}
