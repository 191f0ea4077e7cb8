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

// Add stores documents, all of them or none. It returns their ids. An id that is in use is [ErrDuplicateID]. A text
// that is longer than the model reads is split into passages ([Options.Passages]), so that no part of it is lost. The
// vectors of all documents of one call are held in memory, about 60 KiB for a text of 120 words at 128 dimensions, so
// add many thousands of documents in several calls.
//
// [vectors.CheckDocument] has the rules for a document. A document without vectors and text is stored
// too, also if its text is white space: conditions, keywords and Get find it, searches for vectors do not. An Update
// can add its vectors later.
//
// Errors: a document that cannot be stored is a [*collection.DocumentError], which wraps [ErrText], [ErrTooLong],
// [ErrPayload], [ErrID], [ErrDimension], [ErrDuplicateID] or the like. Further errors are [ErrReadOnly], [ErrModel] if
// the index does not say which model made its vectors (see [Options.AnyModel]), [collection.ErrBusy], those of the
// encoder, and that of ctx, after which nothing is stored.
func (c *Collection) Add(ctx context.Context, docs ...Document) (ids []string, err error) {
	return c.storeDocuments(ctx, docs, false)
}

// Update stores documents as Add does. A document replaces the stored one with its id, if there is one, with all its
// passages. An id that is, or would be, that of a passage of another document ([vectors.Passage]) is [ErrDuplicateID].
func (c *Collection) Update(ctx context.Context, docs ...Document) (ids []string, err error) {
	return c.storeDocuments(ctx, docs, true)
}

// storeDocuments is Add, or with replace Update.
func (c *Collection) storeDocuments(ctx context.Context, docs []Document, replace bool) (ids []string, err error) {
	defer func() { err = c.toError(err) }()
	if c.opts.ReadOnly {
		return nil, ErrReadOnly
	}
	if len(docs) == 0 {
		return nil, nil
	}
	// Check the documents, and encode them.
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
	// Store them.
	u := collection.UpdateOptions{Replace: replace}
	if !c.opts.AnyModel && slices.ContainsFunc(docs, isText) {
		u.Model = c.model
	}
	done, err := c.beginCall()
	if err != nil {
		return nil, err
	}
	defer done()
	r, err := c.docs.Update(ctx, rows, u)
	if err != nil {
		var fault *collection.DocumentError // its index counts passages: turn it into that of the document
		if errors.As(err, &fault) && fault.Document < len(origins) {
			fault.Document = origins[fault.Document].document
			fault.ID = docs[fault.Document].ID
		}
		return nil, err
	}
	// Return the ids of documents, not those of passages.
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

// isText reports whether the text of a document is encoded. It is not if the document has vectors, or no text.
func isText(d Document) bool { return d.Vectors == nil && d.Title+d.Text != "" }

// documentError returns an error about the i-th document of a call.
func documentError(i int, d *Document, err error) error {
	return &collection.DocumentError{Document: i, ID: d.ID, Token: -1, Err: err}
}

// checkedTexts returns the texts of documents, one for each, with the payload to store. It checks the documents, so
// that faults are found before anything is encoded. A text without an id gets a random one, which its passages would be
// named after.
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

// checkIndex checks documents against the index, so that texts of another model and ids in use are refused before
// anything is encoded. It returns the dimension of the index.
func (c *Collection) checkIndex(ctx context.Context, docs []Document, replace bool) (dim int, err error) {
	err = c.read(ctx, func(ctx context.Context, v *store.Snapshot) error {
		dim = v.Dim()
		return c.checkSnapshot(ctx, v, docs, replace)
	})
	return dim, err
}

// checkSnapshot refuses texts if the index names no model, and ids that are in use, unless replace allows them. A
// refused document is a [*collection.DocumentError].
func (c *Collection) checkSnapshot(ctx context.Context, v *store.Snapshot, docs []Document, replace bool) error {
	snap := v.Snapshot()
	hasModel := c.opts.Encoder != nil || c.opts.Model != ""
	if !c.opts.AnyModel && snap.Header().Model == nil && hasModel && slices.ContainsFunc(docs, isText) {
		return fmt.Errorf("%w: the index names no model; set Options.AnyModel to add texts anyway", ErrModel)
	}
	arrivals := make([]index.Arrival, 0, len(docs))
	indices := make([]int, 0, len(docs))
	for i := range docs {
		if docs[i].ID != "" {
			arrivals, indices = append(arrivals, index.Arrival{ID: docs[i].ID}), append(indices, i)
		}
	}
	_, err := index.NewAdmission(snap).Admit(ctx, arrivals, replace)
	var refused *index.ArrivalError
	if errors.As(err, &refused) {
		i := indices[refused.Row]
		err = documentError(i, &docs[i], refused.Err)
	}
	return err
}

// origin says which document of the call a stored row belongs to, and whether the row is a passage.
type origin struct {
	document int
	passage  bool
}

// encode returns the rows to store for documents, in their order, and the origin of each row.
func (c *Collection) encode(ctx context.Context, docs []Document, texts []encode.Text,
	dim int) (out []collection.DocumentInput, rowOrigins []origin, err error) {
	// addUnencoded adds the documents before an index that are not encoded.
	next := 0
	addUnencoded := func(before int) {
		for ; next < before; next++ {
			if d := &docs[next]; !isText(*d) {
				out = append(out, collection.DocumentInput{
					ID:           d.ID,
					Vectors:      d.Vectors,
					Dim:          dim,
					Metadata:     texts[next].Payload,
					KeepMetadata: d.KeepPayload,
				})
				rowOrigins = append(rowOrigins, origin{document: next})
			}
		}
	}
	if !slices.ContainsFunc(docs, isText) {
		addUnencoded(len(docs))
		return out, rowOrigins, nil
	}
	// Open the encoder.
	e, err := c.openEncoder(ctx)
	if err != nil {
		return nil, nil, err
	}
	splitting, err := c.splitting(e)
	if err != nil {
		return nil, nil, err
	}
	// sequence yields the texts and passages to encode. The encoder reads ahead in another goroutine, so the origins
	// that it notes are shared.
	var report encode.Report
	var mu sync.Mutex
	var encodedOrigins []origin
	sequence := func(yield func(encode.Text, error) bool) {
		for i := range docs {
			if !isText(docs[i]) {
				continue
			}
			for t, err := range passages(ctx, texts[i], splitting) {
				unsplit := t.ID == texts[i].ID
				mu.Lock()
				encodedOrigins = append(encodedOrigins, origin{i, !unsplit})
				mu.Unlock()
				if unsplit {
					t.ID = docs[i].ID // "" lets the index choose the id
				}
				if !yield(t, err) || err != nil {
					return
				}
			}
		}
	}
	// Add the encoded rows, and before each the documents that are not encoded.
	encoded := 0
	for d, err := range e.DocumentsReport(ctx, sequence, &report) {
		var textErr *encode.TextError // of the text at which the sequence has ended
		if err != nil && !errors.As(err, &textErr) {
			return nil, nil, err
		}
		mu.Lock()
		row := encodedOrigins[encoded]
		mu.Unlock()
		document := row.document
		if err != nil {
			return nil, nil, documentError(document, &docs[document], textErr.Err)
		}
		if report.Truncated > 0 {
			err := fmt.Errorf("%w: at most %d tokens, including those around the text; %d would be dropped; %s",
				ErrTooLong, e.Config().Document.Length, report.Dropped, lengthAdvice(splitting))
			return nil, nil, documentError(document, &docs[document], err)
		}
		addUnencoded(document)
		tokens := slices.Clone(d.Tokens)
		out = append(out, collection.DocumentInput{
			ID:           d.ID,
			Vectors:      tokens,
			Dim:          e.Dim(),
			Metadata:     d.Payload,
			KeepMetadata: docs[document].KeepPayload,
		})
		rowOrigins = append(rowOrigins, row)
		encoded++
	}
	addUnencoded(len(docs))
	if report.Unknown > 0 && c.opts.Logger != nil {
		c.opts.Logger.WarnContext(ctx, "texts are mostly unknown to the model: searches for vectors hardly find them",
			"path", c.path, "texts", report.Unknown)
	}
	return out, rowOrigins, nil
}

// lengthAdvice returns what a user can do about a text that the model would cut.
func lengthAdvice(splitting *encode.Splitting) string {
	if splitting == nil {
		return "shorten the text, or allow passages (Options.Whole)"
	}
	return "shorten the title, which each passage repeats"
}

// remoteWords is the number of words in a passage if it is not known how many tokens the model reads.
const remoteWords = 120

// splitting returns how texts are split. A nil splitting means that they are stored whole.
func (c *Collection) splitting(e *encode.Encoder) (*encode.Splitting, error) {
	if c.opts.Whole {
		return nil, nil
	}
	model := e.Config()
	splitting := &encode.Splitting{}
	if c.opts.Passages != nil {
		*splitting = *c.opts.Passages
	} else if model.Tokenizer == nil {
		splitting.Window = remoteWords
	}
	if splitting.Model == nil {
		splitting.Model = &model
	}
	if err := splitting.Check(); err != nil {
		return nil, fmt.Errorf("%w: Passages: %w", ErrOption, err)
	}
	return splitting, nil
}

// passages yields the passages of a text, or the text itself, each with the payload to store.
func passages(ctx context.Context, t encode.Text, splitting *encode.Splitting) iter.Seq2[encode.Text, error] {
	whole := encode.Texts(t)
	if splitting == nil {
		return whole
	}
	return func(yield func(encode.Text, error) bool) {
		for p, err := range encode.Passages(ctx, whole, *splitting) {
			if err == nil && p.ID != t.ID {
				p.Payload, err = withText(p.Payload, p.Title, p.Text)
			}
			if !yield(p, err) {
				return
			}
		}
	}
}
