package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/eval/beir"
	"github.com/plaid-ir/plaid/vectors"
)

// beirInput is where plaid beir has its vectors from: a folder of them, or the
// texts of the collection and a model.
type beirInput struct {
	app            *app
	dir            string
	vectors, spool string
	encoder        flags.Encoder
	device         flags.Device
	encoded        *textsReport // nil if nothing was encoded
}

func (c *beirInput) check() error {
	switch {
	case c.vectors == "" && !c.encoder.Named():
		return flags.Usagef("--model or --vectors is missing (or --encoder, the address of a server)")
	case c.vectors != "" && (c.encoder.Given() || c.spool != ""):
		return flags.Usagef("--vectors does not go with --model and what belongs to it")
	}
	return nil
}

// open makes the vectors ready and hands them to use.
func (c *beirInput) open(ctx context.Context, o *beir.Options, use func(beir.Vectors) error) (err error) {
	if c.vectors != "" {
		v, err := beir.Folder(c.vectors)
		if err != nil {
			return err
		}
		return use(v)
	}
	corpus, err := c.file("corpus.jsonl")
	if err != nil {
		return err
	}
	queries, err := c.file("queries.jsonl")
	if err != nil {
		return err
	}
	enc, model, err := c.app.openEncoder(ctx, &c.encoder, "", flags.Opening{Threads: o.Threads, On: c.app.on(&c.device)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, enc.Close()) }()
	s := &spooling{app: c.app, encoder: enc, texts: &flags.Texts{Paths: []string{corpus}, Drop: o.Index == ""}, path: c.spool}
	if o.Index != "" {
		s.temporary = o.Index + ".spool"
	}
	return use(beir.Vectors{
		Docs: func(ctx context.Context, use func(vectors.Source) error) error {
			used := func(src vectors.Source, r *textsReport) error {
				c.encoded = r
				return use(src)
			}
			if s.streams(o.Build.Pool) {
				return s.stream(ctx, func(src *encode.Collection, r *textsReport) error { return used(src, r) })
			}
			return s.run(ctx, func(src *vectors.Spool, r *textsReport) error { return used(src, r) })
		},
		Queries: func(ctx context.Context, judged func(string) bool, use func(vectors.Source) error) error {
			q, err := c.app.encodeQueries(ctx, enc, only((&encode.Reader{Format: encode.FormatJSONL}).Texts(ctx, queries), judged), queries, false)
			if err != nil {
				return err
			}
			return errors.Join(use(q), q.Close())
		},
		Model: model, DocsName: corpus, QueriesName: queries,
	})
}

// file finds a file of the collection, which may be packed.
func (c *beirInput) file(name string) (string, error) {
	path := filepath.Join(c.dir, name)
	for _, p := range []string{path, path + ".gz"} {
		if _, err := os.Stat(p); !errors.Is(err, fs.ErrNotExist) {
			return p, err
		}
	}
	return "", fmt.Errorf("%s: %w", path, fs.ErrNotExist)
}

// only lets the texts through that keep wants, and errors.
func only(texts iter.Seq2[encode.Text, error], keep func(id string) bool) iter.Seq2[encode.Text, error] {
	return func(yield func(encode.Text, error) bool) {
		for t, err := range texts {
			if (err != nil || keep(t.ID)) && !yield(t, err) {
				return
			}
		}
	}
}
