package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index"
)

// Selection chooses documents in one of three ways. Ids and ordinals that name no
// document are passed over.
type Selection struct {
	IDs      []string
	Ordinals []uint64
	// Condition over the metadata, with a value in Params for each "?".
	Condition string
	Params    []any
}

func (s *Selection) cost() int64 {
	n := int64(len(s.Condition)) + 8*int64(len(s.Ordinals)) + 16*int64(len(s.Params)) + 64
	for _, id := range s.IDs {
		n += int64(len(id)) + 16
	}
	return n
}

// checkSelection finds what can be wrong with a selection, whatever is stored.
func (c *Collection) checkSelection(ctx context.Context, s *Selection) error {
	ways := 0
	for _, named := range []bool{s.IDs != nil, s.Ordinals != nil, s.Condition != ""} {
		if named {
			ways++
		}
	}
	if ways != 1 {
		return fmt.Errorf("%w: ids, ordinals or a condition are needed, and one of them only", ErrSelection)
	}
	if s.Condition == "" {
		return nil
	}
	v, err := c.View(ctx)
	if err != nil {
		return err
	}
	_, err = v.Select(ctx, s.Condition, s.Params...)
	return errors.Join(err, v.Close())
}

// resolve finds the live documents that are chosen.
func resolve(ctx context.Context, snap *index.Snapshot, s *Selection) (*roaring.Bitmap, error) {
	if s.Condition != "" {
		return match(ctx, snap, s.Condition, s.Params)
	}
	b := roaring.New()
	for _, o := range s.Ordinals {
		if o < uint64(snap.State().Docs) && snap.Live(uint32(o)) {
			b.Add(uint32(o))
		}
	}
	for _, id := range s.IDs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		o, ok, err := snap.Ordinal(id)
		if err != nil {
			return nil, err
		}
		if ok {
			b.Add(o)
		}
	}
	return b, nil
}

// match finds the live documents that a condition holds for.
func match(context.Context, *index.Snapshot, string, []any) (*roaring.Bitmap, error) {
	return nil, fmt.Errorf("conditions: %w", errors.ErrUnsupported)
}

func checkSet(set map[string]json.RawMessage, most int) error {
	size := 2
	for key, value := range set {
		if err := checkKey(key); err != nil {
			return err
		}
		if !json.Valid(value) {
			return fmt.Errorf("%w: value of %q is no JSON", ErrMetadata, key)
		}
		size += len(key) + len(value) + 4
	}
	if size > most {
		return fmt.Errorf("%w: %d bytes, at most %d are possible", ErrMetadata, size, most)
	}
	return nil
}
