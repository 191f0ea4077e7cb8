package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
)

// runLogged runs requests of a collection with a journal. decide runs the first n requests of a group, and appends an
// entry if they change something.
//
// A request that is refused, or that finds nothing to change, may have been decided on a state that lacks entries of
// other writers. So the log is read afterwards, and such requests are decided again if it had more entries.
func (w *worker) runLogged(ctx context.Context, group []*request, decide func([]*request) int) (n int) {
	if _, err := w.requireIndex(); err != nil { // a collection with a journal always has an index
		return failGroup(group[:1], err)
	}
	for _, r := range group {
		if r.batch.ID == "" { // it cannot have been sent before
			r.batch.ID, r.batch.After = rand.Text(), math.MaxUint64
		}
	}
	if w.behind {
		if _, err := w.followJournal(ctx); err != nil {
			return failGroup(group, err)
		}
	}
	for {
		// Answer the requests that the log has already.
		answerable, err := w.answerFromLog(ctx, group)
		if group = group[:answerable]; err != nil {
			return failGroup(group, err)
		}
		if w.sealed {
			return failGroup(group, w.removedError())
		}
		// Decide the others, as many as fit into one entry.
		w.appended = 0
		if n = decide(group); w.appended > 0 {
			return n
		}
		group = group[:n]
		if w.sealed {
			return failGroup(group, w.removedError())
		}
		undecided, taken := false, false
		for _, r := range group {
			if errors.Is(r.err, storage.ErrOutcomeUnknown) {
				return n
			}
			undecided = undecided || r.entry == 0
			taken = taken || errors.Is(r.err, ErrTaken)
		}
		if !undecided {
			return n
		}
		// No entry was appended. Requests without one are decided if the log has no more entries.
		applied, err := w.followJournal(ctx)
		if err != nil {
			return failGroup(group, err)
		}
		r := group[0] // alone, if it was sent before
		if applied == 0 && !taken && r.batch.Sent && (r.err == nil || refusalName(r.err) != "") {
			switch err := w.logNoChange(ctx, r); {
			case errors.Is(err, ErrTaken):
				taken = true
			case err != nil:
				r.err = err
				return n
			default:
				return n
			}
		}
		if applied == 0 && !taken {
			if last, err := w.lastEntry(); err == nil {
				for _, r := range group {
					r.decidedAt = last
				}
			}
			return n
		}
		for _, r := range group {
			if r.entry == 0 {
				r.err, r.receipt, r.affected = nil, collection.Receipt{}, index.Affected{}
			}
		}
	}
}

// failGroup sets the error of the requests of a group that have no entry, and returns the size of the group.
func failGroup(group []*request, err error) (n int) {
	for _, r := range group {
		if r.entry == 0 {
			r.err = err
		}
	}
	return len(group)
}

// answerFromLog answers the requests of a group that the log has already. It returns how many requests can go on: all,
// or those before the first whose search in the log failed. err is the error of the first request.
func (w *worker) answerFromLog(ctx context.Context, group []*request) (n int, err error) {
	for i, r := range group {
		err := w.findInLog(ctx, r)
		switch {
		case err == nil:
		case i > 0:
			return i, nil
		case errors.Is(err, ErrLate):
			return 1, err
		default:
			return 1, fmt.Errorf("%w: looking for the change in the log: %w", storage.ErrOutcomeUnknown, err)
		}
	}
	return len(group), nil
}

// maxLookback is the maximum number of entries that are searched for a request that is not marked as sent before.
const maxLookback = 256

// lastEntry returns the number of the last entry that the index has.
func (w *worker) lastEntry() (uint64, error) {
	o, err := w.requireIndex()
	if err != nil {
		return 0, err
	}
	last, err := w.lastApplied(o)
	return last.Sequence, err
}

// findInLog answers a request that the log has already (I11 of docs/lab/cluster.md: a change is made once). The log can
// have it because the request was sent again after a lost answer, or because it arrives late, for example from a
// socket of a process that slept. If the change enters the log after the last entry of the index, it is found when the
// entry of this request is refused there ([ErrTaken]).
func (w *worker) findInLog(ctx context.Context, r *request) error {
	if r.entry > 0 {
		return nil
	}
	recentEntry, remembered := w.recent.entries[r.batch.ID]
	rememberedAfter, err := w.recent.after, error(nil)
	if w.recent.entries == nil {
		rememberedAfter, err = w.lastEntry()
	}
	var after uint64 // the search begins after this entry
	switch {
	case err != nil:
		return err
	case remembered:
		after = recentEntry - 1
	case r.batch.After >= rememberedAfter: // otherwise it would be remembered
		return nil
	case !r.batch.Sent && rememberedAfter-r.batch.After > maxLookback:
		return fmt.Errorf("%w: it was sent after entry %d, and the index has entry %d",
			ErrLate, r.batch.After, rememberedAfter)
	default:
		after = r.batch.After
	}
	entry, body, err := w.journal().Find(ctx, r.batch.ID, after)
	if err != nil || body == nil {
		return err
	}
	ch, err := decodeChange(body)
	if err == nil && !ch.answerRequest(r) {
		err = fmt.Errorf("entry %d of the log has no batch %q", entry, r.batch.ID)
	}
	if err != nil {
		return err
	}
	if _, err = w.followJournal(ctx); err == nil { // snapshots must have the change once it is answered
		r.entry = entry
	}
	return err
}
