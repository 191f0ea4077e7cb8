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

// windowIn says how texts are parted into passages, as the flags of plaid index do.
type windowIn struct {
	Window   int    `json:"window,omitempty"`
	Overlap  int    `json:"overlap,omitempty" doc:"how many of them a passage repeats of the one before"`
	WindowBy string `json:"window_by,omitempty" enum:"words,sentences,headings,blocks"`
}

// The fields of metadata that texts are parted with.
const idField, titleField, textField = "_id", "title", "text"

func (in *windowIn) validate() error {
	switch {
	case in.Window < 0:
		return badRequest("window is %d; want no negative number", in.Window)
	case in.Window == 0 && (in.Overlap != 0 || in.WindowBy != ""):
		return badRequest("overlap and window_by go with window")
	case in.Window > 0 && (in.Overlap < 0 || in.Overlap >= in.Window):
		return badRequest("overlap is %d; passages of %d can repeat fewer", in.Overlap, in.Window)
	case in.WindowBy != "" && !slices.Contains(encode.Units(), encode.Unit(in.WindowBy)):
		return badRequest("window_by is %q; there are %v", in.WindowBy, encode.Units())
	}
	return nil
}

// splitDocuments are texts that are stored, and of which document of the request each is.
type splitDocuments struct {
	texts    []string
	metadata []json.RawMessage
	document []int
	// names are the ids of documents that are stored as passages, "" of others.
	ids []string
}

// documentIDs returns the ids of the documents of a request, given those of the rows that were
// stored.
func (p *splitDocuments) documentIDs(stored []string) []string {
	if p == nil {
		return stored
	}
	names := slices.Clone(p.ids)
	for i, of := range p.document {
		names[of] = cmp.Or(names[of], stored[i])
	}
	return names
}

// splitTexts parts the texts of a request. What that takes is counted before it is made.
func (q *request) splitTexts(in *updateTextIn) (*splitDocuments, error) {
	if err := checkMetadataCount(len(in.Documents), in.Metadata); err != nil {
		return nil, err
	}
	e, none := q.server.encoder()
	if none != nil {
		return nil, none
	}
	model := e.Config()
	how := encode.Splitting{
		By:      encode.Unit(in.WindowBy),
		Window:  in.Window,
		Overlap: in.Overlap,
		Model:   &model,
	}
	if err := how.Check(); err != nil {
		return nil, badRequest("window: %w", err)
	}
	p := &splitDocuments{ids: make([]string, len(in.Documents))}
	for i, text := range in.Documents {
		if p := q.checkTextLength(text, inList("documents"), i); p != nil {
			return nil, p.withPlace(Where{Document: &i})
		}
		fields, err := textMetadata(in, i)
		if err != nil {
			return nil, err
		}
		done, err := q.reserveTokenMemory(&q.body.reservation, len(text))
		if err != nil {
			return nil, err
		}
		err = q.splitText(p, in, how, i, fields)
		done()
		if err != nil {
			return nil, err
		}
	}
	return p, nil
}

// splitText parts the text of one document.
func (q *request) splitText(p *splitDocuments, in *updateTextIn, how encode.Splitting, i int, fields map[string]json.RawMessage) error {
	size := 0
	for key, value := range fields {
		size += len(key) + len(value)
	}
	document := encode.Text{Text: in.Documents[i]}
	_ = json.Unmarshal(fields[titleField], &document.Title) // another value is no title
	if id := fields[idField]; id != nil {
		document.ID, _ = vectors.ParseID(id) // it was checked
	}
	if passageField := fields[vectors.PassageField]; passageField != nil {
		var err error
		if document.Payload, err = json.Marshal(map[string]json.RawMessage{vectors.PassageField: passageField}); err != nil {
			return err
		}
	}
	field := cmp.Or(in.TextField, textField)
	for t, err := range encode.Passages(q.ctx, encode.Texts(document), how) {
		if err != nil {
			var textErr *encode.TextError
			if errors.As(err, &textErr) {
				err = textErr.Err
			}
			return badRequest("document %d: %w", i, err).withPlace(Where{Document: &i, ID: document.ID})
		}
		if err := q.body.reserve(int64(size + 3*len(t.Text) + 128)); err != nil {
			return err
		}
		passageFields := maps.Clone(fields)
		set := func(key, value string) error {
			b, err := jsontext.Plain(value)
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
		metadata, err := jsontext.Plain(passageFields)
		if err != nil {
			return err
		}
		p.texts, p.metadata, p.document = append(p.texts, t.Full()), append(p.metadata, metadata), append(p.document, i)
	}
	return nil
}

// relocateError is an error about a passage with the place of its document in the request.
func (p *splitDocuments) relocateError(err error) error {
	var refused *Problem
	var doc *collection.DocumentError
	switch {
	case errors.As(err, &refused) && refused.Details != nil && refused.Details.Document != nil && *refused.Details.Document < len(p.document):
		at := p.document[*refused.Details.Document]
		refused.Details.Document = &at
		refused.Message = fmt.Sprintf("document %d, a passage: %s", at, refused.Message)
	case errors.As(err, &doc) && doc.Document < len(p.document):
		doc.Document = p.document[doc.Document]
	}
	return err
}
