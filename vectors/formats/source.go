package formats

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"os"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/vectors"
)

// rows is the rows of a file, which are read in records.
type rows interface {
	// schema returns the columns.
	schema() *arrow.Schema
	// records yields the rows from a row on. The first record may begin before that row; record.first
	// is its first row. A record is valid until the next one. If selected is not nil, only these columns
	// need to be read.
	records(ctx context.Context, from int64, selected []int) iter.Seq2[record, error]
}

// record is consecutive rows of a file, with all or selected columns.
type record struct {
	first int64 // row
	arrow.RecordBatch
}

// source is a [vectors.Source] of one file.
type source struct {
	path  string
	file  *os.File
	watch files.Watch
	rows  rows

	columns columns
	dim     int
	lengths []uint32
	ids     []string // nil means row numbers

	next    int // the row after the pending record
	pull    func() (record, error, bool)
	stop    func()
	pending record
	tokens  []float32
	payload []byte
	closed  bool
}

// scanRows reads the lengths and ids of all rows, and checks the vectors' dimensions.
func (s *source) scanRows(ctx context.Context) (err error) {
	if s.columns, err = chooseColumns(s.rows.schema()); err != nil {
		return err
	}
	seen := map[string]int{}
	for r, err := range s.rows.records(ctx, 0, s.columns.columnsToScan()) {
		if err != nil {
			return err
		}
		c := s.columns.inRecord(r.Schema())
		for i := range int(r.NumRows()) {
			// The shape of the vectors.
			row := len(s.lengths)
			dim, tokens, err := shapeOf(r.Column(c.vectors), i)
			if err == nil && dim > 0 {
				switch {
				case dim > kernels.MaxDim:
					err = fmt.Errorf("%w: dimension %d is not in 1..%d", vectors.ErrShape, dim, kernels.MaxDim)
				case s.dim == 0:
					s.dim = dim
				case s.dim != dim:
					err = fmt.Errorf("%w: dimension %d, documents before it have %d", vectors.ErrShape, dim, s.dim)
				}
			}
			if err == nil && tokens > math.MaxUint32 {
				err = fmt.Errorf("%w: %d tokens", vectors.ErrShape, tokens)
			}
			// The id.
			if err == nil && c.id >= 0 {
				var id string
				if id, err = rowID(r.Column(c.id), i); err == nil {
					err = vectors.CheckID(id)
				}
				if first, twice := seen[id]; err == nil && twice {
					err = fmt.Errorf("%w: %q is that of document %d, too", vectors.ErrID, id, first)
				}
				seen[id] = row
				s.ids = append(s.ids, id)
			}
			if err != nil {
				return s.toFileError(err, row)
			}
			s.lengths = append(s.lengths, uint32(tokens))
		}
	}
	if int64(len(s.lengths)) > math.MaxUint32-1 {
		return fmt.Errorf("%w: %d documents", vectors.ErrShape, len(s.lengths))
	}
	if s.columns.id >= 0 && s.ids == nil {
		s.ids = []string{}
	}
	return nil
}

// Dim implements [vectors.Source].
func (s *source) Dim() int { return s.dim }

// Len implements [vectors.Source].
func (s *source) Len() int { return len(s.lengths) }

// Rows implements [vectors.Source].
func (s *source) Rows(i int) int { return int(s.lengths[i]) }

// ID implements [vectors.Source].
func (s *source) ID(i int) string {
	if s.ids == nil {
		return strconv.Itoa(i)
	}
	return s.ids[i]
}

// Numbered reports whether ids are row numbers.
func (s *source) Numbered() bool { return s.ids == nil }

// Close implements [vectors.Source].
func (s *source) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	s.rewind()
	return s.file.Close()
}

// rewind ends the current pass over the file.
func (s *source) rewind() {
	if s.stop != nil {
		s.stop()
	}
	s.pull, s.stop, s.pending = nil, nil, record{}
}

// Docs implements [vectors.Source].
func (s *source) Docs(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		fail := func(err error, row int) { yield(vectors.Document{}, s.toFileError(err, row)) }
		switch {
		case s.closed:
			fail(os.ErrClosed, -1)
			return
		case from < 0 || from > to || to > s.Len():
			fail(fmt.Errorf("%w: documents %d to %d asked of %d", vectors.ErrShape, from, to, s.Len()), -1)
			return
		}
		if err := s.unchanged(); err != nil {
			fail(err, -1)
			return
		}
		for i := from; i < to; i++ {
			doc, err := s.readDoc(ctx, i)
			if err != nil {
				s.rewind()
				if changed := s.unchanged(); changed != nil {
					err = changed
				}
				fail(err, i)
				return
			}
			if !yield(doc, nil) {
				return
			}
		}
		if err := s.unchanged(); err != nil {
			fail(err, -1)
		}
	}
}

// readDoc reads document i.
func (s *source) readDoc(ctx context.Context, i int) (doc vectors.Document, err error) {
	if err := ctx.Err(); err != nil {
		return doc, err
	}
	err = guarded(func() error {
		if err := s.seek(i); err != nil {
			return err
		}
		r := s.pending
		c, row := s.columns.inRecord(r.Schema()), i-int(r.first) // in the record
		doc.ID = s.ID(i)
		if c.id >= 0 {
			if id, err := rowID(r.Column(c.id), row); err != nil || id != doc.ID {
				return fmt.Errorf("%w: the row has another id", vectors.ErrChanged)
			}
		}
		if s.tokens, err = appendVectors(s.tokens[:0], r.Column(c.vectors), row, s.dim); err != nil {
			return err
		}
		if len(s.tokens) != s.Rows(i)*s.dim {
			return fmt.Errorf("%w: the row has other vectors", vectors.ErrChanged)
		}
		if s.payload, err = appendPayload(s.payload[:0], r.RecordBatch, row, c.vectors); err != nil {
			return err
		}
		doc.Tokens = s.tokens
		if len(s.payload) > 0 {
			doc.Payload = s.payload
		}
		return vectors.CheckDocument(vectors.Draft{ID: doc.ID, Payload: doc.Payload})
	})
	return doc, err
}

// farRows is the number of rows beyond which seek begins a new pass instead of skipping rows.
const farRows = 4096

// seek sets the pending record to the one of row i. It continues the current pass unless the row is
// before it, or more than farRows behind it. The pass uses no context of a caller, since later calls continue it.
func (s *source) seek(i int) error {
	first, end := int(s.pending.first), s.next
	if s.pull == nil || i < first || i >= end+farRows {
		s.rewind()
		s.pull, s.stop = iter.Pull2(s.rows.records(context.Background(), int64(i), nil))
		s.next = 0
	}
	for s.pending.RecordBatch == nil || i >= s.next {
		r, err, ok := s.pull()
		if err == nil && !ok {
			err = fmt.Errorf("%w: it ends before row %d", vectors.ErrChanged, i)
		}
		if err != nil {
			return err
		}
		s.pending, s.next = r, int(r.first)+int(r.NumRows())
	}
	return nil
}

// unchanged returns [vectors.ErrChanged] if the file has changed since it was opened.
func (s *source) unchanged() error {
	err := s.watch.Unchanged()
	if c, ok := errors.AsType[*files.ChangedError](err); ok {
		return fmt.Errorf("%w: %s", vectors.ErrChanged, c.How)
	}
	return err
}

// toFileError adds the file, and the document, to an error. A negative row means no document.
func (s *source) toFileError(err error, row int) error {
	var fe *vectors.FileError
	if errors.As(err, &fe) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		if fe != nil && fe.Path == "" {
			fe.Path, fe.Doc = s.path, row
		}
		return err
	}
	fe = vectors.NewFileError(s.path, withoutPath(err))
	fe.Doc = row
	if row >= 0 && row < len(s.lengths) && s.ids != nil {
		fe.ID = s.ID(row)
	}
	return fe
}

// withoutPath removes the path from an error of the system, since FileError names it.
func withoutPath(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// guarded calls read, and converts a panic of the library on a damaged file into an error of the file.
func guarded(read func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: it cannot be read: %v", vectors.ErrFormat, v)
		}
	}()
	return read()
}

// malformed marks an error of the library as [vectors.ErrFormat].
func malformed(err error) error {
	isCtxErr := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	if err == nil || isCtxErr || errors.Is(err, vectors.ErrFormat) {
		return err
	}
	return fmt.Errorf("%w: %w", vectors.ErrFormat, err)
}
