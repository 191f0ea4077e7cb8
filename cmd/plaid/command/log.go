package command

import (
	"log/slog"
	"time"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/cli/out"
)

// logger writes to stderr with --verbose, nowhere without.
func (a *app) logger() *slog.Logger {
	if !a.verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(a.console, nil))
}

// progress is where long operations report to: the status line, and with --verbose
// the log, which gets a line for each stage. It is nil where nobody looks.
func (a *app) progress() func(index.Progress) {
	var show func(index.Progress)
	if !a.quiet {
		show = out.Progress(a.console, a.now)
	}
	if !a.verbose {
		return show
	}
	a.stages.log, a.stages.now = a.logger(), a.now
	return func(p index.Progress) {
		a.stages.report(p)
		if show != nil {
			show(p)
		}
	}
}

// stages logs the stages of a long operation as they end.
type stages struct {
	log   *slog.Logger
	now   func() time.Time
	last  index.Progress
	begin time.Time
}

func (s *stages) report(p index.Progress) {
	if p.Stage != s.last.Stage {
		s.end()
		s.begin = s.now()
	}
	s.last = p
}

// end logs the last stage.
func (s *stages) end() {
	if s.last.Stage == "" {
		return
	}
	args := []any{"stage", s.last.Stage, "took", round(s.now().Sub(s.begin))}
	if s.last.Unit != "" {
		args = append(args, s.last.Unit, s.last.Done)
	}
	s.log.Info("stage done", args...)
	s.last = index.Progress{}
}

// logOpened logs what has been opened.
func (a *app) logOpened(ix *index.Index, took time.Duration) error {
	snap, err := ix.Snapshot()
	if err != nil {
		return err
	}
	a.logger().Info("index opened", "path", ix.Path(), "documents", snap.Len(), "tokens", snap.State().LiveTokens, "kernels", ix.Backend(), "took", round(took))
	return snap.Close()
}

// round leaves what is worth reading of a time.
func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
