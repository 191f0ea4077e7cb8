package vectors

import (
	"context"
	"fmt"
	"iter"
	"strconv"

	"github.com/plaid-ir/plaid/kernels"
)

// memorySource is a [Source] of documents in memory.
type memorySource struct {
	dim      int
	docs     []Document
	numbered bool // ids are row numbers
	empty    bool // no document has tokens
}

// FromDocuments returns a [Source] of documents in memory. It keeps docs, and yields their slices.
// Either every document has an id, or none has, and ids are row numbers.
//
// Errors: [ErrShape] for tokens that are not a multiple of dim, and for a dim not in 1..4,096;
// [ErrID] for bad and duplicate ids.
func FromDocuments(dim int, docs []Document) (Source, error) {
	s := &memorySource{dim: dim, docs: docs, numbered: true, empty: true}
	for _, d := range docs {
		s.numbered = s.numbered && d.ID == ""
		s.empty = s.empty && len(d.Tokens) == 0
	}
	if dim > kernels.MaxDim || dim < 0 || dim == 0 && !s.empty {
		return nil, faultf("", ErrShape, "dimension %d is not in 1..%d", dim, kernels.MaxDim)
	}
	if err := checkCount(len(docs), ""); err != nil {
		return nil, err
	}
	seen := idSet{}
	for i, d := range docs {
		if len(d.Tokens) > 0 && len(d.Tokens)%dim != 0 {
			err := fmt.Errorf("%w: %d values are no multiple of the dimension %d", ErrShape, len(d.Tokens), dim)
			return nil, inFile(err, "", i, -1, d.ID)
		}
		if s.numbered {
			continue
		}
		err := CheckID(d.ID)
		if first, twice := seen.add(d.ID, i); err == nil && twice {
			err = duplicateID(d.ID, "document", first, i)
		}
		if err != nil {
			return nil, inFile(err, "", i, -1, "")
		}
	}
	return s, nil
}

func (s *memorySource) Dim() int {
	if s.empty {
		return 0
	}
	return s.dim
}

func (s *memorySource) Len() int { return len(s.docs) }

func (s *memorySource) Rows(i int) int {
	if s.empty {
		return 0
	}
	return len(s.docs[i].Tokens) / s.dim
}

func (s *memorySource) ID(i int) string {
	if s.numbered {
		return strconv.Itoa(i)
	}
	return s.docs[i].ID
}

func (s *memorySource) name() string { return "documents in memory" }

// Numbered reports whether ids are row numbers.
func (s *memorySource) Numbered() bool { return s.numbered }
func (s *memorySource) Close() error   { return nil }

func (s *memorySource) Docs(ctx context.Context, from, to int) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		eachDocument(ctx, "", from, to, len(s.docs), yield, func(i int) (Document, error) {
			doc := s.docs[i]
			doc.ID = s.ID(i)
			err := checkFinite(doc.Tokens, s.dim)
			if err != nil {
				err = inFile(err, "", i, -1, doc.ID)
			}
			return doc, err
		})
	}
}
