package command

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// input holds the flags of documents that go into an index: texts or vectors.
type input struct {
	texts   flags.Texts
	encoder flags.Encoder
	docs    flags.Documents
	// device is the device of plaid add.
	device flags.Device
}

// textsHelp is the help on texts that are stored.
const textsHelp = textsRead + ` Titles and texts are stored as metadata,
so that results can show them; --drop-text leaves them out.

` + spoolHelp

// textsRead is the help on how texts are read.
const textsRead = `--text reads .jsonl files like those of BEIR (_id, title, text; other fields are
stored as metadata), .csv or .tsv files with a column text, .txt files with one text in
each line, .html and .ipynb files, folders of text, Markdown, web pages, notebooks and
source code, or - for stdin; files may be compressed (.gz, .zst, .xz). A .tsv has no
quotes: each line is a document, and without a line of names it is an id, a tab and a
text, as in collection.tsv of MS MARCO. A title is put before its text. Texts longer
than the model's limit are truncated, and the command reports how many; --window splits
them into passages instead, doc#0, doc#1 and so on.`

// spoolHelp is the help on the file that keeps the vectors of texts.
const spoolHelp = `The vectors of texts are kept in a spool next to the index until it is
complete. To resume an interrupted run, repeat the command: nothing is encoded twice.
Texts from stdin or a pipe start over, unless --spool names a file; then only their ids
are compared with it.`

// Help of commands that need no spool on a device.
const (
	buildsOnDevice = `

With --device, texts are encoded while the index is built, without a spool unless
--spool names one; an interrupted run continues from the incomplete index.`
	addsOnDevice = `

With --device, texts are encoded while they are added to the index, without a spool
unless --spool names one or there are several indexes; an interrupted run starts over.`
)

func (in *input) register(f *pflag.FlagSet) {
	in.texts.Register(f)
	in.encoder.RegisterDocuments(f)
	in.texts.RegisterSpool(f)
	in.docs.Register(f)
}

// registerStored adds the flags of titles, texts and metadata, which are stored with the vectors.
func (in *input) registerStored(f *pflag.FlagSet) {
	in.texts.RegisterDrop(f)
	in.docs.RegisterPayload(f)
}

// checkFlags returns an error for flags that do not go together.
func (in *input) checkFlags() error { return in.docs.CheckTexts(&in.texts, &in.encoder) }

// openVectors opens the vectors and hands them to use, with the model that made them, or nil.
func (in *input) openVectors(ctx context.Context, stdin io.Reader, warn func(string, ...any),
	use func(vectors.Source, *storage.Model) error) (err error) {
	m, err := flags.ParseModel(in.docs.Model)
	if err != nil {
		return err
	}
	src, err := in.docs.Open(ctx, stdin, warn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	return use(src, m)
}
