package index

import (
	"context"

	"github.com/plaid-ir/plaid/storage"
)

// Delete removes documents by id, all in one transaction. Ids that name no
// live document are returned in missing; they are no error. The space is
// reused after [Index.Compact].
func (ix *Index) Delete(ctx context.Context, ids []string) (deleted int, missing []string, err error) {
	if err := ix.write.begin(ctx); err != nil {
		return 0, nil, err
	}
	defer ix.write.end()
	snap, err := ix.beginChange()
	if err != nil {
		return 0, nil, err
	}
	defer snap.Close()
	victims := map[string]uint32{}
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return 0, nil, err
		}
		ordinal, ok, err := snap.Ordinal(id)
		if err != nil {
			return 0, nil, err
		}
		if !ok {
			missing = append(missing, id)
			continue
		}
		victims[id] = ordinal
	}
	if len(victims) == 0 {
		return 0, missing, nil
	}
	err = ix.file.Update(func(tx *storage.Tx) error {
		g, err := tx.Generation(snap.Generation())
		if err != nil {
			return err
		}
		if err := follows(g, snap); err != nil {
			return err
		}
		s := snap.State()
		tombstones := snap.Tombstones().Clone()
		for id, ordinal := range victims {
			if err := bury(g, &s, snap, tombstones, ordinal); err != nil {
				return err
			}
			if err := g.DeleteID(id); err != nil {
				return err
			}
		}
		if err := g.PutTombstones(tombstones); err != nil {
			return err
		}
		return g.PutState(s)
	})
	if err := ix.changed(err); err != nil {
		return 0, nil, err
	}
	return len(victims), missing, nil
}
