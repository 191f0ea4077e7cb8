package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/folder"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/vectors"
)

// spooling is one encoding of texts into a file.
type spooling struct {
	app     *app
	encoder *encode.Encoder
	texts   *flags.Texts
	// path is the file, which stays; "" means the temporary one, which stays too if the run fails or is
	// interrupted, so that the same command continues from there.
	spoolPath, temporaryPath string
	// untilEnd says that the temporary file is needed until end, which removes it. Another process may
	// have it meanwhile: then this one has none.
	untilEnd      bool
	spoolToRemove string // the file that end removes
	vectorsPath   string // a file for the vectors alone, next to the temporary one; "" means that they are in that
	matrixPath    string // the file that becomes of it
	float32       bool   // whole numbers, not halves
	// admit, where set, refuses documents that cannot be stored with those that are there.
	admit func(ctx context.Context, documents []index.Arrival) error

	surveyed *encode.Survey // nil means that nothing is known before

	textless      textlessDocuments
	passed        folder.Passed  // files of folders that are not read
	passedEndings map[string]int // how many of these have an ending
}

// run encodes the texts, or what an earlier run left of them, and hands the vectors
// to use. A temporary file goes when that was done.
func (s *spooling) run(ctx context.Context, use func(*encode.Spooled, *textsReport) error) error {
	path := cmp.Or(s.spoolPath, s.temporaryPath)
	if s.surveyed == nil {
		if err := s.survey(ctx); err != nil {
			return err
		}
	}
	var total out.Texts
	if s.surveyed != nil {
		total.Total, total.AllBytes = s.surveyed.Texts, s.surveyed.Bytes
	}
	if path != s.temporaryPath {
		s.vectorsPath = ""
	}
	_, serr := os.Lstat(path)
	isNew := path != "" && errors.Is(serr, fs.ErrNotExist)
	begin := s.app.now()
	spool, r, err := s.encode(ctx, path, total)
	if s.untilEnd && path != s.spoolPath && errors.Is(err, vectors.ErrSpoolInUse) {
		path = ""
		spool, r, err = s.encode(ctx, path, total)
	}
	if err != nil {
		return s.explainStop(path, isNew, r, err)
	}
	if r.Resumed > 0 {
		s.app.logger().Info("texts were encoded before", "texts", r.Resumed, "file", path)
	}
	s.warnOfTexts(r)
	empty := spool.Tokens() == 0
	err = use(spool, s.report(spool.Len(), r, begin))
	// Closed before it is removed, which not every system allows otherwise.
	err = errors.Join(err, spool.Close())
	done := err == nil || errors.Is(err, errOutput)
	switch temporary := s.spoolPath == "" && path != ""; {
	case temporary && done && s.untilEnd:
		s.spoolToRemove = path
	case temporary && (done || empty) && spool.Unused() <= spool.Len():
		return errors.Join(err, s.remove(path))
	case temporary && (done || empty):
		s.app.printHint("%s stays: it has the vectors of %s that were not among these; "+
			"remove it if nothing will continue from there", path, out.Plural(spool.Unused(), "text", "texts"))
	case path != "" && !done:
		s.app.printHint("the vectors of the texts are in %s: repeat the command to continue from there", path)
	}
	return err
}

// finish removes the file that was needed until now, or says where it is.
func (s *spooling) finish(err error) error {
	switch {
	case s.spoolToRemove == "":
	case err == nil, errors.Is(err, errOutput):
		err = errors.Join(err, s.remove(s.spoolToRemove))
	default:
		s.app.printHint("the vectors of the texts are in %s: repeat the command to continue from there",
			s.spoolToRemove)
	}
	return err
}

// remove removes the file, and what has the vectors if that is still there.
func (s *spooling) remove(path string) error {
	var errs error
	for _, name := range []string{path, s.vectorsPath} {
		if name == "" {
			continue
		}
		if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
			errs = errors.Join(errs, err)
		}
	}
	return errs
}

// encode writes the vectors of the texts to a file, and shows how far it is of the total.
func (s *spooling) encode(ctx context.Context, path string, total out.Texts) (*encode.Spooled, *encode.Report, error) {
	s.textless = textlessDocuments{}
	o := &encode.SpoolOptions{Float32: s.float32, Vectors: s.vectorsPath, Matrix: s.matrixPath}
	if path == "" {
		o.Vectors, o.Matrix = "", ""
	}
	if !s.app.quiet {
		show := out.TextProgress(s.app.console, s.app.now)
		o.Progress = func(r encode.Report) {
			total.Done, total.Tokens = r.Resumed+r.Texts, r.Tokens
			show(total)
		}
	}
	texts := s.texts.Open(ctx, s.app.in)
	if s.surveyed != nil {
		texts = s.surveyed.Same(texts)
	} else {
		texts = s.admittedTexts(ctx, texts, true)
	}
	return encode.Spool(ctx, s.encoder, func(yield func(encode.Text, error) bool) {
		for t, err := range s.countTextless(texts) {
			total.Bytes += int64(len(t.Title) + len(t.Text))
			if !yield(t, err) {
				return
			}
		}
	}, path, o)
}

// explainStop says what becomes of a file that is not complete: it stays, unless nothing was written.
func (s *spooling) explainStop(path string, isNew bool, r *encode.Report, err error) error {
	switch {
	case path == "", errors.Is(err, vectors.ErrSpoolInUse):
	case r == nil && errors.Is(err, vectors.ErrSpool):
		return fmt.Errorf("%w. It stays as it is: remove it, or name another file with --spool", err)
	case r == nil:
	case isNew && r.Texts == 0:
		return errors.Join(err, s.remove(path))
	default:
		s.app.printHint("what was encoded is in %s: repeat the command to continue from there", path)
	}
	return err
}

// canStream says that texts are encoded while an index takes them, whose vectors are pooled so.
// On a device that takes less time than to write their vectors and to read them again. What a
// spool has already is used.
func (s *spooling) canStream(pool int) bool {
	c := s.encoder.Config()
	if s.spoolPath != "" || c.Backend != encode.Device || c.Pools() || pool > 1 || !s.texts.Rereadable() {
		return false
	}
	_, err := os.Lstat(s.temporaryPath)
	return errors.Is(err, fs.ErrNotExist)
}

// collect goes through the texts, and makes a source of vectors of them.
func (s *spooling) collect(ctx context.Context) (*encode.Collection, *textsReport, error) {
	begin := s.app.now()
	if err := s.prepare(); err != nil {
		return nil, nil, err
	}
	defer func() { s.texts.PassedOver = nil }() // they are told of once
	var c *encode.Collection
	err := s.retryWithPassages(func(passages bool) (err error) {
		first := true
		s.textless = textlessDocuments{}
		c, err = encode.NewCollection(ctx, s.encoder, func(ctx context.Context) iter.Seq2[encode.Text, error] {
			texts := s.texts.Open(ctx, s.app.in)
			if !first {
				return texts
			}
			first = false
			return s.countTextless(s.admittedTexts(ctx, texts, passages))
		})
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	r := c.Report()
	s.warnOfTexts(&r)
	report := s.report(r.Texts, &r, begin)
	report.Streamed = true
	return c, report, nil
}

// withVectors hands the vectors of the texts to use: those of a spool, or of a source that encodes them
// while they are taken; tag stands for the texts then.
func (s *spooling) withVectors(ctx context.Context, stream bool,
	use func(src vectors.Source, tag string, r *textsReport) error) error {
	if !stream {
		return s.run(ctx, func(src *encode.Spooled, r *textsReport) error { return use(src, "", r) })
	}
	c, r, err := s.collect(ctx)
	if err != nil {
		return err
	}
	return errors.Join(use(c, c.Tag(), r), c.Close())
}
