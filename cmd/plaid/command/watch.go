package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/encode/folder"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
)

func (a *app) watchCommand() *cobra.Command {
	var s folderSync
	var encoder flags.Encoder
	var work flags.Resources
	var device flags.Device
	var once bool
	var window flags.Window
	cmd := &cobra.Command{
		Use:   "watch INDEX FOLDER",
		Short: "Keep an index in sync with a folder of files",
		Long: `
Keep an index in sync with the files of a folder: notes, documentation, source code. Only
new and changed files are encoded; documents of deleted files are deleted. The command
runs until you interrupt it, or, with --once, ends when the index matches the folder.

Text, Markdown, web pages, Jupyter notebooks and source code of common languages are
read, by the endings of their names, as plaid index --text FOLDER does. Skipped are names
that begin with a dot, files that git ignores, files larger than --max-file, and files
that are not valid UTF-8. Links are not followed. --verbose and --json list the skipped
files.

A file is a document, named by its path, and is split into passages. They keep the units
of the file whole: sections of Markdown, functions and other blocks of source code,
sentences of other texts. --window-by sets one unit for all files. A passage knows its
line: plaid search INDEX QUESTION --format grep prints path:line: text.

An index follows one folder. After you move the folder, use --moved once.

Documents are kept while the file system of their files is not mounted, and if all files
have vanished, or more than half of more than 4: such a run ends with exit code 3. If
these files were really deleted, use --allow-empty once.

All files are split again if --window or another setting of passages differs from that of
the index. Deletions and changes by other commands are reverted.

The index is open only while it is changed: other commands and plaid mcp can search it in
between. Changes wait while another process has it open.`,
		Example: `  plaid watch notes.plaid ~/notes --model ./models/colbert-nano
  plaid watch code.plaid . --model ./models/colbert-nano --once
  plaid search code.plaid 'where are locks taken?' --format grep`,
		Args: namedArgs("INDEX", "FOLDER"),
	}
	f := cmd.Flags()
	encoder.RegisterDocuments(f)
	work.Register(f)
	device.Register(f)
	window.Register(f, "by the kind of file", "as many as the model reads")
	f.Var(flags.Nbits(&s.build.Nbits), "nbits", "residual bits a component, for a new index")
	f.Var(flags.Size(&s.maxFileBytes, 1<<20), "max-file", "largest file to read")
	f.BoolVar(&s.moved, "moved", false, "the folder has moved since the index was made")
	f.BoolVar(&s.allowEmpty, "allow-empty", false,
		"in the first run, delete the documents of all vanished files, however many")
	f.BoolVar(&once, "once", false, "end when the index matches the folder")
	f.Bool("json", false, "print a report as JSON for each change")
	cmd.RunE = a.commandFunc(func(ctx context.Context, args []string) (err error) {
		defer work.LimitMemory()()
		if !f.Changed("lock-timeout") {
			a.lockTimeout = watchLockTimeout
		}
		s.app, s.path, s.root, s.device = a, args[0], args[1], folder.Device
		s.build.Threads, s.build.Memory, s.build.Logger = work.Threads, work.Memory, a.logger()
		model, err := a.indexModel(ctx, s.path)
		if err != nil {
			return err
		}
		opening := flags.Opening{IndexModel: model, Threads: work.Threads, OpenDevice: a.deviceOpener(&device)}
		if s.encoder, s.model, err = a.openEncoder(ctx, &encoder, s.path, opening); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.encoder.Close()) }()
		c := s.encoder.Config()
		if s.splitting, err = window.Splitting(&c, 0); err != nil {
			return err
		}
		if once {
			r, err := s.syncUntilStable(ctx)
			if err != nil {
				return err
			}
			if err := a.reportFolder(r); err != nil || r.keptReason == "" {
				return err
			}
			return fmt.Errorf("%w: %s", errPartial, r.keptReason)
		}
		return a.watchFolder(ctx, &s)
	})
	return cmd
}

// indexModel returns the model that an index names. It returns nil without an index or a model.
func (a *app) indexModel(ctx context.Context, path string) (m *storage.Model, err error) {
	err = a.openSnapshot(ctx, path, func(snap *index.Snapshot) error {
		m = snap.Header().Model
		return nil
	})
	if _, serr := os.Stat(path); errors.Is(serr, fs.ErrNotExist) {
		return nil, nil
	}
	return m, err
}

// reportFolder reports the changes of one sync of the folder.
func (a *app) reportFolder(r *folderReport) error {
	a.logSkipped(r.Passed, r.PassedFiles)
	return a.report(r, func(b *bytes.Buffer) {
		fmt.Fprintf(b, "%s: %s; %s added, %s changed, %s deleted, ", r.Path, out.Plural(r.Files, "file"),
			out.Count(r.Added), out.Count(r.Changed), out.Count(r.Deleted))
		if r.Kept > 0 {
			fmt.Fprintf(b, "%s gone but kept, ", out.Count(r.Kept))
		}
		fmt.Fprintf(b, "%s skipped; %s, %s in %s\n", out.Count(r.Passed), out.Documents(r.Docs, r.Passages),
			out.Plural(r.Tokens, "token"), out.Seconds(r.Seconds))
	})
}

// watchLockTimeout is how long a change waits for processes that read the index, without
// --lock-timeout.
const watchLockTimeout = 10 * time.Second

const (
	// quietPeriod is how long a folder must be without events before it is read, and maxQuietWait the
	// longest wait for that.
	quietPeriod  = 50 * time.Millisecond
	maxQuietWait = 500 * time.Millisecond
	// retryDelay is the pause after a change that failed.
	retryDelay = 2 * time.Second
	// pollInterval is the interval at which a folder is read that sends no events.
	pollInterval = time.Second
	// checkInterval is the interval at which the index and the mounts are checked, which send no
	// events.
	checkInterval = 2 * time.Second
)

// watchFolder brings the index up to date each time that something happens in the folder, until ctx
// ends.
func (a *app) watchFolder(ctx context.Context, s *folderSync) error {
	events, eventsErr := fsnotify.NewWatcher()
	poll := eventsErr != nil
	if eventsErr == nil {
		defer events.Close()
	} else {
		events = &fsnotify.Watcher{} // its nil channels never send
	}
	first := true
	wait := time.Duration(0) // 0 means until the next event
	lastError, lastKept := "", ""
	for {
		// Bring the index up to date, and watch each folder that is read.
		r, err := s.syncOnce(ctx, func(dir string) {
			if !poll {
				if err := events.Add(dir); err != nil && !errors.Is(err, fs.ErrNotExist) &&
					!errors.Is(err, fs.ErrPermission) {
					poll, eventsErr = true, err
				}
			}
		})
		switch {
		case ctx.Err() != nil:
			return nil // the user has ended the command
		case errors.Is(err, errNothingToIndex):
			if first {
				a.printHint("%v", err)
			}
			wait = 0
		case errors.Is(err, errMounted):
			wait = settledAge
		case errors.Is(err, errOtherFolder), errors.Is(err, errOtherCut),
			err != nil && first && !errors.Is(err, storage.ErrLocked):
			return err
		case err != nil:
			if text := err.Error(); text != lastError { // report the same error once
				lastError = text
				a.printWarning("%v; trying again", err)
			}
			wait = retryDelay
		default:
			lastError = ""
			if first || r.Added+r.Changed+r.Deleted > 0 || r.keptReason != lastKept {
				if err := a.reportFolder(r); err != nil {
					return err
				}
			}
			if r.keptReason != lastKept && r.keptReason != "" {
				a.printWarning("%s", r.keptReason)
			}
			lastKept = r.keptReason
			if wait = 0; r.syncAgain {
				wait = settledAge
			}
		}
		// Wait for the next change.
		if first && poll {
			a.printWarning("the system does not report changes in %s (%v): the folder is read every %v", s.root,
				eventsErr, pollInterval)
		}
		first = false
		if poll && (wait == 0 || wait > pollInterval) {
			wait = pollInterval
		}
		if !waitForChange(ctx, events, wait, s.disturbed) {
			return nil
		}
	}
}

// waitForChange waits until events have come and stopped, until wait has passed, if that is not 0,
// or until disturbed returns true. It returns false if ctx has ended.
func waitForChange(ctx context.Context, events *fsnotify.Watcher, wait time.Duration, disturbed func() bool) bool {
	var due <-chan time.Time      // after wait, or after quietPeriod without events
	var deadline <-chan time.Time // after maxQuietWait since the first event
	checks := time.NewTicker(checkInterval)
	defer checks.Stop()
	if wait > 0 {
		due = time.After(wait)
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-due:
			return true
		case <-deadline:
			return true
		case <-checks.C:
			if wait == 0 && disturbed() {
				return true
			}
		case <-events.Errors: // events were lost, but a sync reads the whole folder
			return true
		case <-events.Events: // including changes of permissions
			if deadline == nil {
				deadline = time.After(maxQuietWait)
			}
			due = time.After(quietPeriod)
		}
	}
}
