package command

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/encode/onnxruntime"
	"github.com/plaid-ir/plaid/index"
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
	Tags          []string `json:"tags"`
	Cgo           bool     `json:"cgo"`
	FormatVersion int      `json:"format_version"`
	Backends      []string `json:"backends"`

	// Devices are the kinds of devices that this build supports, with the names of their device
	// code.
	Devices  map[string][]string `json:"devices"`
	Encoders []string            `json:"encoders"`
}

// buildVersion reads the information that the linker has stored.
func (a *app) buildVersion() version {
	v := version{
		Version:       index.Version(),
		Go:            runtime.Version(),
		Platform:      runtime.GOOS + "/" + runtime.GOARCH,
		Tags:          []string{},
		FormatVersion: storage.FormatVersion,
		Backends:      kernels.Backends(),
		Devices:       kernels.DeviceCode(),
		Encoders:      []string{"native", "remote"},
	}
	if onnxruntime.BuiltIn {
		v.Encoders = append(v.Encoders, "onnxruntime")
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		case "CGO_ENABLED":
			v.Cgo = s.Value == "1"
		case "-tags":
			v.Tags = strings.Split(s.Value, ",")
		}
	}
	return v
}

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version of the program",
		Long: `
Show the version of the program, the commit and the tags that it was built from, the
versions of Go and of the index format, and the kernels, device code and encoders of
this build.`,
		Example: `  plaid version --json`,
		Args:    namedArgs(),
	}
	cmd.Flags().Bool("json", false, "print the version as JSON")
	cmd.RunE = a.commandFunc(func(context.Context, []string) error {
		v := a.buildVersion()
		return a.report(v, func(b *bytes.Buffer) {
			fmt.Fprintf(b, "plaid %s\n", v.Version)
			if v.Revision != "" {
				changed := ""
				if v.Modified {
					changed = ", with local changes"
				}
				fmt.Fprintf(b, "revision: %s of %s%s\n", v.Revision, v.Time, changed)
			}
			tags := ""
			if len(v.Tags) > 0 {
				tags = ", tags " + strings.Join(v.Tags, " ")
			}
			fmt.Fprintf(b, "built with %s for %s%s; index format %d\n", v.Go, v.Platform, tags, v.FormatVersion)
			fmt.Fprintf(b, "kernels: %s\n", strings.Join(v.Backends, ", "))
			if len(v.Devices) == 0 {
				fmt.Fprintln(b, "devices: none are built in")
			}
			for _, kind := range slices.Sorted(maps.Keys(v.Devices)) {
				fmt.Fprintf(b, "devices: %s, %d modules of device code\n", kind, len(v.Devices[kind]))
			}
			fmt.Fprintf(b, "encoders: %s\n", strings.Join(v.Encoders, ", "))
		})
	})
	return cmd
}
