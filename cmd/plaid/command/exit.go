package command

import (
	"context"
	"errors"
	"io/fs"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/journal"
	collections "github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/storage/objects"
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
	exitUnknown     = 7
	exitInterrupted = 130
)

// exitTable describes the exit codes, for plaid help exit and the manual page. Errors as JSON have
// the word of the code.
var exitTable = []struct {
	code              int
	word, description string
}{
	{exitOK, "done", "done"},
	{exitFailed, "failed", "failed: bad input, a full disk, a file that is not an index, or that exists already"},
	{exitUsage, "usage", "usage: unknown command, bad flag or value, argument or flag missing, a backend or " +
		"device that this machine does not have"},
	{exitPartial, "partial", "done in part: some of the documents to delete do not exist, not all could be " +
		"salvaged, or documents whose files have vanished were kept"},
	{exitNotFound, "not_found", "not found: a file, a document, a query, or an index of a store"},
	{exitCorrupt, "corrupt", "the index, or its log in a store, is corrupt"},
	{exitLocked, "locked", "the index is locked: another process has it open (see --lock-timeout)"},
	{exitUnknown, "unknown_outcome", "outcome unknown: the disk, or the store, failed in the last step of a " +
		"change, so that it was made or not: check with plaid info"},
	{exitInterrupted, "interrupted", "interrupted (SIGINT, SIGTERM); nothing was changed"},
}

// exitWord returns the word of an exit code.
func exitWord(code int) string {
	for _, e := range exitTable {
		if e.code == code {
			return e.word
		}
	}
	return ""
}

// Errors of commands that did a part of their work, or found nothing. They have exit codes of their own.
var (
	errPartial  = errors.New("done in part")
	errNotFound = errors.New("not found")
)

// explainedByInterrupt reports whether an error of an interrupted command is the interrupt and
// nothing else. A full disk stays a full disk, and an error that concerns the state of the index
// holds whatever ended the command.
func explainedByInterrupt(err error) bool {
	if !errors.Is(err, context.Canceled) {
		return false
	}
	for _, exception := range []error{storage.ErrOutcomeUnknown, files.ErrOutcomeUnknown, storage.ErrCorrupt,
		storage.ErrInternal} {
		if errors.Is(err, exception) {
			return false
		}
	}
	return true
}

// exitCode returns the exit code of an error. If an error wraps several reasons, the first case of
// the switch decides.
func exitCode(err error) int {
	isAny := func(targets ...error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}
	var usage flags.UsageError
	switch {
	case err == nil:
		return exitOK
	case isAny(storage.ErrOutcomeUnknown, files.ErrOutcomeUnknown, journal.ErrUnknown):
		return exitUnknown
	case isAny(storage.ErrCorrupt, journal.ErrFork, objects.ErrDamaged):
		return exitCorrupt
	case isAny(context.Canceled):
		return exitInterrupted
	case errors.As(err, &usage), isAny(index.ErrOption, search.ErrOption, kernels.ErrUnavailable,
		condition.ErrUnknownField,
		collection.ErrName, collection.ErrConfig, objects.ErrName):
		return exitUsage
	case isAny(errPartial):
		return exitPartial
	case isAny(storage.ErrLocked, collections.ErrLocked):
		return exitLocked
	case isAny(errNotFound, fs.ErrNotExist, index.ErrNotFound, search.ErrUnknownID, collection.ErrUnknown):
		return exitNotFound
	}
	return exitFailed
}
