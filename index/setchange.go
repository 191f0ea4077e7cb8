package index

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math/bits"
	"slices"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/vectors"
)

// Place is the file, of n, that a document of an id is put in when it is new to a set,
// and by a split by hash: the upper half of hash · n, where the hash is FNV-1a of 64
// bits, mixed by the finalizer of MurmurHash3. So documents of one n keep together
// those whose hashes are neighbours.
func Place(id string, n int) int {
	x := hashOf(id)
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	hi, _ := bits.Mul64(x^x>>33, uint64(n))
	return int(hi)
}

func hashOf(id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	return h.Sum64()
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
// [Place] says, one that replaces another (AddOptions.Replace) to the file that has that, and
// a passage to that of its document. What other files have of the document is deleted there.
// Ids, dimension and model are checked in all files before the first one is changed.
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
				n, _, err := Entry{ix: ix}.deleteIDs(ctx, extra[i], false)
				r.Files[i].Deleted = n
				return err
			}
			own := o
			own.Delete, own.deleteAlone = extra[i], true
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

// route finds, for each file, which documents of a source go to it, and the ids of those that are
// deleted there: of a passage that moves, the passage alone, though a document may have its id too.
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
	r := &routing{src: src, parts: parts, o: o}
	if err := r.findHomes(ctx); err != nil {
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
		var have []int // files
		for j, p := range parts {
			_, ok, err := p.Ordinal(id)
			switch {
			case err != nil:
				return nil, nil, err
			case ok && !o.Replace:
				return nil, nil, fmt.Errorf("document %d: %w: %q, in %s", i, ErrDuplicateID, id, p.Path())
			case ok:
				have = append(have, j)
			}
		}
		owner, of, err := r.owner(ctx, i, have)
		if err != nil {
			return nil, nil, err
		}
		to[owner] = append(to[owner], i)
		for _, j := range have {
			if j != owner {
				extra[j] = append(extra[j], id)
			}
		}
		if o.Replace && !o.Apart {
			for _, e := range r.others[of] {
				extra[e.file] = append(extra[e.file], e.id)
			}
			delete(r.others, of) // which go once
		}
	}
	if src.Len() > 0 {
		gone := slices.DeleteFunc(slices.Clone(o.Delete), func(id string) bool { return seen[id] })
		for j, p := range parts {
			docs, _, err := p.named(ctx, gone, !o.Apart)
			if err != nil {
				return nil, nil, err
			}
			for it := docs.Iterator(); it.HasNext(); {
				if err := ctx.Err(); err != nil {
					return nil, nil, err
				}
				extra[j] = append(extra[j], p.ID(it.Next()))
			}
		}
	}
	return to, extra, nil
}

// routing finds the files of the documents of a source.
type routing struct {
	src   vectors.Source
	parts []*Snapshot
	o     *AddOptions
	// first is, for each document that comes, whole or in passages, the first file that has
	// it or passages of it, and others is what files after that have.
	first  map[string]int
	others map[string][]elsewhere
}

// elsewhere is a document of a file.
type elsewhere struct {
	file int
	id   string
}

func (r *routing) note(of string, file int, id string) {
	if first, ok := r.first[of]; !ok {
		r.first[of] = file
	} else if first != file {
		r.others[of] = append(r.others[of], elsewhere{file, id})
	}
}

// findHomes looks for the documents of the source, and those of which it may have passages.
func (r *routing) findHomes(ctx context.Context) error {
	r.first, r.others = map[string]int{}, map[string][]elsewhere{}
	ids := make([]string, r.src.Len())
	whole := map[string]bool{}
	for i := range ids {
		var n int
		if ids[i], n = vectors.SplitPassageID(r.src.ID(i)); n >= 0 {
			whole[ids[i]] = true
			ids = append(ids, r.src.ID(i)) // which may be what it is called
		}
	}
	for j, p := range r.parts {
		docs, err := p.PassagesOf(ctx, ids)
		if err != nil {
			return err
		}
		for it := docs.Iterator(); it.HasNext(); {
			ordinal := it.Next()
			of, _ := p.PassageOf(ordinal)
			r.note(of, j, p.ID(ordinal))
		}
		for id := range whole {
			if _, ok, err := p.Ordinal(id); err != nil {
				return err
			} else if ok {
				r.note(id, j, id)
			}
		}
	}
	return nil
}

// owner is the file that a document goes to, given those that have one of its id, and the id of
// the document that it is or is a passage of. A new one whose document is there in part is an
// error. What is called like a passage goes where its document is, and only if that makes a
// difference its payload is asked whether it is one.
func (r *routing) owner(ctx context.Context, i int, have []int) (file int, of string, err error) {
	id := r.src.ID(i)
	if r.o.Apart && len(have) > 0 {
		return have[0], id, nil
	}
	of, number := vectors.SplitPassageID(id)
	home, there := r.first[of]
	if !there {
		home = Place(of, len(r.parts))
	}
	own, known := r.first[id]
	switch {
	case known:
	case len(have) > 0:
		own = have[0]
	default:
		own = home
	}
	refused := !r.o.Replace && (known || there)
	if number >= 0 && (own != home || refused || len(r.others[of])+len(r.others[id]) > 0) {
		is, err := r.isPassage(ctx, i)
		switch {
		case err != nil:
			return 0, "", err
		case is:
			own, refused = home, !r.o.Replace && there
		default:
			of, refused = id, !r.o.Replace && known
		}
	}
	if refused {
		return 0, "", fmt.Errorf("document %d: %w: %q, of which %s has a part", i, ErrDuplicateID, of, r.parts[own].Path())
	}
	return own, of, nil
}

// isPassage tells what the payload of a document says.
func (r *routing) isPassage(ctx context.Context, i int) (bool, error) {
	for d, err := range r.src.Docs(ctx, i, i+1) {
		if err != nil {
			return false, err
		}
		p, err := checkPassage(i, d)
		return p != nil, err
	}
	return false, nil
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
// [Index.DeleteWhere]. A field need only be in one of the files.
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

// UpdatePayload sets fields in the payloads of the documents that a condition is true
// of; see [Index.UpdatePayload]. A field of the condition need only be in one of the
// files. What is wrong with a payload of any file is found before the first is changed.
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
			return Entry{ix: ix}.changePayload(ctx, func(now *Snapshot) (_ map[uint32][]byte, err error) {
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
