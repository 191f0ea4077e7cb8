package index

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math/bits"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/vectors"
)

// HashShard returns the shard, of n, of a new document: the upper half of hash · n, where hash is
// the 64-bit FNV-1a of the id, mixed by the finalizer of MurmurHash3. A split by hash uses it too.
// Each shard has a range of hashes, whatever n is.
func HashShard(id string, n int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	x := h.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	hi, _ := bits.Mul64(x^x>>33, uint64(n))
	return int(hi)
}

// runChanges calls changes[i] for shard i unless it is nil, in order, while snapshots show the state
// before, which the caller keeps open. It stops at the first failure.
func (s *Shards) runChanges(before *ShardsSnapshot, changes []func(*Index) error) error {
	s.mu.Lock()
	s.frozen = before.state
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.frozen = nil
		s.mu.Unlock()
	}()
	var done []string
	for i, change := range changes {
		if change == nil {
			continue
		}
		ix := s.files[i]
		if err := change(ix); err != nil {
			if len(done) > 0 {
				err = &ShardsError{Path: ix.Path(), Done: done, Err: err}
			}
			return err
		}
		done = append(done, ix.Path())
	}
	return nil
}

// beginChange locks out other changes, and returns the current state with a function that ends the
// change.
func (s *Shards) beginChange(ctx context.Context) (snap *ShardsSnapshot, done func(), err error) {
	if err := s.writeLock.lock(ctx); err != nil {
		return nil, nil, err
	}
	if snap, err = s.Snapshot(); err != nil {
		s.writeLock.unlock()
		return nil, nil, err
	}
	return snap, func() { _ = snap.Close(); s.writeLock.unlock() }, nil
}

// findShards returns the ids that each shard has, according to has, and the ids that none has.
func (s *ShardsSnapshot) findShards(
	ids []string, has func(*Snapshot, string) (bool, error),
) (idsOfShard [][]string, missing []string, err error) {
	idsOfShard = make([][]string, len(s.state.snaps))
	for _, id := range ids {
		found := false
		for i, snap := range s.state.snaps {
			ok, err := has(snap, id)
			if err != nil {
				return nil, nil, err
			}
			if ok {
				idsOfShard[i], found = append(idsOfShard[i], id), true
			}
		}
		if !found {
			missing = append(missing, id)
		}
	}
	return idsOfShard, missing, nil
}

// ShardsAddReport describes the result of Add, in sum and for each shard.
type ShardsAddReport struct {
	AddReport // First has no meaning here
	// Files is zero for a shard to which nothing was added. Deleted of a shard also counts
	// documents that moved to another shard.
	Files []AddReport
}

// Add adds documents as [Index.Add] does: a new document goes to the shard of [HashShard], a
// document that replaces another (AddOptions.Replace) to the shard of that one, and copies in other
// shards are deleted. Ids, dimension and model are checked in all shards before the first one is
// changed.
func (s *Shards) Add(ctx context.Context, src vectors.Source, opts *AddOptions) (r *ShardsAddReport, err error) {
	o := valueOrZero(opts)
	if o.MaxDocuments != nil {
		return nil, fmt.Errorf("%w: MaxDocuments limits one index, not shards", ErrOption)
	}
	snap, endChange, err := s.beginChange(ctx)
	if err != nil {
		return nil, err
	}
	defer endChange()
	// Check all shards before the first change, by the condition of the caller (AddOptions.If).
	if o.If != nil {
		for _, shardSnap := range snap.Snapshots() {
			if err := o.If(shardSnap); err != nil {
				return nil, fmt.Errorf("%s: %w", shardSnap.Path(), err)
			}
		}
	}
	routed, err := routeDocuments(ctx, src, snap, &o)
	if err != nil {
		return nil, err
	}
	// Make the change of each shard, which checks again if the shard has changed meanwhile.
	r = &ShardsAddReport{Files: make([]AddReport, len(s.files))}
	changes := make([]func(*Index) error, len(s.files))
	for i := range changes {
		rows, deleted := routed.rows[i], routed.removals[i]
		if len(rows) == 0 && len(deleted) == 0 {
			continue
		}
		checkedVersion := snap.Snapshots()[i].Version()
		recheck := func(newest *Snapshot) error {
			if o.If == nil || newest.Version() == checkedVersion {
				return nil
			}
			return o.If(newest)
		}
		changes[i] = func(ix *Index) error {
			if len(rows) == 0 {
				_, err := ix.DeleteSelected(ctx, func(newest *Snapshot) (*roaring.Bitmap, error) {
					if err := recheck(newest); err != nil {
						return nil, fmt.Errorf("%s: %w", ix.Path(), err)
					}
					docs, _, err := newest.OrdinalsOfIDs(ctx, deleted)
					return docs, err
				})
				return err
			}
			shardOptions := o
			shardOptions.Delete, shardOptions.If = deleted, recheck
			added, err := ix.Add(ctx, &sourceSubset{src, rows}, &shardOptions)
			if err == nil {
				r.Files[i] = *added
			}
			return err
		}
	}
	if err := s.runChanges(snap, changes); err != nil {
		return nil, err
	}
	// Add up the reports.
	sumSq := 0.0
	for i := range r.Files {
		f := &r.Files[i]
		r.Docs += f.Docs
		r.Empty += f.Empty
		r.Passages += f.Passages
		r.KeptPayloads += f.KeptPayloads
		r.Zero += f.Zero
		r.Tokens += f.Tokens
		r.Clamped += f.Clamped
		r.BuildRMSE = max(r.BuildRMSE, f.BuildRMSE)
		sumSq += float64(f.RMSE * f.RMSE * float64(f.Tokens))
	}
	r.RMSE = rootMeanSquare(sumSq, r.Tokens)
	r.Replaced, r.Deleted = routed.replaced, routed.deleted
	return r, nil
}

// routing assigns the documents of a source to shards.
type routing struct {
	rows     [][]int    // numbers of the documents of the source, by shard
	removals [][]string // ids to delete, by shard
	replaced int        // number of documents
	deleted  int        // number of documents that AddOptions.Delete removes, counted in each shard
}

// routeDocuments assigns each document of a source to a shard. A document stays in the first shard
// that has it, and is deleted from the others.
func routeDocuments(ctx context.Context, src vectors.Source, snap *ShardsSnapshot, o *AddOptions) (*routing, error) {
	snaps := snap.Snapshots()
	for _, shardSnap := range snaps {
		if err := shardSnap.Header().Model.Check(o.Model); err != nil {
			return nil, fmt.Errorf("%s: %w", shardSnap.Path(), err)
		}
		if d := src.Dim(); src.Len() > 0 && d != 0 && d != shardSnap.Dim() {
			return nil, fmt.Errorf("%w: documents have %d, %s has %d",
				ErrDimension, d, shardSnap.Path(), shardSnap.Dim())
		}
	}
	r := &routing{rows: make([][]int, len(snaps)), removals: make([][]string, len(snaps))}
	if src.Len() == 0 {
		return r, nil
	}
	rows, keptFrom, err := readArrivals(ctx, src, snaps, o)
	if err != nil {
		return nil, err
	}
	// Check the documents against all shards at once.
	admission := NewAdmission(snaps...)
	removed, err := admission.markRemoved(ctx, o.Delete, rows)
	if err != nil {
		return nil, err
	}
	for j, shardSnap := range snaps {
		plan, err := shardSnap.planDeletion(ctx, admission.removed[j])
		if err != nil {
			return nil, err
		}
		r.deleted += plan.Documents
	}
	if _, err := admission.Admit(ctx, rows, o.Replace); err != nil {
		return nil, err
	}
	r.replaced = admission.replaced
	// Find the shard of each document, and those from which it is deleted.
	shard := 0
	for i := range rows {
		id := rows[i].documentID()
		if i == 0 || rows[i-1].documentID() != id {
			shard = -1
			for j, shardSnap := range snaps {
				ordinals, err := shardSnap.PassagesOf(id)
				if err != nil {
					return nil, err
				}
				if len(ordinals) == 0 {
					continue
				}
				if shard < 0 {
					shard = j
				} else {
					r.removals[j] = append(r.removals[j], id)
				}
			}
			if shard < 0 {
				shard = HashShard(id, len(snaps))
			}
		}
		if from, kept := keptFrom[i]; kept && from != shard {
			return nil, fmt.Errorf("%w: the payload of %.100q would have to move from %s to %s: "+
				"add it with its payload", ErrOption, rows[i].ID, snaps[from].Path(), snaps[shard].Path())
		}
		r.rows[shard] = append(r.rows[shard], i)
	}
	for _, id := range removed {
		for j, shardSnap := range snaps {
			if ordinals, err := shardSnap.ordinalsOf(id); err != nil {
				return nil, err
			} else if len(ordinals) > 0 {
				r.removals[j] = append(r.removals[j], id)
			}
		}
	}
	return r, nil
}

// readArrivals lists the documents of a source with the documents that they are passages of. If the
// payload that makes a row a passage is a stored one (AddOptions.KeepPayload), keptFrom has its
// shard by row. It reads payloads only where the id has the form of a passage's id, since others
// cannot be passages.
func readArrivals(
	ctx context.Context, src vectors.Source, snaps []*Snapshot, o *AddOptions,
) (rows []Arrival, keptFrom map[int]int, err error) {
	rows, keptFrom = make([]Arrival, src.Len()), map[int]int{}
	for i := range rows {
		rows[i].ID = src.ID(i)
	}
	hasPassageID := func(i int) bool { _, n := vectors.SplitPassageID(rows[i].ID); return n >= 0 }
	for from := 0; from < len(rows); from++ {
		if !hasPassageID(from) {
			continue
		}
		to := from + 1
		for to < len(rows) && hasPassageID(to) {
			to++
		}
		i := from
		for d, err := range src.Docs(ctx, from, to) {
			if err != nil {
				return nil, nil, err
			}
			payload := d.Payload
			// Without a payload, the row keeps the stored one of the first shard that has the id.
			for j := 0; o.KeepPayload && len(payload) == 0 && j < len(snaps); j++ {
				if ordinal, ok, err := snaps[j].Ordinal(d.ID); err != nil {
					return nil, nil, err
				} else if ok {
					keptFrom[i] = j
					if payload, err = snaps[j].Payload(ordinal); err != nil {
						return nil, nil, err
					}
				}
			}
			if rows[i].Parent, err = parentFromPayload(i, d.ID, payload); err != nil {
				return nil, nil, err
			}
			i++
		}
		from = to // rows[to] cannot be a passage
	}
	return rows, keptFrom, nil
}

// Delete removes documents and passages by id, in every shard that has them; see [Index.Delete].
func (s *Shards) Delete(ctx context.Context, ids []string) (removed Affected, missing []string, err error) {
	missing, err = s.changeByID(ctx, ids, hasOrdinals, func(ix *Index, ids []string) error {
		n, _, err := ix.Delete(ctx, ids)
		removed.Add(n)
		return err
	})
	if err != nil {
		return Affected{}, nil, err
	}
	return removed, missing, nil
}

// hasOrdinals reports whether an id has ordinals in a shard ([Snapshot.OrdinalsOfIDs]).
func hasOrdinals(snap *Snapshot, id string) (bool, error) {
	ordinals, err := snap.ordinalsOf(id)
	return len(ordinals) > 0, err
}

// changeByID calls change for every shard that has some of the ids, with these ids.
func (s *Shards) changeByID(
	ctx context.Context, ids []string, has func(*Snapshot, string) (bool, error),
	change func(*Index, []string) error,
) (missing []string, err error) {
	snap, endChange, err := s.beginChange(ctx)
	if err != nil {
		return nil, err
	}
	defer endChange()
	idsOfShard, missing, err := snap.findShards(ids, has)
	if err != nil {
		return nil, err
	}
	changes := make([]func(*Index) error, len(s.files))
	for i, ids := range idsOfShard {
		if len(ids) > 0 {
			changes[i] = func(ix *Index) error { return change(ix, ids) }
		}
	}
	return missing, s.runChanges(snap, changes)
}

// DeleteWhere removes the documents and passages for which a condition is true; see
// [Index.DeleteWhere]. A field need only exist in one of the shards.
func (s *Shards) DeleteWhere(ctx context.Context, where *condition.Condition) (removed Affected, err error) {
	snap, endChange, err := s.beginChange(ctx)
	if err != nil {
		return Affected{}, err
	}
	defer endChange()
	if err := checkFields(ctx, snap.Snapshots(), where); err != nil {
		return Affected{}, err
	}
	changes := make([]func(*Index) error, len(s.files))
	for i := range changes {
		changes[i] = func(ix *Index) error {
			n, err := ix.DeleteSelected(ctx, func(newest *Snapshot) (*roaring.Bitmap, error) {
				return newest.selectWithoutCheck(ctx, where)
			})
			removed.Add(n)
			return err
		}
	}
	if err := s.runChanges(snap, changes); err != nil {
		return Affected{}, err
	}
	return removed, nil
}

// UpdatePayload sets fields in the payloads of the documents for which a condition is true; see
// [Index.UpdatePayload]. A field of the condition need only exist in one of the shards. The
// payloads of all shards are checked before the first shard is changed.
//
// The new payloads of all shards are in memory until they are committed.
func (s *Shards) UpdatePayload(
	ctx context.Context, where *condition.Condition, set condition.Fields,
) (Affected, error) {
	check := func(snap *ShardsSnapshot) error { return checkFields(ctx, snap.Snapshots(), where) }
	return s.updatePayloads(ctx, set, check, func(shardSnap *Snapshot) (*roaring.Bitmap, error) {
		return shardSnap.selectWithoutCheck(ctx, where)
	})
}

// UpdateByID does UpdatePayload for ids; see [Index.UpdateByID].
func (s *Shards) UpdateByID(
	ctx context.Context, ids []string, set condition.Fields,
) (updated Affected, missing []string, err error) {
	check := func(snap *ShardsSnapshot) error {
		_, missing, err = snap.findShards(ids, hasOrdinals)
		return err
	}
	updated, err = s.updatePayloads(ctx, set, check, func(shardSnap *Snapshot) (*roaring.Bitmap, error) {
		docs, _, err := shardSnap.OrdinalsOfIDs(ctx, ids)
		return docs, err
	})
	if err != nil {
		return Affected{}, nil, err
	}
	return updated, missing, nil
}

// updatePayloads sets fields of the ordinals that selectDocs returns for each shard. Before the
// first shard is changed, it calls check and computes the payloads of all shards, to find errors.
func (s *Shards) updatePayloads(
	ctx context.Context, set condition.Fields, check func(*ShardsSnapshot) error,
	selectDocs Selection,
) (updated Affected, err error) {
	if err := checkUpdate(set); err != nil {
		return Affected{}, err
	}
	snap, endChange, err := s.beginChange(ctx)
	if err != nil {
		return Affected{}, err
	}
	defer endChange()
	if err := check(snap); err != nil {
		return Affected{}, err
	}
	changes := make([]func(*Index) error, len(s.files))
	for i, shardSnap := range snap.Snapshots() {
		docs, err := selectDocs(shardSnap)
		if err != nil {
			return Affected{}, err
		}
		payloads, err := shardSnap.mergeFields(ctx, docs, set, nil)
		if err != nil {
			return Affected{}, err
		}
		if len(payloads) == 0 {
			continue
		}
		changes[i] = func(ix *Index) error {
			n, err := ix.UpdateSelected(ctx, selectDocs, set, nil)
			updated.Add(n)
			return err
		}
	}
	if err := s.runChanges(snap, changes); err != nil {
		return Affected{}, err
	}
	return updated, nil
}

// SetPayload replaces the payloads of documents by id, in every shard that has them; see
// [Index.SetPayload].
func (s *Shards) SetPayload(
	ctx context.Context, payloads map[string][]byte,
) (updated Affected, missing []string, err error) {
	ids := slices.Sorted(maps.Keys(payloads))
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return Affected{}, nil, err
		}
		if err := checkPayload(id, payloads[id]); err != nil {
			return Affected{}, nil, err
		}
	}
	has := func(snap *Snapshot, id string) (bool, error) {
		_, ok, err := snap.Ordinal(id)
		return ok, err
	}
	missing, err = s.changeByID(ctx, ids, has, func(ix *Index, ids []string) error {
		shardPayloads := make(map[string][]byte, len(ids))
		for _, id := range ids {
			shardPayloads[id] = payloads[id]
		}
		n, _, err := ix.SetPayload(ctx, shardPayloads)
		updated.Add(n)
		return err
	})
	if err != nil {
		return Affected{}, nil, err
	}
	return updated, missing, nil
}
