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
const textsRead = `--text reads .jsonl files as those of BEIR (_id, title, text; other fields are
kept), .csv or .tsv files with a column text, .txt files with a text a line, .html and
.ipynb files, folders of text, Markdown, pages, notebooks and source code, or - for
stdin; files may be compressed (.gz, .zst, .xz). In .tsv nothing is quoted: each line
is a document, and without a line of names an id, a tab and a text, as in
collection.tsv of MS MARCO. A title comes before its text. A text that is too long for
the model is cut, and counted; --window cuts it into passages instead, doc#0, doc#1 and
so on.`

// spoolHelp is the help on the file that keeps the vectors of texts.
const spoolHelp = `The vectors of texts wait in a spool beside the index. To resume an
interrupted run, repeat the command: nothing is encoded twice. Texts from stdin or a
pipe start over, unless --spool names a file; then only their ids are compared with
it.`

// Help of commands that need no spool on a device.
const (
	buildsOnDevice = `

With --device texts are encoded while the index is built, without a spool, unless
--spool names one; an interrupted run continues from what the index has.`
	addsOnDevice = `

With --device texts are encoded while the index takes them, without a spool, unless
--spool names one or there are several indexes; an interrupted run starts
over.`
)

func (in *input) register(f *pflag.FlagSet) {
	in.texts.Register(f, false)
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
