package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/cli/flags"
	"github.com/plaid-ir/plaid/internal/cli/out"
	"github.com/plaid-ir/plaid/interop"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// streams are the ends of the command line. A width is the number of columns
// of a terminal, 0 for anything else.
type streams struct {
	in                 io.Reader
	out, err           io.Writer
	outWidth, errWidth int
	now                func() time.Time // nil: time.Now
}

// app is one run of the program.
type app struct {
	streams
	console *out.Console
	stdout  io.Writer // as it came; streams.out takes progress off the screen first
	name    string    // of the command

	// Global flags.
	quiet, verbose bool
	lockTimeout    time.Duration
	backend        string

	args       []string
	json       bool // --json is among them
	started    bool // the command line was understood
	stages     stages
	root       *cobra.Command
	extensions []Extension
}

// run carries out a command line and returns the exit code.
func run(ctx context.Context, args []string, s streams, extensions ...Extension) int {
	a := newApp(s, args)
	a.extensions = extensions
	a.json = wantsJSON(args)
	root := a.rootCommand()
	root.SetArgs(a.resolve(root, args))
	cmd, err := root.ExecuteContextC(ctx)
	a.stages.end()
	a.console.Clear()
	if err != nil && ctx.Err() != nil && explainedByInterrupt(err) {
		err = context.Canceled
	}
	if err != nil && !a.started {
		err = flags.UsageError{Err: err}
	}
	if err != nil {
		a.complain(cmd, err)
	}
	return a.exitCode(err)
}

// exitCode is that of the program, or of an extension for its own errors.
func (a *app) exitCode(err error) int {
	code := exitCode(err)
	for _, x := range a.extensions {
		if code == exitFailed && x.Exit != nil {
			if own := x.Exit(err); own != 0 {
				code = own
			}
		}
	}
	return code
}

func newApp(s streams, args []string) *app {
	a := &app{streams: s, stdout: s.out, args: args, console: out.NewConsole(s.err, s.errWidth)}
	a.out = a.console.Before(s.out)
	if a.now == nil {
		a.now = time.Now
	}
	return a
}

// wantsJSON looks for --json itself, since errors in the flags before it are
// to be JSON too.
func wantsJSON(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.Contains(args, "--json") || slices.Contains(args, "--json=true")
}

// complain writes an error to stderr, as a line of JSON with --json.
func (a *app) complain(cmd *cobra.Command, err error) {
	code := a.exitCode(err)
	msg := a.readable(err.Error())
	if code == exitInterrupted {
		msg = "interrupted"
	} else if more := advice(cmd, err); more != "" {
		msg += "; " + more
	}
	var fault *storage.PanicError
	errors.As(err, &fault)
	if a.json {
		line := struct {
			Error  string `json:"error"`
			Reason string `json:"reason"`
			Code   int    `json:"code"`
			Stack  string `json:"stack,omitempty"`
		}{Error: msg, Reason: exitWord(code), Code: code}
		if fault != nil {
			line.Stack = string(fault.Stack)
		}
		text, _ := out.Typed("error", line)
		_, _ = a.console.Write(text)
		return
	}
	for line := range strings.Lines(msg) {
		fmt.Fprintf(a.console, "plaid: %s\n", strings.TrimSuffix(line, "\n"))
	}
	if fault != nil {
		fmt.Fprintf(a.console, "plaid: this is a fault of plaid (%s), not of your files; please report it with what follows\n%s", index.Version(), fault.Stack)
	}
	var usage flags.UsageError
	if errors.As(err, &usage) {
		if near := nearest(cmd.Root(), msg); near != "" {
			fmt.Fprintf(a.console, "Did you mean '%s'?\n", near)
		}
		fmt.Fprintf(a.console, "Run '%s --help' for usage.\n", cmd.CommandPath())
	}
}

// advice is what a command line can do about an error of a library, which knows no
// flags.
func advice(cmd *cobra.Command, err error) string {
	has := func(flag string) bool { return cmd != nil && cmd.Flags().Lookup(flag) != nil }
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case has("force") && !cmd.Flags().Changed("force") && (is(storage.ErrExists) || is(storage.ErrNotIndex) && cmd.Name() == "backup"):
		return "--force replaces it"
	case is(index.ErrDuplicateID) && has("replace") && !cmd.Flags().Changed("replace"):
		return "--replace puts the new documents in the place of the old"
	case is(vectors.ErrSuffix) && has("input-format"):
		return "--input-format says how it is written"
	case is(encode.ErrSuffix) && has("text-format"):
		return "--text-format says how they are written"
	case is(storage.ErrLocked) && has("lock-timeout"):
		return "--lock-timeout waits for it"
	case is(fs.ErrNotExist) && missingModel(cmd, err):
		return "--model takes a folder; one of the Hugging Face hub has to be downloaded first (docs/encoder.md)"
	case is(interop.ErrUnsupported) && cmd != nil && cmd.Name() == "export":
		return "plaid index --scales none makes one without, from the original vectors or from those of plaid export --format npy"
	}
	return ""
}

// missingModel says whether an error is of a --model that is not there, and may be a
// name of the hub.
func missingModel(cmd *cobra.Command, err error) bool {
	if cmd == nil {
		return false
	}
	f := cmd.Flags().Lookup("model")
	if f == nil || !f.Changed || !strings.HasPrefix(err.Error(), f.Value.String()+": ") {
		return false
	}
	_, serr := os.Stat(f.Value.String())
	return errors.Is(serr, fs.ErrNotExist)
}

// warn writes a line to stderr unless --quiet.
func (a *app) warn(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintf(a.console, "plaid: warning: %s\n", a.readable(fmt.Sprintf(format, args...)))
	}
}

// hint writes what may help after an error to stderr unless --quiet.
func (a *app) hint(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintf(a.console, "plaid: %s\n", a.readable(fmt.Sprintf(format, args...)))
	}
}

// readable makes a message fit for a terminal: the names of files and documents in
// it may be of any bytes and any length. Lines stay lines, except within a name
// that was given as an argument.
func (a *app) readable(msg string) string {
	for _, arg := range a.args {
		if strings.HasPrefix(arg, "-") {
			_, arg, _ = strings.Cut(arg, "=")
		}
		if strings.Contains(arg, "\n") {
			msg = strings.ReplaceAll(msg, arg, strings.ReplaceAll(arg, "\n", `\n`))
		}
	}
	const most = 2000 // bytes of a line
	var b strings.Builder
	for line := range strings.Lines(out.Escaped(msg)) {
		if over := len(line) - most; over > 0 {
			line = fmt.Sprintf("%s … (%d bytes left out) … %s", strings.ToValidUTF8(line[:most/2], ""), over, strings.ToValidUTF8(line[len(line)-most/2:], ""))
		}
		b.WriteString(line)
	}
	return b.String()
}

// warner prints warnings of libraries as the program prints its own.
func (a *app) warner() *slog.Logger { return slog.New(warnHandler{a}) }

type warnHandler struct{ a *app }

func (h warnHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (h warnHandler) WithAttrs([]slog.Attr) slog.Handler           { return h }
func (h warnHandler) WithGroup(string) slog.Handler                { return h }

func (h warnHandler) Handle(_ context.Context, r slog.Record) error {
	h.a.warn("%s", r.Message)
	return nil
}

// command is a command whose errors are not those of its command line.
func (a *app) command(fn func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.started, a.name = true, cmd.Name()
		if err := a.checkBackend(); err != nil {
			return err
		}
		return fn(cmd.Context(), args)
	}
}

// withoutKernels are the commands that compute nothing with vectors of an index.
var withoutKernels = []string{"completion", "compare", "encode", "eval", "help", "man", "model", "version"}

// checkBackend refuses a --backend that is not there, or that would not be used.
func (a *app) checkBackend() error {
	switch {
	case a.backend == "":
		return nil
	case slices.Contains(withoutKernels, a.name):
		return flags.Usagef("--backend means nothing to plaid %s", a.name)
	}
	_, err := kernels.Select(a.backend)
	return err
}

// lockStep is how long an attempt to get a lock lasts at most, between looks
// at the context.
const lockStep = 200 * time.Millisecond

// locked calls op, which opens an index, until it gets the lock or
// --lock-timeout has passed.
func (a *app) locked(ctx context.Context, op func(wait time.Duration) error) error {
	deadline := time.Now().Add(a.lockTimeout)
	for first := true; ; first = false {
		left := time.Until(deadline)
		err := op(min(max(left, 0), lockStep))
		if err == nil || !errors.Is(err, storage.ErrLocked) || left <= 0 {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if first {
			a.logger().Info("waiting for the lock", "for", a.lockTimeout)
		}
	}
}

// open opens an index and hands it to use.
func (a *app) open(ctx context.Context, path string, write bool, use func(*index.Index) error) (err error) {
	var ix *index.Index
	begin := a.now()
	err = a.locked(ctx, func(wait time.Duration) (err error) {
		ix, err = index.Open(ctx, path, &index.Options{Write: write, LockTimeout: wait, Backend: a.backend, Logger: a.logger()})
		return err
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ix.Close()) }()
	if a.verbose {
		if err := a.logOpened(ix, a.now().Sub(begin)); err != nil {
			return err
		}
	}
	return use(ix)
}

// openSnapshot opens an index for reading and hands its content to use.
func (a *app) openSnapshot(ctx context.Context, path string, use func(*index.Index, *index.Snapshot) error) error {
	return a.open(ctx, path, false, func(ix *index.Index) (err error) {
		snap, err := ix.Snapshot()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, snap.Close()) }()
		return use(ix, snap)
	})
}

// print writes a result to stdout in one go.
func (a *app) print(text []byte) error {
	if _, err := a.out.Write(text); err != nil {
		return fmt.Errorf("%w: %w", errOutput, err)
	}
	return nil
}

// errOutput: what a command was to do is done, and its report could not be written.
var errOutput = errors.New("writing the result")

// line is v as a line of JSON, of the type that has the name of the command.
func (a *app) line(v any) ([]byte, error) { return out.Typed(a.name, v) }

// report prints v as a line of JSON with --json, else what text writes.
func (a *app) report(v any, text func(b *bytes.Buffer)) error { return a.reportAs(a.name, v, text) }

// reportAs is report for a type of JSON that has another name than the command.
func (a *app) reportAs(kind string, v any, text func(b *bytes.Buffer)) error {
	if a.json {
		line, err := out.Typed(kind, v)
		if err != nil {
			return err
		}
		return a.print(line)
	}
	var b bytes.Buffer
	text(&b)
	return a.print([]byte(out.Escaped(b.String())))
}

// takes wants as many arguments as names; a name that ends in … takes any
// number, also none.
func takes(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		for i, name := range names {
			if strings.HasSuffix(name, "…") {
				return nil
			}
			if i >= len(args) {
				return fmt.Errorf("%s is missing", name)
			}
		}
		if len(args) > len(names) {
			return fmt.Errorf("unexpected argument %q", args[len(names)])
		}
		return nil
	}
}
