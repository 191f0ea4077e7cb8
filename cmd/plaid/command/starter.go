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

// starterFlags are the flags of a command that a program starts for itself. It holds the other end of the
// command's stdin, a pipe, which closes however that program ends.
type starterFlags struct {
	untilEOF    bool
	temporary   string // removed with all that is in it after the program has left; "": nothing
	programLeft atomic.Bool
}

func (s *starterFlags) register(f *pflag.FlagSet, what string) {
	f.BoolVar(&s.untilEOF, "until-eof", false, "end in order when stdin ends, which is otherwise not read")
	f.StringVar(&s.temporary, "temporary", "",
		"`DIR` that is removed with all that is in it when stdin has ended (--until-eof) and the "+what+" with it")
}

func (s *starterFlags) checkFlags() error {
	if s.temporary != "" && !s.untilEOF {
		return flags.UsageError{Err: errors.New("--temporary is for --until-eof")}
	}
	return nil
}

// watchStdin calls end when the program has left. Its other pipes are closed then: writing to them is no
// reason to end without tidying up.
func (s *starterFlags) watchStdin(a *app, cancel func()) {
	if !s.untilEOF {
		return
	}
	signal.Ignore(syscall.SIGPIPE)
	stdin := a.in
	a.in = unreadableStdin{}
	go func() { // until the process ends: a read of a terminal cannot be given up
		defer cancel()
		_, _ = io.Copy(io.Discard, stdin)
		s.programLeft.Store(true)
	}()
}

// removeTemporary removes the temporary folder of a program that has left.
func (s *starterFlags) removeTemporary(err error) error {
	if !s.programLeft.Load() || s.temporary == "" {
		return err
	}
	return errors.Join(err, os.RemoveAll(s.temporary))
}

// run runs a command until it is finished, or the program has left.
func (s *starterFlags) run(ctx context.Context, a *app, command func(ctx context.Context) error) error {
	if err := s.checkFlags(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.watchStdin(a, cancel)
	return s.removeTemporary(command(ctx))
}

// unreadableStdin is stdin while its end is waited for.
type unreadableStdin struct{}

// Read implements io.Reader.
func (unreadableStdin) Read([]byte) (int, error) {
	return 0, flags.Usagef("stdin cannot be read: its end is the end of the command (--until-eof)")
}
