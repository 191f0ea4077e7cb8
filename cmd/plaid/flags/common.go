package flags

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/index"
)

// Resources holds the flags that bound the processors and the memory that a command uses.
type Resources struct {
	Threads int
	Memory  int64
}

// Register adds the flags to f.
func (r *Resources) Register(f *pflag.FlagSet) {
	Threads(f, &r.Threads, 0)
	f.Var(Size(&r.Memory, index.DefaultMemory), "memory", "budget for buffers, such as 512MiB or 2GB; a soft limit")
}

// LimitMemory makes the garbage collector work towards the budget of --memory; a lower limit in
// GOMEMLIMIT stays in force. lift restores the limit that was in force before.
func (r *Resources) LimitMemory() (lift func()) {
	old := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(old, r.Memory))
	return func() { debug.SetMemoryLimit(old) }
}

// Threads adds the flag for the number of goroutines. 0 means one for each processor.
func Threads(f *pflag.FlagSet, p *int, def int) {
	f.Var(Int(p, def, 0), "threads", "goroutines (0: one for each processor)")
}

// Device holds the flag that chooses the device that computes.
type Device struct{ Name string }

// RegisterSearching adds the flag to a command that searches on the device.
func (d *Device) RegisterSearching(f *pflag.FlagSet) {
	d.register(f, "to compute on", "several with commas, or cuda:all, share the queries, or the files of an index")
}

// Register adds the flag to a command that computes something else on the device.
func (d *Device) Register(f *pflag.FlagSet) { d.register(f, "to compute on", "several with commas") }

// RegisterEncoding adds the flag to a command that only encodes on the device.
func (d *Device) RegisterEncoding(f *pflag.FlagSet) {
	d.register(f, "that encodes texts", "several with commas")
}

// register adds the flag. The help says what the device is for (purpose) and how several of them
// are used (severalDevices).
func (d *Device) register(f *pflag.FlagSet, purpose, severalDevices string) {
	f.StringVar(&d.Name, "device", "", "`NAME` of the device "+purpose+
		": cpu, cuda:0 and so on, or auto for a GPU if there is one; "+severalDevices+
		" (default: PLAID_DEVICE, or cpu; plaid info --devices lists them)")
}

// Format holds the flags for the form of results: --format, and --json, which stands for the JSON
// form among the words of --format. They exclude each other.
type Format struct {
	word string
	// json is the word that --json stands for.
	json   string
	asJSON bool
}

// Register adds the flags to a command; what names the things that are printed, for the help. The
// first word is the default, and --json stands for the word that begins with "json".
func (o *Format) Register(cmd *cobra.Command, things string, words ...string) {
	for _, w := range words {
		if strings.HasPrefix(w, "json") {
			o.json = w
		}
	}
	cmd.Flags().Var(Choice(&o.word, words[0], words...), "format", "how to print "+things)
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "the same as --format "+o.json+", with errors as JSON")
	cmd.MarkFlagsMutuallyExclusive("json", "format")
}

// Word returns the word of the chosen form.
func (o *Format) Word() string {
	if o.asJSON {
		return o.json
	}
	return o.word
}

// UsageError reports a command line that makes no sense. The command prints a pointer to its help
// and ends with exit code 2.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }
func (e UsageError) Unwrap() error { return e.Err }

// Usagef formats a [UsageError].
func Usagef(format string, args ...any) error { return UsageError{Err: fmt.Errorf(format, args...)} }
