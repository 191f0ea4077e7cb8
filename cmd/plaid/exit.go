package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
)

// Exit codes.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitPartial     = 3
	exitNotFound    = 4
	exitCorrupt     = 5
	exitLocked      = 6
	exitInterrupted = 130
)

// exitTable describes the exit codes: the EXIT STATUS section of every help.
var exitTable = []struct {
	code int
	what string
}{
	{exitOK, "done"},
	{exitFailed, "failed: bad input, a full disk, a file that is no index or is there already"},
	{exitUsage, "usage: unknown command, bad flag or value, argument missing"},
	{exitPartial, "done in part: some of the documents to delete are not there"},
	{exitNotFound, "not found: a file, a document or a query"},
	{exitCorrupt, "the index is corrupt"},
	{exitLocked, "the index is locked by another process (see --lock-timeout)"},
	{exitInterrupted, "interrupted (SIGINT, SIGTERM); nothing was changed"},
}

var (
	errPartial  = errors.New("done in part")
	errNotFound = errors.New("not found")
)

// usageError is a command line that cannot be carried out.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitCode is the exit code of an error. Where an error wraps several reasons
// the first of the list decides.
func exitCode(err error) int {
	is := func(targets ...error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case is(context.Canceled):
		return exitInterrupted
	case errors.As(err, &usage), is(index.ErrOption, search.ErrOption, kernels.ErrUnavailable):
		return exitUsage
	case is(errPartial):
		return exitPartial
	case is(storage.ErrCorrupt):
		return exitCorrupt
	case is(storage.ErrLocked):
		return exitLocked
	case is(errNotFound, fs.ErrNotExist, index.ErrNotFound, search.ErrUnknownID):
		return exitNotFound
	}
	return exitFailed
}

// withExitStatus adds the EXIT STATUS section to the help of a command.
func withExitStatus(long string) string {
	var b strings.Builder
	b.WriteString(strings.TrimSpace(long))
	b.WriteString("\n\nEXIT STATUS\n")
	for _, e := range exitTable {
		fmt.Fprintf(&b, "  %-4d %s\n", e.code, e.what)
	}
	return strings.TrimRight(b.String(), "\n")
}
