package vectors

import (
	"context"
	"fmt"
	"iter"
	"sort"
	"strconv"
)

// concatSource is several sources one after another.
type concatSource struct {
	sources  []Source
	starts   []int // the first document of each source, and the number of documents
	dim      int
	numbered bool // ids are row numbers in the concatenation
}

// sourceName returns the name of a source for errors: its file, if it has one.
func sourceName(s Source, i int) string {
	if n, ok := s.(interface{ name() string }); ok {
		return n.name()
	}
	return fmt.Sprintf("source %d", i)
}

// isNumbered reports whether the ids of a source are row numbers.
func isNumbered(s Source) bool {
	n, ok := s.(interface{ Numbered() bool })
	return ok && n.Numbered()
}

// Concat returns a source of the documents of several sources, one after another. Close closes all of
// them; after an error of Concat the caller closes them. Either all sources have ids, which must not
// repeat, or none has, and the documents are numbered consecutively. Errors while reading name the
// file and the row in it.
//
// Errors: [ErrShape] for dimensions that differ, [ErrID].
func Concat(sources ...Source) (Source, error) {
	c := &concatSource{sources: sources, starts: make([]int, len(sources)+1), numbered: true}
	// Indexes of sources, for errors. −1 means none.
	withDim := -1    // that has set the dimension
	withIDs := -1    // that has documents with ids
	withoutIDs := -1 // that has documents without ids
	for i, s := range sources {
		c.starts[i+1] = c.starts[i] + s.Len()
		if err := checkCount(c.starts[i+1], sourceName(s, i)); err != nil {
			return nil, err
		}
		switch d := s.Dim(); {
		case d == 0 || d == c.dim:
		case withDim < 0:
			withDim, c.dim = i, d
		default:
			return nil, faultf(sourceName(s, i), ErrShape, "dimension %d, %s has %d",
				d, sourceName(sources[withDim], withDim), c.dim)
		}
		switch {
		case s.Len() == 0:
		case isNumbered(s):
			withoutIDs = i
		default:
			withIDs = i
			c.numbered = false
		}
	}
	if withIDs >= 0 && withoutIDs >= 0 {
		return nil, faultf(sourceName(sources[withoutIDs], withoutIDs), ErrID,
			"has no ids, %s has: give ids to all or to none", sourceName(sources[withIDs], withIDs))
	}
	if c.numbered {
		return c, nil
	}
	seen := idSet{}
	for i := range c.Len() {
		id := c.ID(i)
		if first, twice := seen.add(id, i); twice {
			a, b := c.sourceOf(first), c.sourceOf(i)
			err := fmt.Errorf("%w: %q is also the id of document %d of %s",
				ErrID, id, first-c.starts[a], sourceName(sources[a], a))
			return nil, inFile(err, sourceName(sources[b], b), i-c.starts[b], -1, "")
		}
	}
	return c, nil
}

// sourceOf returns the index of the source of document i.
func (c *concatSource) sourceOf(i int) int { return sort.SearchInts(c.starts, i+1) - 1 }

func (c *concatSource) Dim() int { return c.dim }
func (c *concatSource) Len() int { return c.starts[len(c.sources)] }

func (c *concatSource) Rows(i int) int {
	s := c.sourceOf(i)
	return c.sources[s].Rows(i - c.starts[s])
}

func (c *concatSource) ID(i int) string {
	if c.numbered {
		return strconv.Itoa(i)
	}
	s := c.sourceOf(i)
	return c.sources[s].ID(i - c.starts[s])
}

func (c *concatSource) name() string {
	if len(c.sources) == 1 {
		return sourceName(c.sources[0], 0)
	}
	return fmt.Sprintf("%d sources", len(c.sources))
}

// Numbered reports whether ids are row numbers.
func (c *concatSource) Numbered() bool { return c.numbered }

func (c *concatSource) Close() error { return closeAll(c.sources) }

func (c *concatSource) Docs(ctx context.Context, from, to int) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		if err := checkRange("", from, to, c.Len()); err != nil {
			yield(Document{}, err)
			return
		}
		for i := range c.sources {
			base := c.starts[i]
			lo, hi := max(from, base), min(to, c.starts[i+1])
			if lo >= hi {
				continue
			}
			row := lo
			for doc, err := range c.sources[i].Docs(ctx, lo-base, hi-base) {
				if err != nil {
					yield(Document{}, err)
					return
				}
				if c.numbered {
					doc.ID = strconv.Itoa(row)
				}
				row++
				if !yield(doc, nil) {
					return
				}
			}
		}
	}
}
