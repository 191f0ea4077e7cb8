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

// starterFlags holds the flags of a command that another program starts for its own use. The
// program holds the other end of the command's stdin, a pipe, which is closed however the program
// ends.
type starterFlags struct {
	untilEOF bool
	// temporary is a folder that is removed, with all its content, after the program has ended; ""
	// means none.
	temporary   string
	programLeft atomic.Bool
}

// register adds the flags. process is the word for the command's work in their help, such as build.
func (s *starterFlags) register(f *pflag.FlagSet, process string) {
	f.BoolVar(&s.untilEOF, "until-eof", false, "end in order when stdin ends; nothing else is read from stdin")
	f.StringVar(&s.temporary, "temporary", "",
		"`DIR` to remove, with its content, after the end of stdin (--until-eof) has ended the "+process)
}

// checkFlags returns an error for flags that do not go together.
func (s *starterFlags) checkFlags() error {
	if s.temporary != "" && !s.untilEOF {
		return flags.UsageError{Err: errors.New("--temporary goes with --until-eof")}
	}
	return nil
}

// watchStdin calls cancel when the program has ended. The program's other pipes are closed then,
// and writing to them must not kill this process before it has cleaned up.
func (s *starterFlags) watchStdin(a *app, cancel func()) {
	if !s.untilEOF {
		return
	}
	signal.Ignore(syscall.SIGPIPE)
	stdin := a.in
	a.in = unreadableStdin{}
	go func() { // may run until the process ends: a read of a terminal cannot be cancelled
		defer cancel()
		_, _ = io.Copy(io.Discard, stdin)
		s.programLeft.Store(true)
	}()
}

// removeTemporary removes the temporary folder if the program has ended, and returns err joined
// with the error of that.
func (s *starterFlags) removeTemporary(err error) error {
	if !s.programLeft.Load() || s.temporary == "" {
		return err
	}
	return errors.Join(err, os.RemoveAll(s.temporary))
}

// run runs a command until it finishes or the program ends.
func (s *starterFlags) run(ctx context.Context, a *app, command func(ctx context.Context) error) error {
	if err := s.checkFlags(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.watchStdin(a, cancel)
	return s.removeTemporary(command(ctx))
}

// unreadableStdin takes the place of stdin while the command waits for its end.
type unreadableStdin struct{}

// Read implements [io.Reader]. It always fails.
func (unreadableStdin) Read([]byte) (int, error) {
	return 0, flags.Usagef("stdin cannot be read: --until-eof waits for its end")
}
