package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/encode/hub"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/files"
)

// streams are the standard streams of the process. A width is the number of columns of a terminal,
// or 0 for anything else.
type streams struct {
	in                 io.Reader
	out, err           io.Writer
	outWidth, errWidth int
	// resized returns the current width of stderr. Nil means that it does not change.
	resized func() int
	// interactive reports whether a user at a terminal can be asked.
	interactive bool
	// now returns the time. Nil means [time.Now].
	now func() time.Time
}

// stdio is where one run of the program reads and writes.
type stdio struct {
	streams
	console *out.Console
	// stdout is the original stdout; streams.out erases the status line first.
	stdout io.Writer
	// name is the name of the command.
	name string
	args []string
	// json reports whether --json is among args.
	json bool

	quiet, verbose bool // global flags --quiet and --verbose
	stages         stages
}

// colours returns the colours of stdout. A terminal has colours unless NO_COLOR
// (https://no-color.org) is set; anything else has them if CLICOLOR_FORCE is set.
func (t *stdio) colours() out.Colours {
	force := os.Getenv("CLICOLOR_FORCE")
	switch {
	case os.Getenv("NO_COLOR") != "":
		return out.Colours{}
	case force != "" && force != "0":
		return out.Colours{On: true}
	case t.outWidth == 0 || os.Getenv("TERM") == "dumb":
		return out.Colours{}
	}
	// Consoles of Windows that show colours set one of these variables.
	return out.Colours{On: runtime.GOOS != "windows" || os.Getenv("WT_SESSION")+os.Getenv("TERM") != ""}
}

// printWarning writes a warning to stderr, unless --quiet is given.
func (t *stdio) printWarning(format string, args ...any) {
	if !t.quiet {
		fmt.Fprintf(t.console, "plaid: warning: %s\n", t.forTerminal(fmt.Sprintf(format, args...)))
	}
}

// printHint writes advice, or a decision of the program, to stderr, unless --quiet is given.
func (t *stdio) printHint(format string, args ...any) {
	if !t.quiet {
		fmt.Fprintf(t.console, "plaid: %s\n", t.forTerminal(fmt.Sprintf(format, args...)))
	}
}

// forTerminal makes a message safe for a terminal: names of files and documents in it may have any
// bytes and any length. Ends of lines stay, except within a name that was given as an argument.
func (t *stdio) forTerminal(msg string) string {
	for _, arg := range t.args {
		if strings.HasPrefix(arg, "-") {
			_, arg, _ = strings.Cut(arg, "=")
		}
		if strings.Contains(arg, "\n") {
			msg = strings.ReplaceAll(msg, arg, strings.ReplaceAll(arg, "\n", `\n`))
		}
	}
	const maxLineBytes = 2000
	var b strings.Builder
	for line := range strings.Lines(out.Escaped(msg)) {
		if excess := len(line) - maxLineBytes; excess > 0 {
			line = fmt.Sprintf("%s … (%d bytes left out) … %s", strings.ToValidUTF8(line[:maxLineBytes/2], ""),
				excess, strings.ToValidUTF8(line[len(line)-maxLineBytes/2:], ""))
		}
		b.WriteString(line)
	}
	return b.String()
}

// warner returns a logger that prints the warnings of libraries as warnings of the program.
func (t *stdio) warner() *slog.Logger { return slog.New(warnHandler{t}) }

// warnHandler is the handler of [stdio.warner].
type warnHandler struct{ stdio *stdio }

func (h warnHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (h warnHandler) WithAttrs([]slog.Attr) slog.Handler           { return h }
func (h warnHandler) WithGroup(string) slog.Handler                { return h }

func (h warnHandler) Handle(_ context.Context, r slog.Record) error {
	h.stdio.printWarning("%s", r.Message)
	return nil
}

// writeOutput writes a result to stdout in one call.
func (t *stdio) writeOutput(text []byte) error {
	if _, err := t.out.Write(text); err != nil {
		return fmt.Errorf("%w: %w", errOutput, err)
	}
	return nil
}

// errOutput reports that a command has done its work, but could not write its report.
var errOutput = errors.New("writing the result")

// report prints v as a line of JSON with --json, or else the text that text writes.
func (t *stdio) report(v any, text func(b *bytes.Buffer)) error {
	return t.reportTyped(t.name, v, text)
}

// reportTyped is report for JSON whose type is not the name of the command.
func (t *stdio) reportTyped(kind string, v any, text func(b *bytes.Buffer)) error {
	if t.json {
		line, err := out.TypedJSONLine(kind, v)
		if err != nil {
			return err
		}
		return t.writeOutput(line)
	}
	var b bytes.Buffer
	text(&b)
	return t.writeOutput([]byte(out.Escaped(b.String())))
}

// reportFormatted prints v as JSON or as a table, as --format says.
func (t *stdio) reportFormatted(format *flags.Format, v any, table func() []byte) error {
	if format.Word() != "json" {
		return t.writeOutput(table())
	}
	line, err := out.TypedJSONLine(t.name, v)
	if err != nil {
		return err
	}
	return t.writeOutput(line)
}

// reportColoured is report for a text with colours. The caller has cleaned the parts that come from
// elsewhere.
func (t *stdio) reportColoured(v any, text func(b *bytes.Buffer)) error {
	if t.json {
		return t.reportTyped(t.name, v, text)
	}
	var b bytes.Buffer
	text(&b)
	return t.writeOutput(b.Bytes())
}

// logger returns a logger that writes to stderr with --verbose, and discards records without.
func (t *stdio) logger() *slog.Logger {
	if !t.verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(t.console, nil))
}

// progress returns the function that long operations report to: it updates the status line, and
// with --verbose logs each stage. It returns nil if neither is wanted.
func (t *stdio) progress() func(index.Progress) {
	var show func(index.Progress)
	if !t.quiet {
		show = out.Progress(t.console, t.now)
	}
	if !t.verbose {
		return show
	}
	t.stages.log, t.stages.now = t.logger(), t.now
	return func(p index.Progress) {
		t.stages.report(p)
		if show != nil {
			show(p)
		}
	}
}

// modelHub returns the hub of models that are given by name. It shows the progress of downloads.
func (t *stdio) modelHub() *hub.Hub {
	var report func(hub.Progress)
	if show := t.progress(); show != nil {
		report = func(p hub.Progress) {
			show(index.Progress{
				Stage: "fetch " + p.File,
				Done:  p.Done,
				Total: p.Total,
				Unit:  out.UnitBytes,
			})
		}
	}
	log := t.logger()
	if !t.verbose {
		log = t.warner()
	}
	return hub.FromEnv().WithLogger(log, report)
}

// stages logs the stages of a long operation when they end.
type stages struct {
	log        *slog.Logger
	now        func() time.Time
	last       index.Progress
	stageBegan time.Time
}

// report logs the last stage when another one begins.
func (s *stages) report(p index.Progress) {
	if p.Stage != s.last.Stage {
		s.logLast()
		s.stageBegan = s.now()
	}
	s.last = p
}

// logLast logs the last stage.
func (s *stages) logLast() {
	if s.last.Stage == "" {
		return
	}
	args := []any{"stage", s.last.Stage, "took", roundDuration(s.now().Sub(s.stageBegan))}
	if s.last.Unit != "" {
		args = append(args, s.last.Unit, s.last.Done)
	}
	s.log.Info("stage done", args...)
	s.last = index.Progress{}
}

// logOpened logs the indexes that were opened.
func (t *stdio) logOpened(took time.Duration, files ...*index.Index) error {
	if !t.verbose {
		return nil
	}
	for _, ix := range files {
		snap, err := ix.Snapshot()
		if err != nil {
			return err
		}
		t.logger().Info("index opened", "path", ix.Path(), "documents", snap.Documents(), "passages",
			snap.State().Passages,
			"tokens", snap.State().LiveTokens, "kernels", ix.Backend(), "took", roundDuration(took))
		if err := snap.Close(); err != nil {
			return err
		}
	}
	return nil
}

// roundDuration rounds a time to the digits that are worth reading.
func roundDuration(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// writeFile writes a file that appears when it is complete; flag is its flag, for errors. It never
// overwrites the index. A path that stands for stdout is written to directly: a new file in its
// place would lose the rest of the output.
func (t *stdio) writeFile(ctx context.Context, flag, path, index string, fill func(io.Writer) error) error {
	if t.isStdout(path) {
		return fill(t.out)
	}
	err := files.WriteAtomic(ctx, path, fill, index)
	if errors.Is(err, files.ErrOutputIsInput) {
		return flags.Usagef("--%s names the index itself", flag)
	}
	return err
}

// checkOutput returns an error if a file cannot be written. It is called before long work, so that
// the result is not lost at the end.
func (t *stdio) checkOutput(flag, path string) error {
	if path == "" || t.isStdout(path) {
		return nil
	}
	if err := files.CanCreate(path); err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	return nil
}

// isStdout reports whether a path, such as /dev/stdout, is the program's stdout.
func (t *stdio) isStdout(path string) bool {
	stdout, ok := t.stdout.(*os.File)
	if !ok {
		return false
	}
	pathInfo, err := os.Stat(path)
	if err != nil {
		return false
	}
	info, err := stdout.Stat()
	return err == nil && os.SameFile(pathInfo, info)
}
