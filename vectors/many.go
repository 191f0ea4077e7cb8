package vectors

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/plaid-ir/plaid/kernels"
)

// arraySource reads documents that are separate arrays [tokens, dim] in one file. The name of an array is
// the id of its document.
type arraySource struct {
	source
	arrays []*Array
	dim    int
	floats []float32
}

// openDocuments opens the arrays of a file in which each array is a document: there are several, all are
// floats of rank 2, and none has a name that openByName knows. It returns nil for other files. Documents are
// in the order of the numbers in their names. Without such an order, a file of ids is [ErrID].
func (p *arrays) openDocuments(c container, files Files) (*arraySource, error) {
	names := c.Names()
	if len(names) < 2 || files.Lengths != "" || files.Mask != "" {
		return nil, nil
	}
	known := slices.Concat(vectorNames, lengthNames, maskNames, idNames)
	if slices.ContainsFunc(names, func(name string) bool { return slices.Contains(known, name) }) {
		return nil, nil
	}
	_, savedInOrder := c.(*NPZ)
	names, orderErr := arrayOrder(files.Vectors, names, savedInOrder)
	s := &arraySource{}
	for _, name := range names {
		a, err := c.Array(name)
		if err != nil {
			return nil, err
		}
		p.closers = append(p.closers, a)
		if !a.kind.isFloat() || len(a.Shape) != 2 {
			return nil, nil
		}
		if a.n > 0 {
			switch dim := a.Shape[1]; {
			case dim > kernels.MaxDim:
				return nil, faultf(a.path, ErrShape, "dimension %d is not in 1..%d", dim, kernels.MaxDim)
			case s.dim == 0:
				s.dim = dim
			case s.dim != dim:
				return nil, faultf(a.path, ErrShape,
					"dimension %d, arrays before it have %d: each array of this file is a document", dim, s.dim)
			}
		}
		if err := CheckID(name); err != nil {
			return nil, NewFileError(a.path, fmt.Errorf("the name of an array is the id of a document: %w", err))
		}
		s.arrays, s.ids = append(s.arrays, a), append(s.ids, name)
	}
	if files.IDs != "" && orderErr != nil {
		return nil, orderErr
	}
	return s, nil
}

func (s *arraySource) Dim() int { return s.dim }
func (s *arraySource) Len() int { return len(s.arrays) }

func (s *arraySource) Rows(i int) int {
	if s.arrays[i].n == 0 {
		return 0
	}
	return s.arrays[i].Shape[0]
}

func (s *arraySource) Docs(ctx context.Context, from, to int) iter.Seq2[Document, error] {
	return s.files.guardDocs(from, func(yield func(Document, error) bool) {
		// Take the buffer from s during the loop, so that a nested loop allocates another.
		floats, payload := s.floats, []byte(nil)
		s.floats = nil
		defer func() { s.floats = floats }()
		eachDocument(ctx, s.path, from, to, len(s.arrays), yield, func(i int) (doc Document, err error) {
			a := s.arrays[i]
			floats = slices.Grow(floats[:0], a.n)[:a.n]
			doc = Document{ID: s.ids[i], Tokens: floats}
			if err = a.Float32s(floats, 0); err == nil {
				err = checkFinite(floats, s.dim)
			}
			if err == nil && s.payload != nil {
				doc.Payload, payload, err = s.payload.readPayload(payload, i)
			}
			if err != nil {
				err = inFile(err, a.path, i, -1, doc.ID)
			}
			return doc, err
		})
	})
}
