package encode

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"slices"
	"strconv"

	"github.com/plaid-ir/plaid/internal/floats"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/vectors"
)

// Collection is a [vectors.Source] of texts that needs no file of vectors. If one device encodes
// and half of its free memory holds the vectors of all texts, they stay there
// ([vectors.Resident]), and Docs reads them. Otherwise Docs reads and encodes the texts at each
// call, which pays if encoding takes less time than writing vectors, as on a device; [Spool] is
// for the other cases. Vectors are rounded to float16, so that they equal those of a spool.
type Collection struct {
	encoder *Encoder
	open    func(context.Context) iter.Seq2[Text, error]
	survey  Survey
	report  Report
	rows    []uint32 // vectors of each text
	ids     []string // nil means that ids are row numbers
	vectors kernels.ResidentVectors

	payloads *payloads // nil if vectors is nil
}

// NewCollection reads the texts that open returns, each time from the first one on, and
// tokenizes all of them on all processors to learn how many vectors each text has.
// If one device encodes, it encodes them at the same time.
//
// Errors: those of [SurveyTexts] and of the tokenizer, and
// [errors.ErrUnsupported] for an encoder that pools vectors or uses a server.
func NewCollection(
	ctx context.Context, e *Encoder, open func(context.Context) iter.Seq2[Text, error],
) (*Collection, error) {
	l, ok := e.backend.(*local)
	if !ok || e.config.Pools() {
		return nil, fmt.Errorf("%w: the number of vectors of a text is known only when it is encoded",
			errors.ErrUnsupported)
	}
	// Tokenize on all processors.
	type counted struct {
		text  inspectedText
		seq   sequence
		empty bool
		kept  int
	}
	texts := parallel.Map(ctx, open(ctx), max(l.threads, 1), textBytes, func(t Text) (c counted, err error) {
		c.text = inspect(t)
		trimmed, _ := e.trimText(Document, t.Full())
		if c.empty = trimmed == ""; !c.empty {
			c.seq, err = l.buildSequence(Document, trimmed, false)
		}
		if err != nil {
			return c, t.ErrorAt(-1, err)
		}
		for i := range c.seq.ids {
			if l.keepsVector(Document, c.seq, i) {
				c.kept++
			}
		}
		return c, nil
	})
	// Survey the texts in their order, and encode them if the vectors can stay on a device.
	c := &Collection{encoder: e, open: open}
	resident, err := e.beginResident(ctx)
	if err != nil {
		return nil, err
	}
	defer resident.close()
	survey, err := surveyTexts(func(yield func(inspectedText, error) bool) {
		for t, err := range texts {
			if err == nil {
				row := len(c.rows)
				c.rows = append(c.rows, uint32(t.kept))
				if t.text.ID != "" {
					c.ids = append(c.ids, t.text.ID)
				}
				c.report.addCounts(t.kept, len(t.seq.ids), t.empty, &t.seq)
				if resident != nil {
					text := Text{ID: t.text.ID, From: t.text.From}
					err = resident.addText(chunkText{text: text, seq: t.seq, row: row}, t.text.Payload, t.kept)
				}
			}
			if !yield(t.text, err) {
				return
			}
		}
	})
	if resident != nil && err == nil {
		c.vectors, c.payloads, err = resident.finish()
	}
	if err != nil {
		return nil, err
	}
	c.survey = *survey
	return c, nil
}

func textBytes(t Text) int { return len(t.ID) + len(t.Title) + len(t.Text) + len(t.Payload) }

// Survey returns the survey of the texts.
func (c *Collection) Survey() Survey { return c.survey }

// Report returns the counts of encoding all texts once.
func (c *Collection) Report() Report { return c.report }

// Tag identifies the texts and the settings that their vectors depend on.
func (c *Collection) Tag() string {
	return "plaid encode " + c.encoder.config.Fingerprint + "\n" + c.survey.Sum
}

// Dim implements [vectors.Source].
func (c *Collection) Dim() int {
	if c.report.Vectors == 0 {
		return 0
	}
	return c.encoder.Dim()
}

// Len implements [vectors.Source].
func (c *Collection) Len() int { return len(c.rows) }

// Rows implements [vectors.Source].
func (c *Collection) Rows(i int) int { return int(c.rows[i]) }

// ID implements [vectors.Source].
func (c *Collection) ID(i int) string {
	if c.ids == nil {
		return strconv.Itoa(i)
	}
	return c.ids[i]
}

// Close implements [vectors.Source]. The encoder stays open.
func (c *Collection) Close() error {
	c.DropVectors()
	if c.payloads == nil {
		return nil
	}
	err := c.payloads.close()
	c.payloads = nil
	return err
}

// Vectors implements [vectors.Resident].
func (c *Collection) Vectors() kernels.ResidentVectors { return c.vectors }

// DropVectors implements [vectors.Resident].
func (c *Collection) DropVectors() {
	if c.vectors != nil {
		c.vectors.Release()
		c.vectors = nil
	}
}

// DocsWithoutTokens implements [vectors.Resident]. It does not read the texts again: the payloads are in an
// unnamed file.
func (c *Collection) DocsWithoutTokens(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		_, err := c.rowRange(from, to)
		if err == nil && c.payloads == nil {
			err = fmt.Errorf("documents of a collection without their tokens: %w", os.ErrClosed)
		}
		for i := from; i < to && err == nil; i++ {
			d := vectors.Document{ID: c.ID(i)}
			if err = ctx.Err(); err == nil {
				d.Payload, err = c.payloads.get(i)
			}
			if err == nil && !yield(d, nil) {
				return
			}
		}
		if err != nil {
			yield(vectors.Document{}, err)
		}
	}
}

// rangeError returns the error of a range, from (inclusive) to to (exclusive), outside of n documents.
func rangeError(from, to, n int) error {
	return fmt.Errorf("%w: documents %d to %d asked of %d", vectors.ErrShape, from, to, n)
}

// rowRange returns the rows from, from+1, …, to-1.
func (c *Collection) rowRange(from, to int) ([]int, error) {
	if from < 0 || to > c.Len() || from > to {
		return nil, rangeError(from, to, c.Len())
	}
	rows := make([]int, to-from)
	for i := range rows {
		rows[i] = from + i
	}
	return rows, nil
}

// Docs implements [vectors.Source]. If the vectors are not on a device, it reads all texts before
// the first one as well.
func (c *Collection) Docs(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	rows, err := c.rowRange(from, to)
	if err != nil {
		return func(yield func(vectors.Document, error) bool) { yield(vectors.Document{}, err) }
	}
	return c.Select(ctx, rows)
}

// Select implements [vectors.Selector].
func (c *Collection) Select(ctx context.Context, rows []int) iter.Seq2[vectors.Document, error] {
	if v := c.vectors; v != nil && int64(v.Len()) <= math.MaxUint32 { // its Read has row numbers of 32 bits
		return c.readFromDevice(ctx, v, rows)
	}
	return func(yield func(vectors.Document, error) bool) {
		next := 0
		rounding := &encodeCall{role: Document, acceptsHalves: true, mustRound: true}
		for d, err := range c.encoder.documents(ctx, rounding, c.textsOfRows(ctx, rows), new(Report)) {
			if err != nil {
				yield(vectors.Document{}, err)
				return
			}
			d.ID = c.ID(rows[next])
			next++
			if !yield(d, nil) {
				return
			}
		}
	}
}

// textsOfRows yields the texts of ascending rows. If the rows include the last text, it also
// checks that no further text follows.
func (c *Collection) textsOfRows(ctx context.Context, rows []int) iter.Seq2[Text, error] {
	return func(yield func(Text, error) bool) {
		if len(rows) == 0 {
			return
		}
		last := rows[len(rows)-1]
		row := 0  // of the text that was read
		next := 0 // index in rows of the next text to yield
		for t, err := range c.survey.VerifyUnchanged(c.open(ctx)) {
			switch {
			case err != nil:
				yield(t, err)
				return
			case row > last && last < c.Len()-1:
				return // not at the end: only a reader of the last text learns whether more follow
			case next < len(rows) && row == rows[next]:
				if !yield(t, nil) {
					return
				}
				next++
			}
			row++
		}
	}
}

// roundVectors rounds the vectors of a chunk to float16, if its call requires it and the backend
// has not done so.
func (c *chunk) roundVectors() error {
	if !c.call.mustRound || c.rounded {
		return nil
	}
	for i := range c.texts {
		v := c.texts[i].vectors
		c.halves = slices.Grow(c.halves[:0], 2*len(v))[:2*len(v)]
		if !floats.EncodeFloat16(c.halves, v) {
			return fmt.Errorf("%w: not finite, as float16", vectors.ErrValue)
		}
		floats.DecodeFloat16(v, c.halves)
	}
	return nil
}
