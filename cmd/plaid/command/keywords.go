package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search/keywords"
)

func (a *app) keywordsCommand() *cobra.Command {
	var settings flags.KeywordSettings
	cmd := &cobra.Command{
		Use:   "keywords INDEX",
		Short: "Make the metadata of an index searchable by words",
		Long: `
Create or update INDEX.keywords, with which plaid search --hybrid and --keywords find
documents by the words of their metadata. If the file does not exist or is not up to
date, a search does the same work in a temporary file of its own. This command also
determines how text becomes words.

The file is derived from the index and may be deleted at any time. Settings that are
not given stay as they are; changed ones rebuild the file.

If metadata is JSON, all its values are searched, or those of --fields; otherwise the
whole text is.`,
		Example: `  plaid keywords docs.plaid
  plaid keywords docs.plaid --stemmer english --stop-words english --fields title,text
  plaid keywords code.plaid --tokenizer trigram`,
		Args: namedArgs("INDEX"),
	}
	settings.Register(cmd.Flags())
	cmd.Flags().Bool("json", false, "print the report as JSON")
	cmd.RunE = a.commandFunc(func(ctx context.Context, args []string) error {
		s, err := settings.Settings()
		if err != nil {
			return err
		}
		return a.openSnapshot(ctx, args[0], func(snap *index.Snapshot) error {
			return a.withKeywords(ctx, snap, s, true, func(kw *keywords.Index) error {
				info, err := kw.Info()
				if err != nil {
					return err
				}
				return a.report(struct {
					Path string `json:"path"`
					keywords.Info
				}{kw.Path(), info}, func(b *bytes.Buffer) {
					docs := out.Ordinals(info.Docs, snap.State().Passages > 0)
					tokens := out.Plural(int64(info.Tokens), "token")
					fmt.Fprintf(b, "%s: %s of %s, %s\n", kw.Path(), docs, tokens, describeSettings(info.Settings))
				})
			})
		})
	})
	return cmd
}

// describeSettings describes how text becomes search terms.
func describeSettings(s keywords.Settings) string {
	parts := []string{s.Tokenizer}
	if s.Stemmer != "" {
		parts = append(parts, "stemmer "+s.Stemmer)
	}
	if s.StopWords != "" {
		parts = append(parts, "stop words "+s.StopWords)
	}
	if s.Fields != nil {
		parts = append(parts, "fields "+strings.Join(s.Fields, ","))
	}
	if s.IDs {
		parts = append(parts, "ids")
	}
	return strings.Join(parts, ", ")
}

// withKeywords opens the keywords of an index, updates them to a snapshot and hands them to use.
// With write it updates the file next to the index; otherwise it makes a temporary file, unless the
// file is up to date. If the keywords turn out to be damaged, they are rebuilt and use is called a
// second time.
func (a *app) withKeywords(ctx context.Context, snap *index.Snapshot, s *keywords.Settings, write bool,
	use func(*keywords.Index) error) (err error) {
	o := &keywords.Options{
		Settings:    s,
		Write:       write,
		LockTimeout: a.lockTimeout,
		Logger:      a.logger(),
	}
	if show := a.progress(); show != nil {
		o.Progress = func(done, total int64) {
			show(index.Progress{
				Stage: "keywords",
				Done:  done,
				Total: total,
				Unit:  "documents",
			})
		}
	}
	kw, err := keywords.Open(ctx, keywords.Path(snap.Path()), o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kw.Close()) }()
	for rebuilt := false; ; rebuilt = true {
		if err := kw.Sync(ctx, snap); err != nil {
			return err
		}
		if !rebuilt && kw.Temporary() {
			a.printWarning("%s does not exist or is not up to date: the words were read for this search only; "+
				"plaid keywords %s keeps them", kw.Path(), snap.Path())
		}
		err := use(kw)
		if !errors.Is(err, keywords.ErrDamaged) || rebuilt {
			return err
		}
	}
}
