// Package command implements the command line of plaid, with one file for each command. The program
// plaid consists of one call of [Main].
package command

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

// Main runs the command line of this process and returns its exit code. The first SIGINT or SIGTERM
// stops it cleanly, the second ends it at once.
func Main() int {
	ignoreSizeLimit()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	return run(ctx, os.Args[1:], streams{
		in:          os.Stdin,
		out:         os.Stdout,
		err:         os.Stderr,
		outWidth:    terminalWidth(os.Stdout),
		errWidth:    terminalWidth(os.Stderr),
		resized:     func() int { return terminalWidth(os.Stderr) },
		interactive: terminalWidth(os.Stdin) > 0 && terminalWidth(os.Stderr) > 0,
	})
}

// terminalWidth returns the number of columns of a terminal, or 0 if the file is not a terminal.
func terminalWidth(f *os.File) int {
	fd := int(f.Fd())
	if !term.IsTerminal(fd) {
		return 0
	}
	if w, _, err := term.GetSize(fd); err == nil && w > 0 {
		return w
	}
	return 80
}
