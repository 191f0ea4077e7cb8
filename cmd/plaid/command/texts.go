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

// spooling is one encoding of texts into a spool, a file of vectors.
type spooling struct {
	app     *app
	encoder *encode.Encoder
	texts   *flags.Texts
	// spoolPath is a spool that stays. "" means the temporary one at temporaryPath, which stays,
	// too, if the run fails or is interrupted, so that the same command continues from it.
	spoolPath, temporaryPath string
	// untilEnd keeps the temporary spool until finish, which removes it. If another process has it
	// open, this one goes without a file.
	untilEnd bool
	// spoolToRemove is the file that finish removes.
	spoolToRemove string
	// vectorsPath is a file for the vectors alone, next to the temporary spool. "" means that the
	// spool holds them.
	vectorsPath string
	// matrixPath is the final name of the file at vectorsPath.
	matrixPath string
	// float32 stores vectors in float32 rather than float16.
	float32 bool
	// admit, if not nil, returns an error for documents that cannot be stored with the existing
	// ones.
	admit func(ctx context.Context, documents []index.Arrival) error

	// surveyed is the result of survey, or nil if the texts could not be read in advance.
	surveyed *encode.Survey

	textless textlessDocuments
	// skipped has the files of folders that are not read.
	skipped folder.Skipped
	// skippedEndings counts them by the endings of their names.
	skippedEndings map[string]int
}

// run encodes the texts that an earlier run has not encoded, and hands the vectors of all to use.
// It removes a temporary spool after success.
func (s *spooling) run(ctx context.Context, use func(*encode.Spooled, *textsReport) error) error {
	path := cmp.Or(s.spoolPath, s.temporaryPath)
	if s.surveyed == nil {
		if err := s.survey(ctx); err != nil {
			return err
		}
	}
	// Progress runs towards the surveyed total.
	var total out.Texts
	if s.surveyed != nil {
		total.Total, total.AllBytes = s.surveyed.Texts, s.surveyed.Bytes
	}
	if path != s.temporaryPath { // a spool that stays holds its vectors
		s.vectorsPath = ""
	}
	// Encode. If another process has the spool open, do without a file, where that is allowed.
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
	// Use the vectors.
	empty := spool.Tokens() == 0
	err = use(spool, s.report(spool.Len(), r, begin))
	// Close the spool before removing it, as Windows requires.
	err = errors.Join(err, spool.Close())
	// Keep or remove the spool. A temporary one stays if the work is not done, and if more of its
	// texts are unused than used: it then belongs to another, larger run.
	done := err == nil || errors.Is(err, errOutput) // the work is done if only printing failed
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

// finish removes the spool that was needed until now, or, after an error, says where it is.
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

// remove removes a spool, and the file of its vectors if that still exists.
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

// encode writes the vectors of the texts to a spool, and shows progress towards total.
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
		texts = s.surveyed.VerifyUnchanged(texts)
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

// explainStop says what happens to an incomplete spool after an error: it stays, unless nothing was
// written to it.
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

// canStream reports whether texts are encoded while an index takes their vectors, without a spool.
// On a device, encoding takes less time than writing vectors and reading them again. An existing
// spool is used, and texts from a pipe need one. pool is the pooling factor of the index.
func (s *spooling) canStream(pool int) bool {
	c := s.encoder.Config()
	if s.spoolPath != "" || c.Backend != encode.Device || c.Pools() || pool > 1 || !s.texts.Rereadable() {
		return false
	}
	_, err := os.Lstat(s.temporaryPath)
	return errors.Is(err, fs.ErrNotExist)
}

// collect reads the texts once, and returns a source that encodes them when it is read.
func (s *spooling) collect(ctx context.Context) (*encode.Collection, *textsReport, error) {
	begin := s.app.now()
	if err := s.prepare(); err != nil {
		return nil, nil, err
	}
	defer func() { s.texts.OnSkipped = nil }() // files are counted in the first pass only
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

// withVectors hands the vectors of the texts to use: those of a spool, or, with stream, of a source
// that encodes them when it is read. tag is then a digest of the texts, and "" otherwise.
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
