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
		Short: "Copy an index to a safe place, or for readers that follow it",
		Long: `
Copy an index as it is at this moment. The copy is an index file like any other.
It is written next to COPY as COPY.plaid-partial- and a number, checked as plaid
verify does, flushed to disk, and then renamed to COPY: whatever happens, COPY is
either the old copy or the new one. An existing index is replaced, any other file only
with --force. COPY - means stdout; the index is then checked before it is written.

INDEX may also be the folder of plaid serve, while no service runs on it: each of its
indexes is copied to the folder COPY, on which a service can then be started.

Other processes may read the index meanwhile. Those that read COPY keep the old one,
or follow it to the new one. The command fails while a process has the index open for
writing; such a process can make backups itself, as plaid serve does.

With --incremental, an earlier backup at COPY is updated in one transaction, which
writes only the changes. No other process may have COPY open then, not even for
reading, and no other name may be linked to it. Otherwise, or if the index was rebuilt
or more than half of it has changed, everything is copied; the report says which
happened. Both files are read completely in either case.`,
		Example: `  plaid backup docs.plaid /backup/docs.plaid
  plaid backup docs.plaid /backup/docs.plaid --incremental
  plaid backup docs.plaid - > /mnt/stick/docs.plaid`,
		Args: namedArgs("INDEX", "COPY"),
	}
	f := cmd.Flags()
	f.BoolVar(&o.Incremental, "incremental", false,
		"write only the changes into an existing copy, where that is possible")
	f.Var(flags.Choice(&checks, "full", "full", "checksums", "none"), "verify",
		"what to check of the copy before it replaces COPY")
	f.BoolVar(&o.Force, "force", false, "replace a COPY that is not an index")
	f.Bool("json", false, "print the report as JSON")
	cmd.RunE = a.commandFunc(func(ctx context.Context, args []string) error {
		path, to := args[0], args[1]
		stdout := to == "-"
		switch {
		case stdout && (o.Incremental || o.Force):
			return flags.Usagef("--incremental and --force are for files, not for stdout")
		case stdout && a.outWidth > 0:
			return flags.Usagef("stdout is a terminal, and an index is not text")
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
				return fmt.Errorf("%s: %w: it is a folder, but not one of plaid serve; name an index file", path,
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
	case r.WholeReason != "":
		method += " (" + r.WholeReason + ")"
	}
	checked := map[index.Checks]string{index.CheckAll: "verified", index.CheckChecksums: "checksums verified",
		index.CheckNothing: "not verified"}[c]
	return fmt.Sprintf("%s: %s, %s, %s of %s written, %s\n",
		to, out.Documents(r.Docs, r.Passages), method, out.Bytes(r.Written), out.Bytes(r.Size), checked)
}
