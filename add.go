package plaid

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/index"
)

// Add stores documents, all of them or none: one that is there already is [ErrDuplicateID]. It
// returns their ids. A text longer than the model reads is split into passages
// ([Options.Passages]); no part of a text is dropped. The vectors of all documents of one call are
// held in memory, about 60 KiB for a text of 120 words at 128 dimensions, so add many thousands of
// documents in several calls.
//
// [vectors.CheckDocument] has the rules for a document. One without a text, or with white space alone,
// and without vectors is stored too: conditions, keywords and Get find it, searches for vectors do not.
// Its vectors may come later, by an Update.
//
// Errors: a document that cannot be stored is a [*collection.DocumentError], around
// [ErrText], [ErrTooLong], [ErrPayload], [ErrID], [ErrDimension], [ErrDuplicateID] or the like; further
// [ErrReadOnly], [ErrModel] if the index does not say which model made its vectors (see
// [Options.AnyModel]), [collection.ErrBusy], those of the encoder, and that of ctx, after
// which nothing is stored.
func (c *Collection) Add(ctx context.Context, docs ...Document) (ids []string, err error) {
	return c.store(ctx, docs, false)
}

// Update stores documents as Add does, each in the place of the one with its id, if that is
// there: all that was stored of that one is gone, its passages too. A document that is called as
// a passage of another one is ([vectors.Passage]), or would be, is [ErrDuplicateID] here, too.
func (c *Collection) Update(ctx context.Context, docs ...Document) (ids []string, err error) {
	return c.store(ctx, docs, true)
}

func (c *Collection) store(ctx context.Context, docs []Document, replace bool) (ids []string, err error) {
	defer func() { err = c.fault(err) }()
	if c.o.ReadOnly {
		return nil, ErrReadOnly
	}
	if len(docs) == 0 {
		return nil, nil
	}
	texts, err := c.texts(docs)
	if err != nil {
		return nil, err
	}
	dim, err := c.checkIndex(ctx, docs, replace)
	if err != nil {
		return nil, err
	}
	all, of, err := c.encode(ctx, docs, texts, dim)
	if err != nil {
		return nil, err
	}
	u := collection.UpdateOptions{Replace: replace}
	if !c.o.AnyModel && slices.ContainsFunc(docs, isText) {
		u.Model = c.model
	}
	done, err := c.begin()
	if err != nil {
		return nil, err
	}
	defer done()
	r, err := c.docs.Update(ctx, all, u)
	if err != nil {
		var fault *collection.DocumentError // counts passages
		if errors.As(err, &fault) && fault.Document < len(of) {
			fault.Document = of[fault.Document].document
			fault.ID = docs[fault.Document].ID
		}
		return nil, err
	}
	ids = make([]string, len(docs))
	for i, id := range r.IDs {
		if doc := of[i].document; of[i].passage {
			ids[doc] = texts[doc].ID
		} else {
			ids[doc] = id
		}
	}
	return ids, nil
}

// isText reports whether a document is encoded. One without a text and vectors has no tokens.
func isText(d Document) bool { return d.Vectors == nil && d.Title+d.Text != "" }

func documentError(i int, d *Document, err error) error {
	return &collection.DocumentError{Document: i, ID: d.ID, Token: -1, Err: err}
}

// texts returns the texts to encode and store, one for each document. Faults of a document are
// found before any text is encoded. A text without an id gets a random one, after which its
// passages would be named.
func (c *Collection) texts(docs []Document) ([]encode.Text, error) {
	texts := make([]encode.Text, len(docs))
	places := make(map[string]int, len(docs))
	for i, d := range docs {
		payload, err := c.payloadOf(&d)
		first, twice := places[d.ID]
		if err == nil && d.ID != "" && twice {
			err = fmt.Errorf("%w: document %d has the same", ErrDuplicateID, first)
		}
		if err != nil {
			return nil, documentError(i, &d, err)
		}
		places[d.ID] = i
		texts[i] = encode.Text{ID: cmp.Or(d.ID, rand.Text()), Title: d.Title, Text: d.Text, Payload: payload}
	}
	return texts, nil
}

// checkIndex refuses texts that the index cannot take and ids that are in use, before any text is
// encoded. It returns the dimension of the index.
func (c *Collection) checkIndex(ctx context.Context, docs []Document, replace bool) (dim int, err error) {
	err = c.read(ctx, func(ctx context.Context, v *store.Snapshot) error {
		dim = v.Dim()
		return c.checkSnapshot(ctx, v, docs, replace)
	})
	return dim, err
}

func (c *Collection) checkSnapshot(ctx context.Context, v *store.Snapshot, docs []Document, replace bool) error {
	snap := v.Snapshot()
	given := c.o.Encoder != nil || c.o.Model != ""
	if !c.o.AnyModel && snap.Header().Model == nil && given && slices.ContainsFunc(docs, isText) {
		return fmt.Errorf("%w: the index names no model; set Options.AnyModel to add texts anyway", ErrModel)
	}
	rows := make([]index.Arrival, 0, len(docs))
	places := make([]int, 0, len(docs))
	for i := range docs {
		if docs[i].ID != "" {
			rows, places = append(rows, index.Arrival{ID: docs[i].ID}), append(places, i)
		}
	}
	_, err := index.NewAdmission(snap).Admit(ctx, rows, replace)
	var refused *index.ArrivalError
	if errors.As(err, &refused) {
		i := places[refused.Row]
		err = documentError(i, &docs[i], refused.Err)
	}
	return err
}

// origin tells which document of the call a stored row belongs to, and whether it is a passage.
type origin struct {
	document int
	passage  bool
}

// encode makes the rows that are stored of documents.
func (c *Collection) encode(ctx context.Context, docs []Document, texts []encode.Text,
	dim int) (out []collection.DocumentInput, of []origin, err error) {
	next := 0
	vectorsOnly := func(before int) {
		for ; next < before; next++ {
			if d := &docs[next]; !isText(*d) {
				out = append(out, collection.DocumentInput{
					ID: d.ID, Vectors: d.Vectors, Dim: dim, Metadata: texts[next].Payload, KeepMetadata: d.KeepPayload,
				})
				of = append(of, origin{document: next})
			}
		}
	}
	if !slices.ContainsFunc(docs, isText) {
		vectorsOnly(len(docs))
		return out, of, nil
	}
	e, err := c.openEncoder(ctx)
	if err != nil {
		return nil, nil, err
	}
	how, err := c.parting(e)
	if err != nil {
		return nil, nil, err
	}
	var report encode.Report
	var mu sync.Mutex    // texts are read ahead
	var origins []origin // of the texts that are encoded
	sequence := func(yield func(encode.Text, error) bool) {
		for i := range docs {
			if !isText(docs[i]) {
				continue
			}
			for t, err := range passages(ctx, texts[i], how) {
				whole := t.ID == texts[i].ID
				mu.Lock()
				origins = append(origins, origin{i, !whole})
				mu.Unlock()
				if whole {
					t.ID = docs[i].ID // which may be left to the index
				}
				if !yield(t, err) || err != nil {
					return
				}
			}
		}
	}
	n := 0
	for d, err := range e.DocumentsReport(ctx, sequence, &report) {
		var text *encode.TextError // ends the sequence in the place of its document
		if err != nil && !errors.As(err, &text) {
			return nil, nil, err
		}
		mu.Lock()
		row := origins[n]
		mu.Unlock()
		from := row.document
		if err != nil {
			return nil, nil, documentError(from, &docs[from], text.Err)
		}
		if report.Truncated > 0 {
			err := fmt.Errorf("%w: at most %d tokens, including those around the text; %d would be dropped; %s",
				ErrTooLong, e.Config().Document.Length, report.Dropped, cure(how))
			return nil, nil, documentError(from, &docs[from], err)
		}
		vectorsOnly(from)
		tokens := slices.Clone(d.Tokens)
		out = append(out, collection.DocumentInput{
			ID: d.ID, Vectors: tokens, Dim: e.Dim(), Metadata: d.Payload, KeepMetadata: docs[from].KeepPayload,
		})
		of = append(of, row)
		n++
	}
	vectorsOnly(len(docs))
	if report.Unknown > 0 && c.o.Logger != nil {
		c.o.Logger.WarnContext(ctx, "texts are mostly unknown to the model: vectors hardly find them", "path", c.path, "texts", report.Unknown)
	}
	return out, of, nil
}

// cure names the remedy for a text that the model would cut.
func cure(how *encode.Splitting) string {
	if how == nil {
		return "shorten the text, or allow passages (Options.Whole)"
	}
	return "shorten the title, which each passage repeats"
}

// serverWords is the number of words in a passage if the number of tokens that the model reads is
// unknown.
const serverWords = 120

// parting returns how texts are split; nil means that they are stored whole.
func (c *Collection) parting(e *encode.Encoder) (*encode.Splitting, error) {
	if c.o.Whole {
		return nil, nil
	}
	model := e.Config()
	how := &encode.Splitting{}
	if c.o.Passages != nil {
		*how = *c.o.Passages
	} else if model.Tokenizer == nil {
		how.Window = serverWords
	}
	if how.Model == nil {
		how.Model = &model
	}
	if err := how.Check(); err != nil {
		return nil, fmt.Errorf("%w: Passages: %w", ErrOption, err)
	}
	return how, nil
}

// passages returns the passages of a text, or the text itself, each with the payload to store.
func passages(ctx context.Context, t encode.Text, how *encode.Splitting) iter.Seq2[encode.Text, error] {
	one := encode.Texts(t)
	if how == nil {
		return one
	}
	return func(yield func(encode.Text, error) bool) {
		for p, err := range encode.Passages(ctx, one, *how) {
			if err == nil && p.ID != t.ID {
				p.Payload, err = withText(p.Payload, p.Title, p.Text)
			}
			if !yield(p, err) {
				return
			}
		}
	}
}
