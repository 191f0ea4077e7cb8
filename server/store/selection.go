package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/condition"
	"github.com/plaid-ir/plaid/index"
)

// Selection chooses documents in one of three ways. Ids and ordinals that name no
// document are passed over.
type Selection struct {
	IDs      []string
	Ordinals []uint64
	// Condition over the metadata, with a value in Params for each "?"; see
	// [condition.ParsePlaceholders].
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

// Check finds what can be wrong with a selection, whatever is stored.
func (s *Selection) Check() error {
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
	_, err := Bind(s.Condition, s.Params)
	return err
}

// Bind reads a condition with a value for each "?".
func Bind(text string, params []any) (*condition.Condition, error) {
	e, err := condition.ParsePlaceholders(text)
	if err != nil {
		return nil, err
	}
	return e.Bind(params...)
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
func match(ctx context.Context, snap *index.Snapshot, text string, params []any) (*roaring.Bitmap, error) {
	c, err := Bind(text, params)
	if err != nil {
		return nil, err
	}
	return snap.Select(ctx, c)
}

// MaxMetadata is the largest metadata of one document in bytes, if the options of a store
// do not say otherwise.
const MaxMetadata = 1 << 20

// CheckFields finds what is wrong with fields that are to be set ([ErrMetadata]); most is
// how many bytes they may have.
func CheckFields(set map[string]json.RawMessage, most int) error {
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
	if err := condition.Fields(set).Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrMetadata, err)
	}
	if size > most {
		return fmt.Errorf("%w: %d bytes, at most %d are possible", ErrMetadata, size, most)
	}
	return nil
}
