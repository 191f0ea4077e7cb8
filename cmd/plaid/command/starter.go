package command

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
)

// starter are the flags of a command that a program starts for itself. It holds the other end of the
// command's stdin, a pipe, which closes however that program ends.
type starter struct {
	untilEOF  bool
	temporary string // removed with all that is in it after the program has left; "": nothing
	left      atomic.Bool
}

func (s *starter) register(f *pflag.FlagSet, what string) {
	f.BoolVar(&s.untilEOF, "until-eof", false, "end in order when stdin ends, which is otherwise not read")
	f.StringVar(&s.temporary, "temporary", "", "`DIR` that is removed with all that is in it when stdin has ended (--until-eof) and the "+what+" with it")
}

func (s *starter) check() error {
	if s.temporary != "" && !s.untilEOF {
		return flags.UsageError{Err: errors.New("--temporary is for --until-eof")}
	}
	return nil
}

// watch calls end when the program has left. Its other pipes are closed then: writing to them is no
// reason to end without tidying up.
func (s *starter) watch(a *app, end func()) {
	if !s.untilEOF {
		return
	}
	signal.Ignore(syscall.SIGPIPE)
	stdin := a.in
	a.in = watched{}
	go func() { // until the process ends: a read of a terminal cannot be given up
		defer end()
		_, _ = io.Copy(io.Discard, stdin)
		s.left.Store(true)
	}()
}

// tidy removes the temporary folder of a program that has left.
func (s *starter) tidy(err error) error {
	if !s.left.Load() || s.temporary == "" {
		return err
	}
	return errors.Join(err, os.RemoveAll(s.temporary))
}

// run runs a command until it is finished, or the program has left.
func (s *starter) run(ctx context.Context, a *app, command func(ctx context.Context) error) error {
	if err := s.check(); err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	s.watch(a, end)
	return s.tidy(command(ctx))
}

// watched is stdin while its end is waited for.
type watched struct{}

// Read implements io.Reader.
func (watched) Read([]byte) (int, error) {
	return 0, flags.Usagef("stdin cannot be read: its end is the end of the command (--until-eof)")
}
