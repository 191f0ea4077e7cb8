package index

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// Arrival is a document or passage that will be stored under an ordinal of its own.
type Arrival struct {
	ID     string
	Parent string // id of the document that it is a passage of. "" means that it is a document
}

// documentID returns the id of the document that the arrival belongs to.
func (a *Arrival) documentID() string {
	if a.Parent != "" {
		return a.Parent
	}
	return a.ID
}

// Admission decides which documents one change may store in an index, and which ordinals they
// replace. Create it under the write lock, from the newest snapshot. It is not safe for concurrent
// use.
type Admission struct {
	snaps   []*Snapshot    // one, or those of the shards
	claimed map[string]int // ids of the admitted documents and passages, with their rows

	removed  []*roaring.Bitmap // ordinals to delete, by snapshot
	docs     int               // number of admitted documents
	replaced int               // number of stored documents that are replaced
}

// NewAdmission starts from the snapshot of an index, or from those of shards. Without snapshots it
// stands for an index without documents.
func NewAdmission(snaps ...*Snapshot) *Admission {
	a := &Admission{snaps: snaps, claimed: map[string]int{}}
	for range snaps {
		a.removed = append(a.removed, roaring.New())
	}
	return a
}

// ArrivalError reports why an [Arrival] was refused.
type ArrivalError struct {
	Row int // index among the rows of the call
	ID  string
	Err error
}

func (e *ArrivalError) Error() string {
	return fmt.Sprintf("document %d, %.100q: %v", e.Row, e.ID, e.Err)
}

// Unwrap returns the cause.
func (e *ArrivalError) Unwrap() error { return e.Err }

// Admit admits documents, all of them or none. Passages of a document must be in a row, with
// ascending numbers. If replace is set, a document replaces the one with its id and all passages of
// that; otherwise it is refused. overlap reports that nothing was admitted because an earlier call
// claimed an id of this one: store the documents of that call, and start again.
//
// Errors: [*ArrivalError] with [ErrDuplicateID] or [ErrPassages], and those of the snapshot.
func (a *Admission) Admit(ctx context.Context, rows []Arrival, replace bool) (overlap bool, err error) {
	for i := range rows {
		_, idClaimed := a.claimed[rows[i].ID]
		_, parentClaimed := a.claimed[rows[i].Parent]
		if idClaimed || parentClaimed {
			return true, nil
		}
	}
	// List the ids of documents and passages, each once.
	ids, rowOfID, err := listIDs(rows)
	if err != nil {
		return false, err
	}
	// Find the ordinals that are replaced.
	removed, docs, replaced := make([]*roaring.Bitmap, len(a.snaps)), 0, 0
	for i := range removed {
		removed[i] = a.removed[i].Clone()
	}
	var unchecked []string // ids that a stored document or passage may use
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		row := rowOfID[id]
		if rows[row].documentID() != id {
			unchecked = append(unchecked, id)
			continue
		}
		docs++
		found := false
		for i, snap := range a.snaps {
			ordinals, isPassage, err := snap.findOrdinals(id)
			ordinals = slices.DeleteFunc(ordinals, removed[i].Contains) // without those deleted anyway
			switch {
			case err != nil:
				return false, err
			case isPassage:
				unchecked = append(unchecked, id)
				continue
			case len(ordinals) == 0:
				continue
			case !replace:
				return false, arrivalErrorf(rows, row,
					"%w: %s has %.100q", ErrDuplicateID, snap.Path(), snap.ID(ordinals[0]))
			}
			removed[i].AddMany(ordinals)
			found = true
		}
		if found {
			replaced++
		}
	}
	// All other ordinals stay and keep their ids: check that no arrival uses one.
	for _, id := range unchecked {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if err := a.checkUnused(rows, rowOfID[id], id, removed); err != nil {
			return false, err
		}
	}
	if len(a.claimed) == 0 {
		a.claimed = rowOfID // the usual case; the map may be large, so avoid a copy
	} else {
		maps.Copy(a.claimed, rowOfID)
	}
	a.removed = removed
	a.docs += docs
	a.replaced += replaced
	return false, nil
}

// Replaced returns the number of stored documents that the admitted ones replace.
func (a *Admission) Replaced() int { return a.replaced }

// passageNameTaken is the message for a document with the id that a passage of another would get.
const passageNameTaken = "%w: one of its passages would be called %.100q as another document is"

// arrivalErrorf returns the error of a row.
func arrivalErrorf(rows []Arrival, row int, format string, args ...any) error {
	return &ArrivalError{row, rows[row].ID, fmt.Errorf(format, args...)}
}

// listIDs returns the ids of documents and of their passages in order, each with the row that it
// came with first.
func listIDs(rows []Arrival) (ids []string, rowOfID map[string]int, err error) {
	ids, rowOfID = make([]string, 0, len(rows)), make(map[string]int, len(rows))
	for i := range rows {
		idsOfRow := []string{rows[i].ID}
		if parent := rows[i].Parent; parent != "" {
			if i == 0 || rows[i-1].Parent != parent {
				idsOfRow = append(idsOfRow, parent)
			} else if err := checkPassageOrder(rows[i-1].ID, rows[i].ID); err != nil {
				return nil, nil, &ArrivalError{i, rows[i].ID, err}
			}
		}
		for _, id := range idsOfRow {
			first, seen := rowOfID[id]
			switch {
			case !seen:
				rowOfID[id] = i
				ids = append(ids, id)
			// The id came before. Find out why, for the message.
			case rows[first].Parent == id && rows[i].Parent == id:
				return nil, nil, arrivalErrorf(rows, i,
					"%w: document %d is a passage of %.100q, and others are in between", ErrPassages, first, id)
			case rows[first].Parent == rows[i].Parent:
				return nil, nil, arrivalErrorf(rows, i, "%w: document %d has the same", ErrDuplicateID, first)
			case rows[first].Parent != "" && rows[first].ID == id:
				return nil, nil, arrivalErrorf(rows, i,
					"%w: %.100q is a passage of %.100q", ErrDuplicateID, id, rows[first].Parent)
			case rows[i].Parent != "" && rows[i].ID == id:
				return nil, nil, arrivalErrorf(rows, i, passageNameTaken, ErrDuplicateID, id)
			default:
				return nil, nil, arrivalErrorf(rows, i,
					"%w: %.100q comes as a document and as passages", ErrDuplicateID, id)
			}
		}
	}
	return ids, rowOfID, nil
}

// checkPassageOrder checks that a passage has a higher number than the previous one.
func checkPassageOrder(previous, id string) error {
	parent, number := vectors.SplitPassageID(id)
	if _, lastNumber := vectors.SplitPassageID(previous); number < lastNumber {
		return fmt.Errorf("%w: passage %d of %.100q follows passage %d", ErrPassages, number, parent, lastNumber)
	}
	return nil
}

// checkUnused refuses a row whose id, or whose document's id, is used by an ordinal that stays.
func (a *Admission) checkUnused(rows []Arrival, row int, id string, removed []*roaring.Bitmap) error {
	for i, snap := range a.snaps {
		taken, err := snap.ordinalsOf(id)
		if err != nil {
			return err
		}
		for _, ordinal := range taken {
			if removed[i].Contains(ordinal) {
				continue
			}
			if doc := snap.DocumentOf(ordinal); doc != id {
				return arrivalErrorf(rows, row, "%w: %.100q is a passage of %.100q", ErrDuplicateID, id, doc)
			}
			return arrivalErrorf(rows, row, passageNameTaken, ErrDuplicateID, id)
		}
	}
	return nil
}

// UnusedID returns an unused id for a document that has none: plain, or plain with a hyphen and a
// number. taken are further ids that are in use. The id is not claimed before Admit.
func (a *Admission) UnusedID(plain string, taken map[string]bool) (id string, err error) {
	id = plain
	for n := 1; ; n++ {
		_, used := a.claimed[id]
		used = used || taken[id]
		for _, snap := range a.snaps {
			ordinals, err := snap.ordinalsOf(id)
			if err != nil {
				return "", err
			}
			used = used || len(ordinals) > 0
		}
		if !used {
			return id, nil
		}
		id = plain + "-" + strconv.Itoa(n)
	}
}

// markRemoved marks the documents and passages of ids as removed, except documents that are among
// rows. It returns the ids without the exceptions.
func (a *Admission) markRemoved(ctx context.Context, ids []string, rows []Arrival) (removed []string, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	arriving := make(map[string]bool, len(rows))
	for i := range rows {
		arriving[rows[i].documentID()] = true
	}
	removed = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return arriving[id] })
	for i, snap := range a.snaps {
		named, _, err := snap.OrdinalsOfIDs(ctx, removed)
		if err != nil {
			return nil, err
		}
		a.removed[i].Or(named)
	}
	return removed, nil
}

// Evict returns the number of stored documents to delete so that, with the admitted ones, no more
// than limit stay, and the number of admitted documents that are beyond the limit as well. Call it
// after the last Admit.
func (a *Admission) Evict(ctx context.Context, limit uint64) (evicted, surplus int, err error) {
	plan, err := a.snaps[0].planDeletion(ctx, a.removed[0])
	if err != nil {
		return 0, 0, err
	}
	return a.markOldest(ctx, limit, plan.Documents)
}

// markOldest marks the oldest documents of the only snapshot beyond the limit as removed, with all
// of their passages. It returns their number, and the number of admitted documents beyond the
// limit. removedDocs is the number of stored documents that are removed anyway.
func (a *Admission) markOldest(ctx context.Context, limit uint64, removedDocs int) (evicted, surplus int, err error) {
	snap := a.snaps[0]
	limit = min(limit, storage.MaxDocs) // so that it can be subtracted
	excess := int64(snap.Documents()-removedDocs+a.docs) - int64(limit)
	if excess <= 0 {
		return 0, 0, nil
	}
	dead := roaring.Or(snap.Tombstones(), a.removed[0])
	next := dead.NextAbsentValue(0)
	for ; excess > 0 && next < int64(snap.State().Docs); next = dead.NextAbsentValue(uint32(next)) {
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
		ordinals, err := snap.PassagesOf(snap.DocumentOf(uint32(next)))
		if err != nil {
			return 0, 0, err
		}
		dead.AddMany(ordinals)
		a.removed[0].AddMany(ordinals)
		evicted++
		excess--
	}
	return evicted, int(max(excess, 0)), nil
}
