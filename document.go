package plaid

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/jsontext"
	"github.com/plaid-ir/plaid/vectors"
)

// Document is a text with the data that is stored with it.
type Document struct {
	// ID names the document. "" means its number, or a random id if its text is split.
	ID string
	// Title and Text are encoded, the title first, and stored with the vectors.
	Title, Text string
	// Payload is a JSON object with further fields, for conditions, searches by words and results, nil for none. It
	// must not have the fields title and text, in any case of letters, which Title and Text stand for, or fields that
	// begin with an underscore, which belong to plaid.
	Payload []byte
	// Vectors are [tokens, dim], row-major; Title and Text are then not encoded. If Vectors is nil, they are. An empty
	// slice that is not nil means that the document has no vectors, whatever its text.
	Vectors []float32
	// KeepPayload lets an Update keep the payload of the replaced document, including title and text, if this document
	// has none of the three. Vectors can be added to a document in this way. The text of a document that is stored as
	// passages is not kept.
	KeepPayload bool
}

// Fields of a stored payload with the title and the text of the document.
const titleField, textField = "title", "text"

// storedPayload checks a document, and returns the payload to store: its title and text, and then its payload.
func (c *Collection) storedPayload(d *Document) ([]byte, error) {
	err := vectors.CheckDocument(vectors.Draft{
		ID: d.ID, Title: d.Title, Text: d.Text, Payload: d.Payload, Split: !c.opts.Whole && isText(*d),
	})
	if err != nil {
		return nil, err
	}
	p := bytes.TrimSpace(d.Payload)
	if vectors.IsEmptyPayload(p) {
		p = nil
	}
	err = jsontext.Members(objectOrEmpty(p), func(key string, _ json.RawMessage) error {
		if isReservedField(key) {
			return fmt.Errorf("%w: it has the reserved field %q", ErrPayload, key)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return withText(p, d.Title, d.Text)
}

// isReservedField reports whether a payload must not have a field. The case of letters is ignored: JSON readers that
// ignore it would otherwise mistake the field for one of plaid's.
func isReservedField(key string) bool {
	fields := []string{titleField, textField, vectors.PassageField}
	return slices.ContainsFunc(fields, func(reserved string) bool { return strings.EqualFold(reserved, key) })
}

// objectOrEmpty returns a JSON object, or {} for nothing.
func objectOrEmpty(p []byte) []byte {
	if len(p) == 0 {
		return []byte("{}")
	}
	return p
}

// withText returns a payload with title and text, which replace those in it. Empty ones are left out.
func withText(payload []byte, title, text string) ([]byte, error) {
	out := []byte{'{'}
	for _, f := range []struct{ key, value string }{{titleField, title}, {textField, text}} {
		if f.value == "" {
			continue
		}
		text, err := jsontext.MarshalUnescaped(f.value)
		if err != nil {
			return nil, err
		}
		out = jsontext.AppendMember(out, f.key, text)
	}
	err := jsontext.Members(objectOrEmpty(payload), func(key string, value json.RawMessage) error {
		if key != titleField && key != textField {
			out = jsontext.AppendMember(out, key, value)
		}
		return nil
	})
	if len(out) == 1 {
		return nil, err
	}
	return append(out, '}'), err
}

// splitStored splits a stored payload into the title, the text and the user's payload.
func splitStored(id string, stored []byte) Document {
	d := Document{ID: id}
	payload := []byte{'{'}
	err := jsontext.Members(objectOrEmpty(stored), func(key string, value json.RawMessage) error {
		into := map[string]*string{titleField: &d.Title, textField: &d.Text}[key]
		if into != nil && json.Unmarshal(value, into) == nil || key == vectors.PassageField {
			return nil
		}
		payload = jsontext.AppendMember(payload, key, value)
		return nil
	})
	switch {
	case err != nil: // not an object: another program has stored it
		return Document{ID: id, Payload: stored}
	case len(payload) > 1:
		d.Payload = append(payload, '}')
	}
	return d
}

// maxGaps limits the white space between passages that Get restores: payloads say where passages are in the text, and
// that need not be true.
const maxGaps = 1 << 20

// Get returns a document as it was added, but without its vectors. The text of a document that was split into passages
// is put together from these, with blanks for the white space between them. The error is [ErrNotFound] if there is no
// such document.
func (c *Collection) Get(ctx context.Context, id string) (d Document, err error) {
	err = c.read(ctx, func(ctx context.Context, v *store.Snapshot) (err error) {
		d, err = readDocument(ctx, v.Snapshot(), id)
		return err
	})
	return d, c.toError(err)
}

// readDocument reads a document, and puts its text together if it is stored as passages.
func readDocument(ctx context.Context, snap *index.Snapshot, id string) (d Document, err error) {
	// Find the document, or its passages.
	named, _, err := snap.OrdinalsOfIDs(ctx, []string{id})
	if err != nil {
		return d, err
	}
	ordinals := named.ToArray()
	switch {
	case len(ordinals) == 0:
		return d, snap.NotFoundError(id)
	case snap.ID(ordinals[0]) == id:
		stored, err := snap.Payload(ordinals[0])
		return splitStored(id, slices.Clone(stored)), err
	}
	// Put the passages together.
	var text []byte
	remainingGaps := maxGaps // blanks that may still be added
	for i, ordinal := range ordinals {
		stored, err := snap.Payload(ordinal)
		if err != nil {
			return d, err
		}
		p := splitStored(id, slices.Clone(stored))
		passage, err := vectors.PassageFromPayload(snap.ID(ordinal), stored)
		if err == nil && passage != nil && passage.End-passage.Start == len(p.Text) {
			gap := passage.Start - len(text)
			if gap > remainingGaps { // the payloads lie about the positions: use one blank
				gap, passage.Start = 1, len(text)+1
			}
			remainingGaps -= max(gap, 0)
			if grow := passage.Start + len(p.Text) - len(text); grow > 0 {
				text = append(text, bytes.Repeat([]byte{' '}, grow)...)
			}
			copy(text[passage.Start:], p.Text)
		}
		if i == 0 {
			d = p
		}
	}
	d.Text = string(text)
	return d, nil
}

// Selection selects documents: those with ids, or those for which a condition is true ([condition.Parse]). Set one of
// the two. The id of a document selects all its passages, and that of a passage only this one. A condition selects the
// passages for which it is true.
type Selection struct {
	IDs   []string
	Where string
	Args  []any // the values of the condition's question marks
}

// toCollection checks the selection, and returns it in the form of package collection.
func (s *Selection) toCollection() (collection.Selection, error) {
	var selection collection.Selection
	switch {
	case s.IDs == nil && s.Where == "" && len(s.Args) == 0:
		return selection, fmt.Errorf("%w: it is empty: set IDs or Where", collection.ErrSelection)
	case s.IDs != nil && s.Where != "":
		return selection, fmt.Errorf("%w: set IDs or Where, not both", collection.ErrSelection)
	case s.Where == "" && len(s.Args) > 0:
		return selection, fmt.Errorf("%w: Args without Where", ErrOption)
	}
	selection.IDs = s.IDs
	var err error
	if s.Where != "" {
		selection.Where, err = bindCondition(s.Where, s.Args)
	}
	return selection, err
}

// bindCondition parses a condition and binds its arguments.
func bindCondition(where string, args []any) (*condition.Condition, error) {
	parsed, err := condition.Parse(where)
	if err != nil {
		return nil, err
	}
	return parsed.Bind(args...)
}

// Delete deletes documents and returns their count. Unknown ids are ignored. An empty selection is an error
// ([collection.ErrSelection]).
func (c *Collection) Delete(ctx context.Context, s Selection) (deleted index.Affected, err error) {
	defer func() { err = c.toError(err) }()
	if c.opts.ReadOnly {
		return index.Affected{}, ErrReadOnly
	}
	selection, err := s.toCollection()
	if err != nil {
		return index.Affected{}, err
	}
	done, err := c.beginCall()
	if err != nil {
		return index.Affected{}, err
	}
	defer done()
	return c.docs.Delete(ctx, selection)
}

// UpdatePayload sets fields of payloads to values that can be encoded as JSON. The value nil removes a field. Vectors
// stay as they are, so the fields title and text cannot be set. It returns the count of the documents that it changed.
func (c *Collection) UpdatePayload(ctx context.Context, s Selection,
	fields map[string]any) (updated index.Affected, err error) {
	defer func() { err = c.toError(err) }()
	if c.opts.ReadOnly {
		return index.Affected{}, ErrReadOnly
	}
	selection, err := s.toCollection()
	if err != nil {
		return index.Affected{}, err
	}
	set := make(map[string]json.RawMessage, len(fields))
	for key, value := range fields {
		if isReservedField(key) {
			return index.Affected{}, fmt.Errorf("%w: field %q belongs to the vectors: use Update", ErrPayload, key)
		}
		if set[key], err = jsontext.MarshalUnescaped(value); err != nil {
			return index.Affected{}, fmt.Errorf("%w: field %q: %w", ErrPayload, key, err)
		}
	}
	done, err := c.beginCall()
	if err != nil {
		return index.Affected{}, err
	}
	defer done()
	return c.docs.UpdateMetadata(ctx, selection, set)
}
