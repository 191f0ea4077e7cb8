package index

import (
	"context"
	"maps"
	"slices"

	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// UpdatePayload sets fields in the payloads of the documents that a condition is true
// of; see [Index.UpdatePayload]. A field of the condition has to be in one of the files
// only. What is wrong with a payload of any file is found before the first is changed.
//
// The new payloads of all files are in memory until they are committed.
func (s *Set) UpdatePayload(ctx context.Context, where *condition.Condition, set condition.Fields) (updated int, err error) {
	if err := checkUpdate(set); err != nil {
		return 0, err
	}
	snap, done, err := s.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	parts := snap.Parts()
	if err := checkFields(ctx, parts, where); err != nil {
		return 0, err
	}
	changes := make([]func(*Index) error, len(s.files))
	for i, p := range parts {
		payloads, err := p.merged(ctx, where, set)
		if err != nil {
			return 0, err
		}
		if len(payloads) == 0 {
			continue
		}
		changes[i] = func(ix *Index) error {
			return ix.changePayload(ctx, nil, func(now *Snapshot) (_ map[uint32][]byte, err error) {
				if now.Version() != p.Version() { // the file was changed, and not through the set
					if payloads, err = now.merged(ctx, where, set); err != nil {
						return nil, err
					}
				}
				updated += len(payloads)
				return payloads, nil
			})
		}
	}
	if err := s.change(snap, changes); err != nil {
		return 0, err
	}
	return updated, nil
}

// SetPayload replaces the payloads of documents by id, in every file that has them; see
// [Index.SetPayload].
func (s *Set) SetPayload(ctx context.Context, payloads map[string][]byte) (updated int, missing []string, err error) {
	ids := slices.Sorted(maps.Keys(payloads))
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return 0, nil, err
		}
		if err := checkPayload(id, payloads[id]); err != nil {
			return 0, nil, err
		}
	}
	return s.changeByID(ctx, ids, false, func(ix *Index, ids []string) (int, error) {
		some := make(map[string][]byte, len(ids))
		for _, id := range ids {
			some[id] = payloads[id]
		}
		n, _, err := ix.SetPayload(ctx, some)
		return n, err
	})
}
