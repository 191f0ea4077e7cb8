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
	return c.storeDocuments(ctx, docs, false)
}

// Update stores documents as Add does, each in the place of the one with its id, if that is
// there: all that was stored of that one is gone, its passages too. A document that is called as
// a passage of another one is ([vectors.Passage]), or would be, is [ErrDuplicateID] here, too.
func (c *Collection) Update(ctx context.Context, docs ...Document) (ids []string, err error) {
	return c.storeDocuments(ctx, docs, true)
}

func (c *Collection) storeDocuments(ctx context.Context, docs []Document, replace bool) (ids []string, err error) {
	defer func() { err = c.toError(err) }()
	if c.opts.ReadOnly {
		return nil, ErrReadOnly
	}
	if len(docs) == 0 {
		return nil, nil
	}
	texts, err := c.checkedTexts(docs)
	if err != nil {
		return nil, err
	}
	dim, err := c.checkIndex(ctx, docs, replace)
	if err != nil {
		return nil, err
	}
	rows, origins, err := c.encode(ctx, docs, texts, dim)
	if err != nil {
		return nil, err
	}
	u := collection.UpdateOptions{Replace: replace}
	if !c.opts.AnyModel && slices.ContainsFunc(docs, isText) {
		u.Model = c.model
	}
	r, err := c.docs.Update(ctx, rows, u)
	if err != nil {
		var fault *collection.DocumentError // counts passages
		if errors.As(err, &fault) && fault.Document < len(origins) {
			fault.Document = origins[fault.Document].document
			fault.ID = docs[fault.Document].ID
		}
		return nil, err
	}
	ids = make([]string, len(docs))
	for i, id := range r.IDs {
		if doc := origins[i].document; origins[i].passage {
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

// checkedTexts returns the texts to encode and store, one for each document. Faults of a document are
// found before any text is encoded. A text without an id gets a random one, after which its
// passages would be named.
func (c *Collection) checkedTexts(docs []Document) ([]encode.Text, error) {
	texts := make([]encode.Text, len(docs))
	indices := make(map[string]int, len(docs))
	for i, d := range docs {
		payload, err := c.storedPayload(&d)
		first, twice := indices[d.ID]
		if err == nil && d.ID != "" && twice {
			err = fmt.Errorf("%w: document %d has the same", ErrDuplicateID, first)
		}
		if err != nil {
			return nil, documentError(i, &d, err)
		}
		indices[d.ID] = i
		texts[i] = encode.Text{ID: cmp.Or(d.ID, rand.Text()), Title: d.Title, Text: d.Text, Payload: payload}
	}
	return texts, nil
}

// checkIndex refuses texts that the index cannot take and ids that are in use, before any text is
// encoded. It returns the dimension of the index.
func (c *Collection) checkIndex(ctx context.Context, docs []Document, replace bool) (dim int, err error) {
	v, err := c.docs.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	snap := v.Snapshot()
	hasModel := c.opts.Encoder != nil || c.opts.Model != ""
	if !c.opts.AnyModel && snap.Header().Model == nil && hasModel && slices.ContainsFunc(docs, isText) {
		return 0, fmt.Errorf("%w: the index names no model; set Options.AnyModel to add texts anyway", ErrModel)
	}
	arrivals := make([]index.Arrival, 0, len(docs))
	indices := make([]int, 0, len(docs))
	for i := range docs {
		if docs[i].ID != "" {
			arrivals, indices = append(arrivals, index.Arrival{ID: docs[i].ID}), append(indices, i)
		}
	}
	_, err = index.NewAdmission(snap).Admit(ctx, arrivals, replace)
	var refused *index.ArrivalError
	if errors.As(err, &refused) {
		i := indices[refused.Row]
		err = documentError(i, &docs[i], refused.Err)
	}
	return v.Dim(), err
}

// origin tells which document of the call a stored row belongs to, and whether it is a passage.
type origin struct {
	document int
	passage  bool
}

// encode makes the rows that are stored of documents.
func (c *Collection) encode(ctx context.Context, docs []Document, texts []encode.Text,
	dim int) (out []collection.DocumentInput, rowOrigins []origin, err error) {
	next := 0
	vectorsOnly := func(before int) {
		for ; next < before; next++ {
			if d := &docs[next]; !isText(*d) {
				out = append(out, collection.DocumentInput{
					ID: d.ID, Vectors: d.Vectors, Dim: dim, Metadata: texts[next].Payload, KeepMetadata: d.KeepPayload,
				})
				rowOrigins = append(rowOrigins, origin{document: next})
			}
		}
	}
	if !slices.ContainsFunc(docs, isText) {
		vectorsOnly(len(docs))
		return out, rowOrigins, nil
	}
	e, err := c.openEncoder(ctx)
	if err != nil {
		return nil, nil, err
	}
	how, err := c.splitting(e)
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
				ErrTooLong, e.Config().Document.Length, report.Dropped, lengthAdvice(how))
			return nil, nil, documentError(from, &docs[from], err)
		}
		vectorsOnly(from)
		tokens := slices.Clone(d.Tokens)
		out = append(out, collection.DocumentInput{
			ID: d.ID, Vectors: tokens, Dim: e.Dim(), Metadata: d.Payload, KeepMetadata: docs[from].KeepPayload,
		})
		rowOrigins = append(rowOrigins, row)
		n++
	}
	vectorsOnly(len(docs))
	if report.Unknown > 0 && c.opts.Logger != nil {
		c.opts.Logger.WarnContext(ctx, "texts are mostly unknown to the model: vectors hardly find them", "path", c.path, "texts", report.Unknown)
	}
	return out, rowOrigins, nil
}

// lengthAdvice names the remedy for a text that the model would cut.
func lengthAdvice(how *encode.Splitting) string {
	if how == nil {
		return "shorten the text, or allow passages (Options.Whole)"
	}
	return "shorten the title, which each passage repeats"
}

// remoteWords is the number of words in a passage if the number of tokens that the model reads is
// unknown.
const remoteWords = 120

// splitting returns how texts are split; nil means that they are stored whole.
func (c *Collection) splitting(e *encode.Encoder) (*encode.Splitting, error) {
	if c.opts.Whole {
		return nil, nil
	}
	model := e.Config()
	how := &encode.Splitting{}
	if c.opts.Passages != nil {
		*how = *c.opts.Passages
	} else if model.Tokenizer == nil {
		how.Window = remoteWords
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
