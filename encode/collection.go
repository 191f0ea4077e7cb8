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

// Collection is texts as a [vectors.Source] without a file of vectors. Where one device encodes, and
// half of its free memory holds the vectors of all texts, they stay there ([vectors.Resident]), and
// Docs reads them. Otherwise it reads and encodes texts each time that it is called: that pays where
// encoding takes less time than writing vectors, as on a device; elsewhere there is [Spool].
// Vectors are rounded to halves, so they are those of a spool.
type Collection struct {
	e       *Encoder
	open    func(context.Context) iter.Seq2[Text, error]
	survey  Survey
	report  Report
	rows    []uint32
	ids     []string // nil: row numbers
	vectors kernels.ResidentVectors

	payloads *payloads // while there are vectors
}

// NewCollection goes through texts, which open gives from the first one on each time, and
// makes ids of all of them, on all processors: then it is known how many vectors each has.
// One device encodes them at the same time.
//
// Errors: those of [SurveyTexts] and of the tokenizer, and
// [errors.ErrUnsupported] for an encoder that pools vectors or asks a server.
func NewCollection(ctx context.Context, e *Encoder, open func(context.Context) iter.Seq2[Text, error]) (*Collection, error) {
	l, ok := e.backend.(*local)
	if !ok || e.config.Pools() {
		return nil, fmt.Errorf("%w: the number of vectors of a text is known only when it is encoded", errors.ErrUnsupported)
	}
	type counted struct {
		text  seenText
		seq   sequence
		empty bool
		kept  int
	}
	texts := parallel.Map(ctx, open(ctx), max(l.threads, 1), textBytes, func(t Text) (c counted, err error) {
		c.text = see(t)
		trimmed, _ := e.trim(Document, t.Full())
		if c.empty = trimmed == ""; !c.empty {
			c.seq, err = l.sequence(Document, trimmed, false)
		}
		if err != nil {
			return c, t.Fault(-1, err)
		}
		for i := range c.seq.ids {
			if l.keeps(Document, c.seq, i) {
				c.kept++
			}
		}
		return c, nil
	})
	c := &Collection{e: e, open: open}
	resident, err := e.encodeResident(ctx)
	if err != nil {
		return nil, err
	}
	defer resident.close()
	survey, err := surveyTexts(func(yield func(seenText, error) bool) {
		for t, err := range texts {
			if err == nil {
				row := len(c.rows)
				c.rows = append(c.rows, uint32(t.kept))
				if t.text.ID != "" {
					c.ids = append(c.ids, t.text.ID)
				}
				c.report.add(t.kept, len(t.seq.ids), t.empty, &t.seq)
				if resident != nil {
					text := Text{ID: t.text.ID, From: t.text.From}
					err = resident.add(entry{text: text, seq: t.seq, row: row}, t.text.Payload, t.kept)
				}
			}
			if !yield(t.text, err) {
				return
			}
		}
	})
	if resident != nil && err == nil {
		c.vectors, c.payloads, err = resident.end()
	}
	if err != nil {
		return nil, err
	}
	c.survey = *survey
	return c, nil
}

func textBytes(t Text) int { return len(t.ID) + len(t.Title) + len(t.Text) + len(t.Payload) }

// Survey is what was found of the texts.
func (c *Collection) Survey() Survey { return c.survey }

// Report is what encoding all of them once comes to.
func (c *Collection) Report() Report { return c.report }

// Tag stands for the texts and for what makes their vectors.
func (c *Collection) Tag() string {
	return "plaid encode " + c.e.config.Fingerprint + "\n" + c.survey.Sum
}

// Dim implements [vectors.Source].
func (c *Collection) Dim() int {
	if c.report.Vectors == 0 {
		return 0
	}
	return c.e.Dim()
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

// Bare implements [vectors.Resident]. It does not read texts again: payloads wait in an unnamed
// file.
func (c *Collection) Bare(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		_, err := c.between(from, to)
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

// between are the rows from from to to.
func (c *Collection) between(from, to int) ([]int, error) {
	if from < 0 || to > c.Len() || from > to {
		return nil, fmt.Errorf("%w: documents %d to %d asked of %d", vectors.ErrShape, from, to, c.Len())
	}
	rows := make([]int, to-from)
	for i := range rows {
		rows[i] = from + i
	}
	return rows, nil
}

// Docs implements [vectors.Source]. Where it reads texts, these are all before the first one as well.
func (c *Collection) Docs(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	rows, err := c.between(from, to)
	if err != nil {
		return func(yield func(vectors.Document, error) bool) { yield(vectors.Document{}, err) }
	}
	return c.Pick(ctx, rows)
}

// Pick implements [vectors.Picker].
func (c *Collection) Pick(ctx context.Context, rows []int) iter.Seq2[vectors.Document, error] {
	if v := c.vectors; v != nil && int64(v.Len()) <= math.MaxUint32 {
		return c.fromDevice(ctx, v, rows)
	}
	return func(yield func(vectors.Document, error) bool) {
		next := 0
		for d, err := range c.e.documents(ctx, &call{role: Document, halves: true, round: true}, c.texts(ctx, rows), new(Report)) {
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

// texts are those of ascending rows. With the last one goes that none comes behind it.
func (c *Collection) texts(ctx context.Context, rows []int) iter.Seq2[Text, error] {
	return func(yield func(Text, error) bool) {
		if len(rows) == 0 {
			return
		}
		last := rows[len(rows)-1]
		row, at := 0, 0
		for t, err := range c.survey.Same(c.open(ctx)) {
			switch {
			case err != nil:
				yield(t, err)
				return
			case row > last && last < c.Len()-1:
				return
			case at < len(rows) && row == rows[at]:
				if !yield(t, nil) {
					return
				}
				at++
			}
			row++
		}
	}
}

// round makes halves of the vectors of a chunk, where its call is for them and they are none.
func (c *chunk) round() error {
	if !c.of.round || c.rounded {
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
