package vectors

import (
	"context"
	"fmt"
	"iter"
	"sort"
	"strconv"
)

// concatSource is several collections one after another.
type concatSource struct {
	sources []Source
	starts  []int // len(sources)+1: the first document of each
	dim     int
	numbers bool // ids are row numbers of the whole
}

// nameOf is the file of a source, if it knows it.
func nameOf(s Source, i int) string {
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

// Concat is several collections one after another; its Close closes them all.
// Dimensions that differ are [ErrShape]. Ids must not repeat, nor may some
// collections have ids and others none ([ErrID]); if none has, documents are
// numbered through. Errors while reading name the file and the row within it.
// On an error the sources stay the caller's to close.
func Concat(sources ...Source) (Source, error) {
	c := &concatSource{sources: sources, starts: make([]int, len(sources)+1), numbers: true}
	with := -1    // the source that set the dimension
	withIDs := -1 // the first that has documents with ids, and without
	without := -1
	for i, s := range sources {
		c.starts[i+1] = c.starts[i] + s.Len()
		if err := checkCount(c.starts[i+1], nameOf(s, i)); err != nil {
			return nil, err
		}
		switch d := s.Dim(); {
		case d == 0 || d == c.dim:
		case with < 0:
			with, c.dim = i, d
		default:
			return nil, faultf(nameOf(s, i), ErrShape, "dimension %d, %s has %d", d, nameOf(sources[with], with), c.dim)
		}
		switch {
		case s.Len() == 0:
		case isNumbered(s):
			without = i
		default:
			withIDs = i
			c.numbers = false
		}
	}
	if withIDs >= 0 && without >= 0 {
		return nil, faultf(nameOf(sources[without], without), ErrID, "has no ids, %s has: give ids to all or to none", nameOf(sources[withIDs], withIDs))
	}
	if c.numbers {
		return c, nil
	}
	seen := idSet{}
	for i := range c.Len() {
		id := c.ID(i)
		if first, twice := seen.note(id, i); twice {
			a, b := c.find(first), c.find(i)
			return nil, inFile(fmt.Errorf("%w: %q is also the id of document %d of %s", ErrID, id, first-c.starts[a], nameOf(sources[a], a)),
				nameOf(sources[b], b), i-c.starts[b], -1, "")
		}
	}
	return c, nil
}

// find is the source of document i.
func (c *concatSource) find(i int) int { return sort.SearchInts(c.starts, i+1) - 1 }

func (c *concatSource) Dim() int { return c.dim }
func (c *concatSource) Len() int { return c.starts[len(c.sources)] }

func (c *concatSource) Rows(i int) int {
	s := c.find(i)
	return c.sources[s].Rows(i - c.starts[s])
}

func (c *concatSource) ID(i int) string {
	if c.numbers {
		return strconv.Itoa(i)
	}
	s := c.find(i)
	return c.sources[s].ID(i - c.starts[s])
}

func (c *concatSource) name() string {
	if len(c.sources) == 1 {
		return nameOf(c.sources[0], 0)
	}
	return fmt.Sprintf("%d sources", len(c.sources))
}

// Numbered reports whether ids are row numbers.
func (c *concatSource) Numbered() bool { return c.numbers }

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
				if c.numbers {
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
