package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
)

func (a *app) backupCommand() *cobra.Command {
	var o index.BackupOptions
	var checks string
	cmd := &cobra.Command{
		Use:   "backup INDEX COPY",
		Short: "Copy an index to where it is safe, or where readers follow it",
		Long: `
Copy an index as it is at this moment. The copy is an index file like any other.
It is written next to COPY as COPY.plaid-partial- and a number, checked as plaid
verify checks, flushed to disk, and then renamed to COPY: whatever happens, COPY is
the one before or the new copy. An index that is there is replaced, another
file only with --force. COPY - is stdout; there the index is checked before it is
written.

INDEX may also be the folder of plaid serve, while no service runs on it: each of its
collections is copied to the folder COPY, which a service can then be started on.

Other processes may read the index meanwhile, and those that read COPY keep what
they have, or follow it. A process that has the index open for writing keeps this
command out; it can make backups itself while it works, as plaid serve does.

With --incremental a COPY that is an earlier backup is brought up to date in one
transaction, which writes only what has changed. For that nobody may have COPY
open, not even to read it, and no other name may be linked to it. If that is not
so, or more than half has changed or the index was rebuilt, all is copied; the
report says which happened. Both are read whole either way.`,
		Example: `  plaid backup docs.plaid /backup/docs.plaid
  plaid backup docs.plaid /backup/docs.plaid --incremental
  plaid backup docs.plaid - > /mnt/stick/docs.plaid`,
		Args: namedArgs("INDEX", "COPY"),
	}
	f := cmd.Flags()
	f.BoolVar(&o.Incremental, "incremental", false,
		"write only what has changed into a copy that is there, where that is possible")
	f.Var(flags.Choice(&checks, "full", "full", "checksums", "none"), "verify",
		"what to check of the copy before it takes its place")
	f.BoolVar(&o.Force, "force", false, "replace a COPY that is no index")
	f.Bool("json", false, "print the report as JSON")
	cmd.RunE = a.commandFunc(func(ctx context.Context, args []string) error {
		path, to := args[0], args[1]
		stdout := to == "-"
		switch {
		case stdout && (o.Incremental || o.Force):
			return flags.Usagef("--incremental and --force are for files, not for stdout")
		case stdout && a.outWidth > 0:
			return flags.Usagef("stdout is a terminal: an index is no text")
		}
		var err error
		if o.Check, err = index.ParseChecks(checks); err != nil {
			return err
		}
		o.LockTimeout, o.Progress = a.lockTimeout, a.progress()
		if info, serr := os.Stat(path); serr == nil && info.IsDir() {
			names, err := findCollections(path)
			switch {
			case err != nil:
				return err
			case len(names) == 0:
				return fmt.Errorf("%s: %w: a folder without collections of plaid serve; name one of its files", path,
					errNotFound)
			case stdout:
				return flags.Usagef("a folder is copied to a folder, not to stdout")
			}
			return adviseOnWriter(a.backupFolder(ctx, path, to, names, &o), true)
		}
		opened := false
		err = a.open(ctx, path, false, func(ix *index.Index) error {
			opened = true
			if stdout {
				r, err := ix.Backup(ctx, a.out, &o)
				if err == nil && !a.quiet {
					fmt.Fprintf(a.console, "plaid: %s", backupText("stdout", r, o.Check))
				}
				return err
			}
			r, err := ix.BackupTo(ctx, to, &o)
			if err != nil {
				return err
			}
			return a.report(struct {
				Path string `json:"path"`
				Copy string `json:"copy"`
				*index.BackupReport
				Verified string `json:"verified"`
			}{path, to, r, o.Check.String()}, func(b *bytes.Buffer) { b.WriteString(backupText(to, r, o.Check)) })
		})
		return adviseOnWriter(err, !opened)
	})
	return cmd
}

// adviseOnWriter adds to an error that says that another process writes to the index how that
// process can make the backup. source reports whether the error is about the source of the backup.
func adviseOnWriter(err error, source bool) error {
	switch {
	case errors.Is(err, index.ErrSameFile):
		return flags.UsageError{Err: err}
	case source && errors.Is(err, storage.ErrLocked):
		return fmt.Errorf("%w; the process that writes can make backups itself (a service: GET "+
			"/indices/NAME/backup), or stop writing for a moment", err)
	}
	return err
}

// backupText describes a copy in one line.
func backupText(to string, r *index.BackupReport, c index.Checks) string {
	method := "whole copy"
	switch {
	case r.Incremental:
		method = "brought up to date"
	case r.Whole != "":
		method += " (" + r.Whole + ")"
	}
	checked := map[index.Checks]string{index.CheckAll: "verified", index.CheckSums: "checksums verified",
		index.CheckNothing: "not verified"}[c]
	return fmt.Sprintf("%s: %s, %s, %s of %s written, %s\n",
		to, out.Documents(r.Docs, r.Passages), method, out.Bytes(r.Written), out.Bytes(r.Size), checked)
}
