package command

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// version is what `plaid version --json` prints.
type version struct {
	Version       string   `json:"version"`
	Revision      string   `json:"revision,omitempty"`
	Time          string   `json:"time,omitempty"`
	Modified      bool     `json:"modified"`
	Go            string   `json:"go"`
	Platform      string   `json:"platform"`
	FormatVersion int      `json:"format_version"`
	Backends      []string `json:"backends"`
}

// buildVersion reads what the linker has noted.
func buildVersion() version {
	v := version{
		Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		FormatVersion: storage.FormatVersion, Backends: kernels.Backends(),
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version of the program",
		Long: withExitStatus(`
Show the version of the program, of Go and of the index format, and the kernels
that this build has.`),
		Example: `  plaid version --json`,
		Args:    takes(),
	}
	cmd.Flags().Bool("json", false, "print the version as JSON")
	cmd.RunE = a.command(func(context.Context, []string) error {
		v := buildVersion()
		return a.report(v, func(b *bytes.Buffer) {
			fmt.Fprintf(b, "plaid %s\n", v.Version)
			if v.Revision != "" {
				changed := ""
				if v.Modified {
					changed = ", with local changes"
				}
				fmt.Fprintf(b, "revision: %s of %s%s\n", v.Revision, v.Time, changed)
			}
			fmt.Fprintf(b, "built with %s for %s; index format %d; kernels: %v\n", v.Go, v.Platform, v.FormatVersion, v.Backends)
		})
	})
	return cmd
}
