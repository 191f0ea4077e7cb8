package encode

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/plaid-ir/plaid/vectors"
)

// SpoolOptions for Spool. The zero value, or nil, is right for most.
type SpoolOptions struct {
	// Tag says which texts these are, and how they were parted: a file with
	// another one is not gone on with.
	Tag string
	// Float32 stores whole numbers instead of halves.
	Float32 bool
	// Vectors and Matrix, where set, are a file for the vectors alone and what is made of
	// it; see [vectors.SpoolOptions].
	Vectors, Matrix string
	// Progress, where set, is called after each document that was encoded, by the
	// goroutine that called Spool.
	Progress func(Report)
}

// spoolFlush is after how many documents the file has all of them.
const spoolFlush = 16

// Spool encodes a stream of texts into a file, which is a [vectors.Source] then.
// What is at the path already, by the same model in the same precision, pooled
// alike and with the same tag, is gone on with: its documents are not encoded again, only their
// ids are compared with the stream's. So a process may be killed at any time and
// the work be called for again; what was not yet on its way to the disk, some
// documents, is done twice.
//
// An error leaves the file as far as it is. With the path "" the file is a
// temporary one.
//
// Errors: [vectors.ErrSpool] for a file of another model or tag, or with other
// documents; those of [Encoder.Documents].
func Spool(ctx context.Context, e *Encoder, texts iter.Seq2[Text, error], path string, o *SpoolOptions) (*vectors.Spool, *Report, error) {
	if o == nil {
		o = new(SpoolOptions)
	}
	r := new(Report)
	tag := "plaid encode " + e.config.Fingerprint + "\n" + o.Tag
	if e.config.Pool > 0 {
		tag = fmt.Sprintf("plaid encode %s pool %d\n%s", e.config.Fingerprint, e.config.Pool, o.Tag)
	}
	s, err := vectors.NewSpool(e.Dim(), &vectors.SpoolOptions{Path: path, Resume: path != "", Float16: !o.Float32, Tag: tag, Vectors: o.Vectors, Matrix: o.Matrix})
	if err != nil {
		return nil, nil, err
	}
	r.Resumed = s.Len()
	of := &call{role: Document, halves: !o.Float32 && e.config.Pool == 0} // what is pooled is rounded then
	for doc, err := range e.documents(ctx, of, skipDone(texts, s, path), r) {
		if err == nil {
			err = s.Add(doc)
		}
		if err == nil && s.Len()%spoolFlush == 0 {
			err = s.Flush()
		}
		if err != nil {
			return nil, r, errors.Join(err, s.Close())
		}
		if o.Progress != nil {
			o.Progress(*r)
		}
	}
	if err := s.Flush(); err != nil {
		return nil, r, errors.Join(err, s.Close())
	}
	return s, r, nil
}

// skipDone leaves out the texts whose documents are in the spool.
func skipDone(texts iter.Seq2[Text, error], s *vectors.Spool, path string) iter.Seq2[Text, error] {
	done := s.Len()
	return func(yield func(Text, error) bool) {
		row := 0
		for t, err := range texts {
			if err != nil {
				yield(t, err)
				return
			}
			if row < done {
				if t.ID != "" && t.ID != s.ID(row) {
					yield(Text{}, &TextError{Path: path, Row: row, ID: t.ID,
						Err: fmt.Errorf("%w: the file has document %q there", vectors.ErrSpool, s.ID(row))})
					return
				}
				row++
				continue
			}
			if !yield(t, nil) {
				return
			}
		}
		if row < done {
			yield(Text{}, &TextError{Path: path, Row: -1,
				Err: fmt.Errorf("%w: the file has %d documents, there are only %d texts", vectors.ErrSpool, done, row)})
		}
	}
}
