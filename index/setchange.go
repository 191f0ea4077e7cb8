package index

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/bits"
	"slices"

	"github.com/plaid-ir/plaid/metadata/condition"
	"github.com/plaid-ir/plaid/vectors"
)

// Place is the file, of n, that a document of an id is put in when it is new to a set,
// and by a split by hash: the upper half of hash · n, where the hash is FNV-1a of 64
// bits, mixed by the finalizer of MurmurHash3. So documents of one n keep together
// those whose hashes are neighbours.
func Place(id string, n int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	x := h.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	hi, _ := bits.Mul64(x^x>>33, uint64(n))
	return int(hi)
}

// change runs the change of each file for which there is one, while the set shows
// what it showed before. Files are changed in order; what follows a failure is not.
func (s *Set) change(before *SetSnapshot, changes []func(*Index) error) error {
	s.mu.Lock()
	s.held = before.p
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.held = nil
		s.mu.Unlock()
	}()
	var done []string
	for i, fn := range changes {
		if fn == nil {
			continue
		}
		ix := s.files[i]
		if err := fn(ix); err != nil {
			if len(done) > 0 {
				err = &SetError{Path: ix.Path(), Done: done, Err: err}
			}
			return err
		}
		done = append(done, ix.Path())
	}
	return nil
}

// begin takes the turn of changes and shows what is to be changed.
func (s *Set) begin(ctx context.Context) (snap *SetSnapshot, done func(), err error) {
	if err := s.write.begin(ctx); err != nil {
		return nil, nil, err
	}
	if snap, err = s.Snapshot(); err != nil {
		s.write.end()
		return nil, nil, err
	}
	return snap, func() { _ = snap.Close(); s.write.end() }, nil
}

// having are the ids that live documents of each file have, or with passages stand for
// ([Snapshot.Named]), and those for which there is none in any file.
func (s *SetSnapshot) having(ctx context.Context, ids []string, passages bool) (in [][]string, missing []string, err error) {
	in = make([][]string, len(s.p.parts))
	found := map[string]bool{}
	for i, p := range s.p.parts {
		_, absent, err := p.named(ctx, ids, passages)
		if err != nil {
			return nil, nil, err
		}
		next := 0
		for _, id := range ids {
			if next < len(absent) && absent[next] == id {
				next++
				continue
			}
			in[i], found[id] = append(in[i], id), true
		}
	}
	for _, id := range ids {
		if !found[id] {
			missing = append(missing, id)
		}
	}
	return in, missing, nil
}

// SetAddReport says what Add did, in all, and in each file.
type SetAddReport struct {
	AddReport             // First means nothing here
	Files     []AddReport // zero where nothing was added
}

// Add adds documents as [Index.Add] does: one whose id is new goes to the file that
// [Place] says, a passage to that of the other passages, one that replaces another (AddOptions.Replace) to the file that has
// that; if several files have the id, it is deleted in the others. Ids, dimension and
// model are checked in all files before the first one is changed.
func (s *Set) Add(ctx context.Context, src vectors.Source, opts *AddOptions) (r *SetAddReport, err error) {
	o := given(opts)
	snap, done, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	to, extra, err := route(ctx, src, snap, &o)
	if err != nil {
		return nil, err
	}
	r = &SetAddReport{Files: make([]AddReport, len(s.files))}
	changes := make([]func(*Index) error, len(s.files))
	for i := range changes {
		if len(to[i]) == 0 && len(extra[i]) == 0 {
			continue
		}
		changes[i] = func(ix *Index) error {
			if len(to[i]) == 0 {
				n, _, err := ix.Delete(ctx, extra[i])
				r.Files[i].Deleted = n
				return err
			}
			own := o
			own.Delete = extra[i]
			added, err := ix.Add(ctx, &picked{src, to[i]}, &own)
			if err == nil {
				r.Files[i] = *added
			}
			return err
		}
	}
	if err := s.change(snap, changes); err != nil {
		return nil, err
	}
	squares := 0.0
	for i := range r.Files {
		f := &r.Files[i]
		r.Docs += f.Docs
		r.Empty += f.Empty
		r.Replaced += f.Replaced
		r.Kept += f.Kept
		r.Deleted += f.Deleted
		r.Zero += f.Zero
		r.Tokens += f.Tokens
		r.Clamped += f.Clamped
		r.BuildRMSE = max(r.BuildRMSE, f.BuildRMSE)
		squares += float64(f.RMSE * f.RMSE * float64(f.Tokens))
	}
	r.RMSE = rmse(squares, r.Tokens)
	return r, nil
}

// route finds, for each file, which documents of a source go to it, and what is to be
// deleted there.
func route(ctx context.Context, src vectors.Source, snap *SetSnapshot, o *AddOptions) (to [][]int, extra [][]string, err error) {
	parts := snap.Parts()
	to, extra = make([][]int, len(parts)), make([][]string, len(parts))
	for _, p := range parts {
		if err := p.Header().Model.Check(o.Model); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", p.Path(), err)
		}
		if d := src.Dim(); src.Len() > 0 && d != 0 && d != p.Dim() {
			return nil, nil, fmt.Errorf("%w: documents have %d, %s has %d", ErrDimension, d, p.Path(), p.Dim())
		}
	}
	homes, err := passageHomes(ctx, src, parts)
	if err != nil {
		return nil, nil, err
	}
	seen := make(map[string]bool, src.Len())
	for i := range src.Len() {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		id := src.ID(i)
		if seen[id] {
			return nil, nil, fmt.Errorf("document %d: %w: %q twice in the input", i, ErrDuplicateID, id)
		}
		seen[id] = true
		owner := -1
		for j, p := range parts {
			_, ok, err := p.Ordinal(id)
			switch {
			case err != nil:
				return nil, nil, err
			case ok && !o.Replace:
				return nil, nil, fmt.Errorf("document %d: %w: %q, in %s", i, ErrDuplicateID, id, p.Path())
			case ok && owner >= 0:
				extra[j] = append(extra[j], id)
			case ok:
				owner = j
			}
		}
		if owner < 0 {
			of := id // what it is, or may be a passage of
			home, ok := homes[of]
			if !ok {
				of, _ = vectors.SplitPassageID(id)
				home, ok = homes[of]
			}
			if ok && !o.Replace {
				if err := checkPartNew(ctx, src, i, of, parts[home]); err != nil {
					return nil, nil, err
				}
			}
			if owner = home; !ok {
				owner = Place(of, len(parts))
			}
		}
		to[owner] = append(to[owner], i)
	}
	if src.Len() > 0 {
		in, _, err := snap.having(ctx, slices.DeleteFunc(slices.Clone(o.Delete), func(id string) bool { return seen[id] }), !o.Apart)
		if err != nil {
			return nil, nil, err
		}
		for j, ids := range in {
			extra[j] = append(extra[j], ids...)
		}
	}
	return to, extra, nil
}

// checkPartNew refuses a document of a source whose id is that of a longer one, or which is
// a passage of one, of which a file has something already.
func checkPartNew(ctx context.Context, src vectors.Source, i int, of string, home *Snapshot) error {
	if src.ID(i) != of {
		for d, err := range src.Docs(ctx, i, i+1) {
			if err != nil {
				return err
			}
			if p, err := checkPassage(i, d); p == nil {
				return err
			}
		}
	}
	return fmt.Errorf("document %d: %w: %q, of which %s has a part", i, ErrDuplicateID, of, home.Path())
}

// passageHomes are the files that have passages of the documents of a source, or the
// documents of which it has passages.
func passageHomes(ctx context.Context, src vectors.Source, parts []*Snapshot) (homes map[string]int, err error) {
	ids := make([]string, src.Len())
	whole := map[string]bool{}
	for i := range ids {
		var n int
		if ids[i], n = vectors.SplitPassageID(src.ID(i)); n >= 0 {
			whole[ids[i]] = true
			ids = append(ids, src.ID(i)) // which may be what it is called
		}
	}
	homes = map[string]int{}
	for j, p := range parts {
		docs, err := p.PassagesOf(ctx, ids)
		if err != nil {
			return nil, err
		}
		for it := docs.Iterator(); it.HasNext(); {
			of, _ := p.PassageOf(it.Next())
			homes[of] = j
		}
		for id := range whole {
			if _, ok, err := p.Ordinal(id); err != nil {
				return nil, err
			} else if ok {
				homes[id] = j
			}
		}
	}
	return homes, nil
}

// Delete removes documents by id, in every file that has them; see [Index.Delete].
func (s *Set) Delete(ctx context.Context, ids []string) (deleted int, missing []string, err error) {
	return s.changeByID(ctx, ids, true, func(ix *Index, ids []string) (int, error) {
		n, _, err := ix.Delete(ctx, ids)
		return n, err
	})
}

// changeByID changes documents in every file that has them: change is given those of one.
func (s *Set) changeByID(ctx context.Context, ids []string, passages bool, change func(*Index, []string) (int, error)) (changed int, missing []string, err error) {
	snap, done, err := s.begin(ctx)
	if err != nil {
		return 0, nil, err
	}
	defer done()
	in, missing, err := snap.having(ctx, ids, passages)
	if err != nil {
		return 0, nil, err
	}
	changes := make([]func(*Index) error, len(s.files))
	for i, ids := range in {
		if len(ids) == 0 {
			continue
		}
		changes[i] = func(ix *Index) error {
			n, err := change(ix, ids)
			changed += n
			return err
		}
	}
	if err := s.change(snap, changes); err != nil {
		return 0, nil, err
	}
	return changed, missing, nil
}

// DeleteWhere removes the documents that a condition is true of; see
// [Index.DeleteWhere]. A field has to be in one of the files only.
func (s *Set) DeleteWhere(ctx context.Context, where *condition.Condition) (deleted int, err error) {
	snap, done, err := s.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	if err := checkFields(ctx, snap.Parts(), where); err != nil {
		return 0, err
	}
	changes := make([]func(*Index) error, len(s.files))
	for i := range changes {
		changes[i] = func(ix *Index) error {
			n, err := ix.deleteKnown(ctx, where)
			deleted += n
			return err
		}
	}
	if err := s.change(snap, changes); err != nil {
		return 0, err
	}
	return deleted, nil
}
