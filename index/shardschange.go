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

// HashShard is the file, of n, that a document of an id is put in when it is new to a set,
// and by a split by hash: the upper half of hash · n, where the hash is FNV-1a of 64
// bits, mixed by the finalizer of MurmurHash3. So documents of one n keep together
// those whose hashes are neighbours.
func HashShard(id string, n int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	x := h.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	hi, _ := bits.Mul64(x^x>>33, uint64(n))
	return int(hi)
}

// runChanges runs the change of each file for which there is one, while the set shows
// what it showed before. Files are changed in order; what follows a failure is not.
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

// beginChange takes the turn of changes and shows what is to be changed.
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

// findShards returns the ids that each file has, as has reports, and those that none has.
func (s *ShardsSnapshot) findShards(ids []string, has func(*Snapshot, string) (bool, error)) (idsOfShard [][]string, missing []string, err error) {
	idsOfShard = make([][]string, len(s.state.snaps))
	for _, id := range ids {
		found := false
		for i, p := range s.state.snaps {
			ok, err := has(p, id)
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

// ShardsAddReport says what Add did, in all, and in each file.
type ShardsAddReport struct {
	AddReport // First means nothing here
	// Files have a zero where nothing was added. Deleted of a file counts documents, too, whose place
	// another file took.
	Files []AddReport
}

// Add adds documents as [Index.Add] does: a new one goes to the file that [HashShard] chooses, one that
// replaces another (AddOptions.Replace) to the file of that one. Copies in other files are deleted.
// Ids, dimension and model are checked in all files before the first one is changed.
func (s *Shards) Add(ctx context.Context, src vectors.Source, opts *AddOptions) (r *ShardsAddReport, err error) {
	o := valueOrZero(opts)
	if o.MaxDocuments != nil {
		return nil, fmt.Errorf("%w: a limit of documents is for one file", ErrOption)
	}
	snap, done, err := s.beginChange(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	for _, p := range snap.Snapshots() {
		if o.If == nil {
			break
		}
		if err := o.If(p); err != nil {
			return nil, fmt.Errorf("%s: %w", p.Path(), err)
		}
	}
	routed, err := routeDocuments(ctx, src, snap, &o)
	if err != nil {
		return nil, err
	}
	r = &ShardsAddReport{Files: make([]AddReport, len(s.files))}
	changes := make([]func(*Index) error, len(s.files))
	for i := range changes {
		rows, deleted := routed.rows[i], routed.removals[i]
		if len(rows) == 0 && len(deleted) == 0 {
			continue
		}
		checkedVersion := snap.Snapshots()[i].Version()
		recheck := func(now *Snapshot) error {
			if o.If == nil || now.Version() == checkedVersion {
				return nil
			}
			return o.If(now)
		}
		changes[i] = func(ix *Index) error {
			if len(rows) == 0 {
				_, err := ix.DeleteChosen(ctx, func(now *Snapshot) (*roaring.Bitmap, error) {
					if err := recheck(now); err != nil {
						return nil, fmt.Errorf("%s: %w", ix.Path(), err)
					}
					docs, _, err := now.Named(ctx, deleted)
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
	sumSq := 0.0
	for i := range r.Files {
		f := &r.Files[i]
		r.Docs += f.Docs
		r.Empty += f.Empty
		r.Passages += f.Passages
		r.Kept += f.Kept
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

// routing says where the documents of a source go.
type routing struct {
	rows     [][]int    // of the source, by file
	removals [][]string // ids that are deleted, by file
	replaced int        // documents
	deleted  int        // documents that AddOptions.Delete removes, in each file that has them
}

// routeDocuments finds the file of each document of a source. A document stays in the first file that has
// it, and is deleted from the others.
func routeDocuments(ctx context.Context, src vectors.Source, snap *ShardsSnapshot, o *AddOptions) (*routing, error) {
	snaps := snap.Snapshots()
	for _, p := range snaps {
		if err := p.Header().Model.Check(o.Model); err != nil {
			return nil, fmt.Errorf("%s: %w", p.Path(), err)
		}
		if d := src.Dim(); src.Len() > 0 && d != 0 && d != p.Dim() {
			return nil, fmt.Errorf("%w: documents have %d, %s has %d", ErrDimension, d, p.Path(), p.Dim())
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
	// Ask for all files at once whether the documents may be stored.
	admission := NewAdmission(snaps...)
	removed, err := admission.markRemoved(ctx, o.Delete, rows)
	if err != nil {
		return nil, err
	}
	for j, p := range snaps {
		plan, err := p.planDeletion(ctx, admission.removed[j])
		if err != nil {
			return nil, err
		}
		r.deleted += plan.Documents
	}
	if _, err := admission.Admit(ctx, rows, o.Replace); err != nil {
		return nil, err
	}
	r.replaced = admission.replaced
	// Find the file of each document, and those that it leaves.
	shard := 0
	for i := range rows {
		id := rows[i].documentID()
		if i == 0 || rows[i-1].documentID() != id {
			shard = -1
			for j, p := range snaps {
				ordinals, err := p.PassagesOf(id)
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
			return nil, fmt.Errorf("%w: the payload of %.100q would have to move from %s to %s: add it with its payload", ErrOption,
				rows[i].ID, snaps[from].Path(), snaps[shard].Path())
		}
		r.rows[shard] = append(r.rows[shard], i)
	}
	for _, id := range removed {
		for j, p := range snaps {
			if ordinals, err := p.ordinalsOf(id); err != nil {
				return nil, err
			} else if len(ordinals) > 0 {
				r.removals[j] = append(r.removals[j], id)
			}
		}
	}
	return r, nil
}

// readArrivals lists the rows of a source with the documents that they belong to, and the files whose
// payloads made rows passages (AddOptions.KeepPayload). Only an id in the form of a passage's can be
// one, so the payloads of others are not read.
func readArrivals(ctx context.Context, src vectors.Source, snaps []*Snapshot, o *AddOptions) (rows []Arrival,
	keptFrom map[int]int, err error) {
	rows, keptFrom = make([]Arrival, src.Len()), map[int]int{}
	for i := range rows {
		rows[i].ID = src.ID(i)
	}
	isPassage := func(i int) bool { _, n := vectors.SplitPassageID(rows[i].ID); return n >= 0 }
	for from := 0; from < len(rows); from++ {
		if !isPassage(from) {
			continue
		}
		to := from + 1
		for to < len(rows) && isPassage(to) {
			to++
		}
		i := from
		for d, err := range src.Docs(ctx, from, to) {
			if err != nil {
				return nil, nil, err
			}
			payload := d.Payload
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
		from = to
	}
	return rows, keptFrom, nil
}

// Delete removes documents and passages by id, in every file that has them; see [Index.Delete].
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

// hasOrdinals reports whether an id stands for something in a file ([Snapshot.Named]).
func hasOrdinals(p *Snapshot, id string) (bool, error) {
	ordinals, err := p.ordinalsOf(id)
	return len(ordinals) > 0, err
}

// changeByID changes every file that has some of the ids, and passes these to change.
func (s *Shards) changeByID(ctx context.Context, ids []string, has func(*Snapshot, string) (bool, error),
	change func(*Index, []string) error) (missing []string, err error) {
	snap, done, err := s.beginChange(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
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

// DeleteWhere removes the documents and passages that a condition is true of; see
// [Index.DeleteWhere]. A field need only be in one of the files.
func (s *Shards) DeleteWhere(ctx context.Context, where *condition.Condition) (removed Affected, err error) {
	snap, done, err := s.beginChange(ctx)
	if err != nil {
		return Affected{}, err
	}
	defer done()
	if err := checkFields(ctx, snap.Snapshots(), where); err != nil {
		return Affected{}, err
	}
	changes := make([]func(*Index) error, len(s.files))
	for i := range changes {
		changes[i] = func(ix *Index) error {
			n, err := ix.DeleteChosen(ctx, func(now *Snapshot) (*roaring.Bitmap, error) { return now.selectWithoutCheck(ctx, where) })
			removed.Add(n)
			return err
		}
	}
	if err := s.runChanges(snap, changes); err != nil {
		return Affected{}, err
	}
	return removed, nil
}

// UpdatePayload sets fields in the payloads of the documents that a condition is true
// of; see [Index.UpdatePayload]. A field of the condition need only be in one of the
// files. What is wrong with a payload of any file is found before the first is changed.
//
// The new payloads of all files are in memory until they are committed.
func (s *Shards) UpdatePayload(ctx context.Context, where *condition.Condition, set condition.Fields) (Affected, error) {
	check := func(snap *ShardsSnapshot) error { return checkFields(ctx, snap.Snapshots(), where) }
	return s.updatePayloads(ctx, set, check, func(p *Snapshot) (*roaring.Bitmap, error) { return p.selectWithoutCheck(ctx, where) })
}

// UpdateNamed is UpdatePayload for ids; see [Index.UpdateNamed].
func (s *Shards) UpdateNamed(ctx context.Context, ids []string, set condition.Fields) (updated Affected, missing []string, err error) {
	check := func(snap *ShardsSnapshot) error {
		_, missing, err = snap.findShards(ids, hasOrdinals)
		return err
	}
	updated, err = s.updatePayloads(ctx, set, check, func(p *Snapshot) (*roaring.Bitmap, error) {
		docs, _, err := p.Named(ctx, ids)
		return docs, err
	})
	if err != nil {
		return Affected{}, nil, err
	}
	return updated, missing, nil
}

// updatePayloads sets fields of the ordinals that choose returns for each file. The payloads of all files
// are made before the first file is changed.
func (s *Shards) updatePayloads(ctx context.Context, set condition.Fields, check func(*ShardsSnapshot) error,
	selectDocs func(*Snapshot) (*roaring.Bitmap, error)) (updated Affected, err error) {
	if err := checkUpdate(set); err != nil {
		return Affected{}, err
	}
	snap, done, err := s.beginChange(ctx)
	if err != nil {
		return Affected{}, err
	}
	defer done()
	if err := check(snap); err != nil {
		return Affected{}, err
	}
	changes := make([]func(*Index) error, len(s.files))
	for i, p := range snap.Snapshots() {
		docs, err := selectDocs(p)
		if err != nil {
			return Affected{}, err
		}
		payloads, err := p.mergeFields(ctx, docs, set, nil)
		if err != nil {
			return Affected{}, err
		}
		if len(payloads) == 0 {
			continue
		}
		changes[i] = func(ix *Index) error {
			n, err := ix.UpdateChosen(ctx, selectDocs, set, nil)
			updated.Add(n)
			return err
		}
	}
	if err := s.runChanges(snap, changes); err != nil {
		return Affected{}, err
	}
	return updated, nil
}

// SetPayload replaces the payloads of documents by id, in every file that has them; see
// [Index.SetPayload].
func (s *Shards) SetPayload(ctx context.Context, payloads map[string][]byte) (updated Affected, missing []string, err error) {
	ids := slices.Sorted(maps.Keys(payloads))
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return Affected{}, nil, err
		}
		if err := checkPayload(id, payloads[id]); err != nil {
			return Affected{}, nil, err
		}
	}
	has := func(p *Snapshot, id string) (bool, error) {
		_, there, err := p.Ordinal(id)
		return there, err
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
