package flags

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/index"
)

// Resources are the flags for how much of the machine a command may take.
type Resources struct {
	Threads int
	Memory  int64
}

// Register adds the flags.
func (r *Resources) Register(f *pflag.FlagSet) {
	Threads(f, &r.Threads, 0)
	f.Var(Size(&r.Memory, index.DefaultMemory), "memory", "budget for buffers, such as 512MiB or 2GB; a soft limit")
}

// LimitMemory makes the garbage collector work towards the budget. The function that
// it returns lifts the limit. A lower one in GOMEMLIMIT stays.
func (r *Resources) LimitMemory() (lift func()) {
	old := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(old, r.Memory))
	return func() { debug.SetMemoryLimit(old) }
}

// Threads adds the flag for the number of goroutines.
func Threads(f *pflag.FlagSet, p *int, def int) {
	f.Var(Int(p, def, 0), "threads", "goroutines (0: one a processor)")
}

// Device are the flags that choose the device that computes.
type Device struct{ Name string }

// RegisterSearching adds the flag for commands that search on the device.
func (d *Device) RegisterSearching(f *pflag.FlagSet) {
	d.register(f, "to compute on", "several with commas, or cuda:all, share the queries, or the files of a set")
}

// Register adds the flag for commands that compute something else on the device.
func (d *Device) Register(f *pflag.FlagSet) { d.register(f, "to compute on", "several with commas") }

// RegisterEncoding adds the flag for commands that only encode on the device.
func (d *Device) RegisterEncoding(f *pflag.FlagSet) {
	d.register(f, "that encodes texts", "several with commas")
}

func (d *Device) register(f *pflag.FlagSet, purpose, severalDevices string) {
	f.StringVar(&d.Name, "device", "", "`NAME` of the device "+purpose+
		": cpu, cuda:0 and so on, or auto for a GPU if there is one; "+severalDevices+
		" (default: PLAID_DEVICE, or cpu; plaid info --devices lists them)")
}

// Format are the flags for the form of results: --format, and --json for the one
// of its words that is JSON. They exclude each other.
type Format struct {
	word   string
	json   string // the word that --json stands for
	asJSON bool
}

// Register adds the flags to a command; what says what is printed. The first word
// is the default, one that begins with json is what --json stands for.
func (o *Format) Register(cmd *cobra.Command, what string, words ...string) {
	for _, w := range words {
		if strings.HasPrefix(w, "json") {
			o.json = w
		}
	}
	cmd.Flags().Var(Choice(&o.word, words[0], words...), "format", "how to print "+what)
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "the same as --format "+o.json+", and errors as JSON")
	cmd.MarkFlagsMutuallyExclusive("json", "format")
}

// Word is the form that was chosen.
func (o *Format) Word() string {
	if o.asJSON {
		return o.json
	}
	return o.word
}

// UsageError is a command line that cannot be carried out.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }
func (e UsageError) Unwrap() error { return e.Err }

// Usagef makes a [UsageError].
func Usagef(format string, args ...any) error { return UsageError{Err: fmt.Errorf(format, args...)} }
