package storage

import (
	"bytes"
	"fmt"
)

// ReplacePayload replaces what was stored beside a live document of the view, which
// must show what the generation holds; nil removes it.
func (g *Generation) ReplacePayload(v *View, ordinal uint32, p []byte) error {
	if had, has := v.HasPayload(ordinal), p != nil; had != has {
		if err := g.markPayload(v, ordinal, has); err != nil {
			return err
		}
	}
	if p == nil {
		return g.DeletePayload(ordinal)
	}
	return g.PutPayload(ordinal, p)
}

// markPayload writes the document table of a chunk anew.
func (g *Generation) markPayload(v *View, ordinal uint32, has bool) error {
	chunk, doc, ok := v.Locate(ordinal)
	if !ok {
		return fmt.Errorf("%w: no document %d", ErrInternal, ordinal)
	}
	number := v.chunks[chunk].number
	b := g.chunks.Bucket(key32(number))
	if b == nil {
		return corrupt(g.tx.path, nil, "chunk %d is missing", number)
	}
	key := keyIn(number, keyDocs)
	table, ok := unseal(key, b.Get(keyDocs))
	if !ok {
		return corrupt(g.tx.path, errChecksum, "document table of chunk %d", number)
	}
	table = bytes.Clone(table)
	markPayload(table, doc, has)
	return b.Put(keyDocs, seal(key, table))
}
