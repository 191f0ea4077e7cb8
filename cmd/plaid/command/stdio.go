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

// streams are the ends of the command line. A width is the number of columns
// of a terminal, 0 for anything else.
type streams struct {
	in                 io.Reader
	out, err           io.Writer
	outWidth, errWidth int
	resized            func() int       // the width of stderr now; nil: it stays as it is
	interactive        bool             // somebody at a terminal can be asked
	now                func() time.Time // nil: time.Now
}

// stdio is where one run of the program reads and writes.
type stdio struct {
	streams
	console *out.Console
	stdout  io.Writer // as it came; streams.out takes progress off the screen first
	name    string    // of the command
	args    []string
	json    bool // --json is among them

	quiet, verbose bool // global flags
	stages         stages
}

// colours are those of stdout: of a terminal, unless NO_COLOR (https://no-color.org) is set, and
// of anything else where CLICOLOR_FORCE is.
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
	// The console of Windows understands colours where one of these is set.
	return out.Colours{On: runtime.GOOS != "windows" || os.Getenv("WT_SESSION")+os.Getenv("TERM") != ""}
}

// printWarning writes a line to stderr unless --quiet.
func (t *stdio) printWarning(format string, args ...any) {
	if !t.quiet {
		fmt.Fprintf(t.console, "plaid: warning: %s\n", t.forTerminal(fmt.Sprintf(format, args...)))
	}
}

// printHint writes what may help after an error, or what was decided, to stderr unless --quiet.
func (t *stdio) printHint(format string, args ...any) {
	if !t.quiet {
		fmt.Fprintf(t.console, "plaid: %s\n", t.forTerminal(fmt.Sprintf(format, args...)))
	}
}

// forTerminal makes a message fit for a terminal: the names of files and documents in
// it may be of any bytes and any length. Lines stay lines, except within a name
// that was given as an argument.
func (t *stdio) forTerminal(msg string) string {
	for _, arg := range t.args {
		if strings.HasPrefix(arg, "-") {
			_, arg, _ = strings.Cut(arg, "=")
		}
		if strings.Contains(arg, "\n") {
			msg = strings.ReplaceAll(msg, arg, strings.ReplaceAll(arg, "\n", `\n`))
		}
	}
	const maxLineBytes = 2000 // bytes of a line
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

// warner prints warnings of libraries as the program prints its own.
func (t *stdio) warner() *slog.Logger { return slog.New(warnHandler{t}) }

type warnHandler struct{ t *stdio }

func (h warnHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (h warnHandler) WithAttrs([]slog.Attr) slog.Handler           { return h }
func (h warnHandler) WithGroup(string) slog.Handler                { return h }

func (h warnHandler) Handle(_ context.Context, r slog.Record) error {
	h.t.printWarning("%s", r.Message)
	return nil
}

// writeOutput writes a result to stdout in one go.
func (t *stdio) writeOutput(text []byte) error {
	if _, err := t.out.Write(text); err != nil {
		return fmt.Errorf("%w: %w", errOutput, err)
	}
	return nil
}

// errOutput: what a command was to do is done, and its report could not be written.
var errOutput = errors.New("writing the result")

// report prints v as a line of JSON with --json, else what text writes.
func (t *stdio) report(v any, text func(b *bytes.Buffer)) error {
	return t.reportTyped(t.name, v, text)
}

// reportTyped is report for a type of JSON that has another name than the command.
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

// reportFormatted is report in the form that --format names.
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

// reportColoured is report of a text that has colours: what it has of others is clean.
func (t *stdio) reportColoured(v any, text func(b *bytes.Buffer)) error {
	if t.json {
		return t.reportTyped(t.name, v, text)
	}
	var b bytes.Buffer
	text(&b)
	return t.writeOutput(b.Bytes())
}

// logger writes to stderr with --verbose, nowhere without.
func (t *stdio) logger() *slog.Logger {
	if !t.verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(t.console, nil))
}

// progress is where long operations report to: the status line, and with --verbose
// the log, which gets a line for each stage. It is nil where nobody looks.
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

// modelHub is the hub of models that are given by name. Its downloads are shown as other progress is.
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
	return hub.FromEnv().With(log, report)
}

// stages logs the stages of a long operation as they end.
type stages struct {
	log        *slog.Logger
	now        func() time.Time
	last       index.Progress
	stageBegan time.Time
}

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

// logOpened logs what has been opened.
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

// roundDuration leaves what is worth reading of a time.
func roundDuration(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// writeFile writes a file that appears when it is complete; flag names it in an
// error. The index is never overwritten. What names the program's stdout goes
// there: to put a new file in its place would take the rest of the output away.
func (t *stdio) writeFile(ctx context.Context, flag, path, index string, fill func(io.Writer) error) error {
	if t.isStdout(path) {
		return fill(t.out)
	}
	err := files.WriteAtomic(ctx, path, fill, index)
	if errors.Is(err, files.ErrSame) {
		return flags.Usagef("--%s names the index itself", flag)
	}
	return err
}

// checkOutput finds out whether a file can be written before there is anything to
// write, so that nobody waits for a result that is lost then.
func (t *stdio) checkOutput(flag, path string) error {
	if path == "" || t.isStdout(path) {
		return nil
	}
	if err := files.CanCreate(path); err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	return nil
}

// isStdout tells whether a path, such as /dev/stdout, is where results go.
func (t *stdio) isStdout(path string) bool {
	stdout, ok := t.stdout.(*os.File)
	if !ok {
		return false
	}
	named, err := os.Stat(path)
	if err != nil {
		return false
	}
	info, err := stdout.Stat()
	return err == nil && os.SameFile(named, info)
}
