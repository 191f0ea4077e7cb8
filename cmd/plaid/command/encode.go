package command

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
	"github.com/plaid-ir/plaid/vectors/pool"
)

// encoding is one run of plaid encode.
type encoding struct {
	app     *app
	texts   flags.Texts
	encoder flags.Encoder
	device  flags.Device
	threads int
	// dir is the output folder.
	dir     string
	queries bool
	pool    int
	float32 bool
	force   bool
	// matrixSpool has the vectors in a file that becomes the matrix. Nil means that the vectors are
	// copied.
	matrixSpool *encode.Spooled
}

func (a *app) encodeCommand() *cobra.Command {
	e := encoding{app: a}
	cmd := &cobra.Command{
		Use:   "encode TEXTS… --model MODEL -o DIR",
		Short: "Turn texts into files of token vectors",
		Long: `
Encode texts into the files that other commands read: docs.npy, doclens.npy,
doc_ids.txt and metadata.jsonl, or, with --queries, queries.npy, querylens.npy and
query_ids.txt. model.json describes the model. Documents and queries may be written to
the same folder, as plaid beir --vectors expects them.

TEXTS are .jsonl files like those of BEIR (_id, title, text), .csv or .tsv files
with a column text (a .tsv has no quotes; without a line of names, each line is an id,
a tab and a text), .txt files with one text in each line, .html, .ipynb, folders of text,
Markdown, web pages, notebooks and source code, or - for stdin; files may be compressed
(.gz, .zst, .xz). A title is put before its text. Texts longer than the model's limit
are truncated, and the command reports how many; --window splits them into passages
instead, doc#0, doc#1 and so on.

The vectors of documents are written to docs.npy.part, and digests of their texts to a
spool next to it. To resume a run that was interrupted, or that ended with an error in
the texts, repeat the command: no text is encoded twice, even if it has moved. The
vectors are copied at the end with --pool, with --spool, and if texts repeat or have
moved.`,
		Example: `  plaid encode corpus.jsonl --model answerdotai/answerai-colbert-small-v1 -o vectors
  plaid encode queries.jsonl --queries --model answerdotai/answerai-colbert-small-v1 -o vectors
  plaid encode notes --model ./colbert --precision int8 --window 240 --overlap 40 -o vectors
  plaid index docs.plaid --vectors vectors/docs.npy --lengths vectors/doclens.npy --ids vectors/doc_ids.txt`,
		Args: namedArgs("TEXTS", "…"),
	}
	f := cmd.Flags()
	e.encoder.RegisterDocuments(f)
	e.encoder.RegisterQueryLength(f)
	e.texts.RegisterForArguments(f)
	e.texts.RegisterDrop(f)
	f.StringVar(&e.texts.Spool, "spool", "", "`FILE` that keeps the vectors between runs (default: one in the "+
		"output folder, removed when it is complete)")
	f.StringVarP(&e.dir, "output", "o", "", "`DIR` to write to; it is created if necessary")
	f.BoolVar(&e.queries, "queries", false, "encode the texts as questions, for searches")
	f.Var(flags.Int(&e.pool, 1, 1), "pool", "merge about this many similar token vectors of a document into their "+
		"mean (1: keep all)")
	f.BoolVar(&e.float32, "float32", false, "write float32, not float16")
	flags.Threads(f, &e.threads, 0)
	e.device.RegisterEncoding(f)
	f.BoolVar(&e.force, "force", false, "replace existing files")
	f.Bool("json", false, "print the report as JSON")
	cmd.RunE = a.commandFunc(func(ctx context.Context, args []string) error {
		e.texts.Paths = args
		if e.dir == "" {
			return flags.Usagef("-o is missing: the folder to write to")
		}
		if e.queries {
			for _, name := range []string{"window", "overlap", "drop-text", "spool", "pool"} {
				if f.Changed(name) {
					return flags.Usagef("--%s is for documents, not for --queries", name)
				}
			}
		}
		if err := e.texts.Check(); err != nil {
			return err
		}
		return e.run(ctx)
	})
	return cmd
}

// fileNames returns the names of the output files, for documents or for queries.
func (e *encoding) fileNames() (matrix, lengths, ids string) {
	if e.queries {
		return "queries.npy", "querylens.npy", "query_ids.txt"
	}
	return "docs.npy", "doclens.npy", "doc_ids.txt"
}

const metadataFile = "metadata.jsonl"

// outputPath returns the path of an output file.
func (e *encoding) outputPath(name string) string { return filepath.Join(e.dir, name) }

// run encodes the texts and writes the files.
func (e *encoding) run(ctx context.Context) (err error) {
	enc, model, err := e.app.openEncoder(ctx, &e.encoder, "",
		flags.Opening{Threads: e.threads, OpenDevice: e.app.deviceOpener(&e.device)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, enc.Close()) }()
	if err := os.MkdirAll(e.dir, 0o777); err != nil {
		return err
	}
	matrix, _, _ := e.fileNames()
	spool := e.outputPath(matrix + ".spool")
	if _, err := os.Lstat(e.outputPath(matrix)); err == nil && !e.force {
		// Files next to a spool were left incomplete by an earlier run, and are replaced.
		if _, err := os.Lstat(spool); err != nil {
			return fmt.Errorf("%s: %w; --force replaces it", e.outputPath(matrix), fs.ErrExist)
		}
	}
	if err := e.checkSameModel(model); err != nil {
		return err
	}
	if e.queries {
		return e.encodeQueries(ctx, enc, model)
	}
	// Survey the documents, then encode them.
	s := &spooling{
		app:           e.app,
		encoder:       enc,
		texts:         &e.texts,
		spoolPath:     e.texts.Spool,
		temporaryPath: spool,
		float32:       e.float32,
	}
	if e.pool <= 1 { // the vectors are written next to the spool and become the matrix
		s.vectorsPath, s.matrixPath = e.outputPath(matrix+".part"), e.outputPath(matrix)
	}
	noDocuments := e.texts.WithFileNames(index.ErrNoDocuments)
	if err := s.survey(ctx); err != nil {
		return err
	}
	if s.surveyed != nil && s.surveyed.Texts == 0 {
		return noDocuments
	}
	return s.run(ctx, func(src *encode.Spooled, r *textsReport) error {
		if src.Len() == 0 { // a pipe is not surveyed in advance
			return noDocuments
		}
		if s.vectorsPath != "" && src.InOrder() { // otherwise they are copied
			e.matrixSpool = src
		}
		payloads := src
		if !src.HasPayload() {
			payloads = nil
		}
		return e.write(ctx, src, payloads, enc.Dim(), model, r)
	})
}

// checkSameModel returns an error if the output folder has queries of another model and this run
// encodes documents, or the other way round.
func (e *encoding) checkSameModel(m *storage.Model) error {
	existing, err := flags.ParseModel(e.outputPath(flags.ModelFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	other := encoding{dir: e.dir, queries: !e.queries}
	name, _, _ := other.fileNames()
	if _, serr := os.Lstat(other.outputPath(name)); serr != nil {
		return nil // all files of the folder will be replaced
	}
	if err == nil {
		err = existing.Check(m)
	}
	if err != nil {
		return fmt.Errorf("%s exists already, write to another folder: %w", other.outputPath(name), err)
	}
	return nil
}

// encodeQueries encodes the texts as queries. There are few of them, so an interrupted run starts
// over.
func (e *encoding) encodeQueries(ctx context.Context, enc *encode.Encoder, model *storage.Model) error {
	begin := e.app.now()
	source := e.texts.Name()
	q, err := e.app.encodeQueries(ctx, enc, e.texts.Open(ctx, e.app.in), source, !e.float32)
	if err != nil {
		return err
	}
	if q.Len() == 0 {
		return errors.Join(noQueriesError(source), q.Close())
	}
	r := &textsReport{
		Texts:     q.Len(),
		Truncated: q.truncated,
		Tokens:    q.Tokens(),
		Seconds:   e.app.now().Sub(begin).Seconds(),
	}
	return errors.Join(e.write(ctx, q.Spool, nil, enc.Dim(), model, r), q.Close())
}

// encodeReport is what `plaid encode --json` prints.
type encodeReport struct {
	Dir string `json:"dir"`
	textsReport
	Vectors     int64    `json:"vectors"`
	Dim         int      `json:"dim"`
	Fingerprint string   `json:"fingerprint"`
	Files       []string `json:"files"`
}

// write writes the output files. payloads is the same source if some document has metadata, and nil
// otherwise.
func (e *encoding) write(ctx context.Context, src vectors.Source, payloads *encode.Spooled, dim int,
	model *storage.Model, r *textsReport) error {
	rep := encodeReport{
		Dir:         e.dir,
		textsReport: *r,
		Dim:         dim,
		Fingerprint: model.Fingerprint,
	}
	matrix, lengths, ids := e.fileNames()
	// Lengths after pooling.
	lens := make([]int64, src.Len())
	for i := range lens {
		lens[i] = int64(pool.PooledRows(src.Rows(i), e.pool))
		rep.Vectors += lens[i]
	}
	if e.matrixSpool == nil {
		if err := e.writeMatrix(ctx, src, matrix, int(rep.Vectors), dim); err != nil {
			return err
		}
	}
	w, err := vectors.CreateNPY(e.outputPath(lengths), "<i4", len(lens))
	if err != nil {
		return err
	}
	if err := errors.Join(w.Ints(lens), w.Close()); err != nil {
		return err
	}
	rep.Files = []string{e.outputPath(matrix), e.outputPath(lengths), e.outputPath(ids)}
	// Ids and metadata, a line for each document.
	err = e.writeLines(ctx, ids, func(b *bufio.Writer) error {
		for i := range src.Len() {
			b.WriteString(src.ID(i))
			b.WriteByte('\n')
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	if payloads != nil {
		rep.Files = append(rep.Files, e.outputPath(metadataFile))
		err := e.writeLines(ctx, metadataFile, func(b *bufio.Writer) error {
			for d, err := range payloads.Heads(ctx) {
				if err == nil {
					err = writePayload(b, d)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	// The description of the model.
	line, err := out.JSONLine(model)
	if err != nil {
		return err
	}
	err = e.writeLines(ctx, flags.ModelFile, func(b *bufio.Writer) error {
		_, err := b.Write(line)
		return err
	})
	if err != nil {
		return err
	}
	// The matrix comes last, so that the other files are complete if it exists.
	if e.matrixSpool != nil {
		if err := e.matrixSpool.Matrix(e.outputPath(matrix)); err != nil {
			return err
		}
	}
	rep.Files = append(rep.Files, e.outputPath(flags.ModelFile))
	return e.app.report(rep, func(b *bytes.Buffer) {
		r.writeLine(b)
		fmt.Fprintf(b, "files: %s of dimension %d in %s\n", out.Plural(rep.Vectors, "vector"), rep.Dim, e.dir)
	})
}

// writeMatrix copies the vectors into an array, after pooling.
func (e *encoding) writeMatrix(ctx context.Context, src vectors.Source, name string, rows, dim int) error {
	kind := "<f2"
	if e.float32 {
		kind = "<f4"
	}
	w, err := vectors.CreateNPY(e.outputPath(name), kind, rows, dim)
	if err != nil {
		return err
	}
	var pooler pool.Pooler
	var pooled []float32
	for d, err := range src.Docs(ctx, 0, src.Len()) {
		if err == nil && e.pool > 1 {
			codec.Normalize(d.Tokens, dim)
			pooled = pooler.Pool(pooled[:0], d.Tokens, dim, e.pool)
			d.Tokens = pooled
		}
		if err == nil {
			err = w.Float32s(d.Tokens)
		}
		if err != nil {
			return errors.Join(err, w.Close())
		}
	}
	return w.Close()
}

// writeLines writes an output file by calling write with a buffer.
func (e *encoding) writeLines(ctx context.Context, name string, write func(*bufio.Writer) error) error {
	return files.WriteAtomic(ctx, e.outputPath(name), func(w io.Writer) error {
		b := bufio.NewWriterSize(w, 1<<16)
		if err := write(b); err != nil {
			return err
		}
		return b.Flush()
	})
}

// writePayload writes the metadata of a document as a line of JSON, with its id as the first field.
func writePayload(b *bufio.Writer, d vectors.Document) error {
	id, err := json.Marshal(d.ID)
	if err != nil {
		return err
	}
	b.WriteString(`{"_id":`)
	b.Write(id)
	if fields, ok := bytes.CutPrefix(d.Payload, []byte("{")); ok {
		if !bytes.Equal(fields, []byte("}")) {
			b.WriteByte(',')
		}
		b.Write(fields)
	} else {
		b.WriteByte('}')
	}
	return b.WriteByte('\n')
}
