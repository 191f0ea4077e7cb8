package server

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/internal/jsontext"
	"github.com/plaid-ir/plaid/vectors"
)

// windowIn says how texts are split into passages, like the flags of plaid index.
type windowIn struct {
	Window   int    `json:"window,omitempty"`
	Overlap  int    `json:"overlap,omitempty" doc:"how many of them a passage repeats of the one before"`
	WindowBy string `json:"window_by,omitempty" enum:"words,sentences,headings,blocks"`
}

// The fields of metadata that belong to a text that is split.
const idField, titleField, textField = "_id", "title", "text"

// validate checks the fields, without looking at a model.
func (in *windowIn) validate() error {
	switch {
	case in.Window < 0:
		return badRequest("window is %d; want 0 or more", in.Window)
	case in.Window == 0 && (in.Overlap != 0 || in.WindowBy != ""):
		return badRequest("overlap and window_by go with window")
	case in.Window > 0 && (in.Overlap < 0 || in.Overlap >= in.Window):
		return badRequest("overlap is %d; passages of %d can repeat fewer", in.Overlap, in.Window)
	case in.WindowBy != "" && !slices.Contains(encode.Units(), encode.Unit(in.WindowBy)):
		return badRequest("window_by is %q; want one of %v", in.WindowBy, encode.Units())
	}
	return nil
}

// splitDocuments are the texts to store for the documents of a request: a passage each, or a whole document
// if it is short.
type splitDocuments struct {
	texts    []string
	metadata []json.RawMessage // of each text
	document []int             // the document of each text, by its index in the request
	ids      []string          // of the documents of the request that are stored as passages, and "" for others
}

// documentIDs returns the ids of the documents of the request, from those of the texts that were stored.
func (p *splitDocuments) documentIDs(stored []string) []string {
	if p == nil {
		return stored
	}
	ids := slices.Clone(p.ids)
	for i, document := range p.document {
		ids[document] = cmp.Or(ids[document], stored[i])
	}
	return ids
}

// splitTexts splits the texts of a request. It reserves the memory of the passages before they are made.
func (q *request) splitTexts(in *updateTextIn) (*splitDocuments, error) {
	if err := checkMetadataCount(len(in.Documents), in.Metadata); err != nil {
		return nil, err
	}
	e, missing := q.server.encoder()
	if missing != nil {
		return nil, missing
	}
	model := e.Config()
	splitting := encode.Splitting{
		By:      encode.Unit(in.WindowBy),
		Window:  in.Window,
		Overlap: in.Overlap,
		Model:   &model,
	}
	if err := splitting.Check(); err != nil {
		return nil, badRequest("window: %w", err)
	}
	p := &splitDocuments{ids: make([]string, len(in.Documents))}
	for i, text := range in.Documents {
		if tooLong := q.checkTextLength(text, inList("documents"), i); tooLong != nil {
			return nil, tooLong.withPlace(Where{Document: &i})
		}
		fields, err := textMetadata(in, i)
		if err != nil {
			return nil, err
		}
		done, err := q.reserveTokenMemory(&q.body.reservation, len(text))
		if err != nil {
			return nil, err
		}
		err = q.splitText(p, in, splitting, i, fields)
		done()
		if err != nil {
			return nil, err
		}
	}
	return p, nil
}

// splitText splits the text of document i, whose metadata has fields, and appends its passages to p. All
// passages get the metadata of the document, and their own _id, text and position.
func (q *request) splitText(
	p *splitDocuments, in *updateTextIn, splitting encode.Splitting, i int, fields map[string]json.RawMessage,
) error {
	metadataBytes := 0
	for key, value := range fields {
		metadataBytes += len(key) + len(value)
	}

	// The document as encode knows it.
	document := encode.Text{Text: in.Documents[i]}
	_ = json.Unmarshal(fields[titleField], &document.Title) // a title that is not a text is ignored
	if id := fields[idField]; id != nil {
		document.ID, _ = vectors.ParseID(id) // it was checked
	}
	if passageField := fields[vectors.PassageField]; passageField != nil {
		payload, err := json.Marshal(map[string]json.RawMessage{vectors.PassageField: passageField})
		if err != nil {
			return err
		}
		document.Payload = payload
	}

	// Its passages, or the document itself if it is short.
	field := cmp.Or(in.TextField, textField)
	for t, err := range encode.Passages(q.ctx, encode.Texts(document), splitting) {
		if err != nil {
			var textErr *encode.TextError
			if errors.As(err, &textErr) {
				err = textErr.Err
			}
			return badRequest("document %d: %w", i, err).withPlace(Where{Document: &i, ID: document.ID})
		}
		// The text is in texts and, as a value and as JSON, in the metadata; 128 bytes are for the other fields.
		if err := q.body.reserve(int64(metadataBytes + 3*len(t.Text) + 128)); err != nil {
			return err
		}
		passageFields := maps.Clone(fields)
		set := func(key, value string) error {
			b, err := jsontext.MarshalUnescaped(value)
			passageFields[key] = b
			return err
		}
		if t.ID != document.ID { // a passage
			p.ids[i] = document.ID
			var passage map[string]json.RawMessage
			err = errors.Join(set(idField, t.ID), set(field, t.Text), json.Unmarshal(t.Payload, &passage))
			passageFields[vectors.PassageField] = passage[vectors.PassageField]
			if t.Title != document.Title {
				err = errors.Join(err, set(titleField, t.Title))
			}
		} else if passageFields[field] == nil {
			err = set(field, t.Text)
		}
		if err != nil {
			return err
		}
		metadata, err := jsontext.MarshalUnescaped(passageFields)
		if err != nil {
			return err
		}
		p.texts, p.metadata, p.document = append(p.texts, t.Full()), append(p.metadata, metadata), append(p.document, i)
	}
	return nil
}

// relocateError changes an error about a text that was stored into one about its document in the request.
func (p *splitDocuments) relocateError(err error) error {
	if refused, ok := errors.AsType[*Problem](err); ok {
		if w := refused.Details; w != nil && w.Document != nil && *w.Document < len(p.document) {
			document := p.document[*w.Document]
			w.Document = &document
			refused.Message = fmt.Sprintf("document %d, a passage: %s", document, refused.Message)
			return err
		}
	}
	if doc, ok := errors.AsType[*collection.DocumentError](err); ok && doc.Document < len(p.document) {
		doc.Document = p.document[doc.Document]
	}
	return err
}
