package index

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index/metadata"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// UpdatePayload sets fields in all payloads for which a condition is true, in one transaction that
// writes no vectors; "_id IN (…)" selects ids. [condition.Fields] describes what happens to the
// other fields. An ordinal without payload gets one. If a payload is not a JSON object
// ([condition.ErrNotObject]), or has one of the fields within another one ([condition.ErrNested]),
// nothing is changed.
//
// The new payloads are in memory until the transaction is committed.
func (ix *Index) UpdatePayload(
	ctx context.Context, where *condition.Condition, set condition.Fields,
) (Affected, error) {
	return Entry{ix: ix}.UpdatePayload(ctx, where, set)
}

// UpdatePayload does [Index.UpdatePayload] as this entry.
func (e Entry) UpdatePayload(ctx context.Context, where *condition.Condition, set condition.Fields) (Affected, error) {
	selectDocs := func(snap *Snapshot) (*roaring.Bitmap, error) { return snap.Select(ctx, where) }
	return e.UpdateSelected(ctx, selectDocs, set, nil)
}

// UpdateByID is UpdatePayload for ids of documents and passages ([Snapshot.OrdinalsOfIDs]). Unknown ids
// are returned in missing and are not an error.
func (ix *Index) UpdateByID(
	ctx context.Context, ids []string, set condition.Fields,
) (updated Affected, missing []string, err error) {
	updated, err = ix.UpdateSelected(ctx, func(snap *Snapshot) (docs *roaring.Bitmap, err error) {
		docs, missing, err = snap.OrdinalsOfIDs(ctx, ids)
		return docs, err
	}, set, nil)
	if err != nil {
		return Affected{}, nil, err
	}
	return updated, missing, nil
}

// UpdateSelected is UpdatePayload for the live ordinals that selectDocs returns, which is called
// under the write lock with the newest snapshot. check, if not nil, may refuse a new payload.
func (ix *Index) UpdateSelected(
	ctx context.Context, selectDocs Selection, set condition.Fields,
	check func(ordinal uint32, payload []byte) error,
) (Affected, error) {
	return Entry{ix: ix}.UpdateSelected(ctx, selectDocs, set, check)
}

// UpdateSelected does [Index.UpdateSelected] as this entry.
func (e Entry) UpdateSelected(
	ctx context.Context, selectDocs Selection, set condition.Fields,
	check func(ordinal uint32, payload []byte) error,
) (updated Affected, err error) {
	if err := checkUpdate(set); err != nil {
		return Affected{}, err
	}
	updated, err = e.replacePayloads(ctx, func(snap *Snapshot) (map[uint32][]byte, error) {
		docs, err := selectDocs(snap)
		if err != nil {
			return nil, err
		}
		return snap.mergeFields(ctx, docs, set, check)
	})
	return updated, err
}

// CheckUpdate returns the errors of [Index.UpdateSelected] for the snapshot, and counts the documents
// that it would change.
func (s *Snapshot) CheckUpdate(
	ctx context.Context, docs *roaring.Bitmap, set condition.Fields,
	check func(ordinal uint32, payload []byte) error,
) (Affected, error) {
	if err := checkUpdate(set); err != nil {
		return Affected{}, err
	}
	payloads, err := s.mergeFields(ctx, docs, set, check)
	if err != nil || len(payloads) == 0 {
		return Affected{}, err
	}
	return s.countDocuments(docs), nil
}

// checkUpdate checks the fields that an update sets.
func checkUpdate(set condition.Fields) error {
	if err := set.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrOption, err)
	}
	for name := range set {
		if err := vectors.CheckKey(name); err != nil {
			return fmt.Errorf("%w: %w", ErrOption, err)
		}
		if strings.EqualFold(name, vectors.PassageField) {
			return fmt.Errorf("%w: field %s names the document of a passage and cannot be set", ErrOption, name)
		}
	}
	return nil
}

// mergeFields returns the payloads of live ordinals with the fields set.
func (s *Snapshot) mergeFields(
	ctx context.Context, docs *roaring.Bitmap, set condition.Fields,
	check func(ordinal uint32, payload []byte) error,
) (map[uint32][]byte, error) {
	if len(set) == 0 {
		return nil, nil
	}
	payloads := make(map[uint32][]byte, docs.GetCardinality())
	for it := docs.Iterator(); it.HasNext(); {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		ordinal := it.Next()
		stored, err := s.Payload(ordinal)
		if err != nil {
			return nil, err
		}
		payloads[ordinal], err = set.Merge(stored)
		if errors.Is(err, condition.ErrNested) {
			err = fmt.Errorf("%w: %w", ErrOption, err)
		}
		if n := len(payloads[ordinal]); n > vectors.MaxPayload {
			err = fmt.Errorf("%w: %d bytes, at most %d are possible", vectors.ErrPayload, n, vectors.MaxPayload)
		}
		if err == nil && (hasField(set, vectors.ImageField) || hasField(set, vectors.GridField)) {
			err = s.checkPage(ordinal, payloads[ordinal])
		}
		if err != nil {
			return nil, fmt.Errorf("%s: document %q: %w", s.Path(), s.ID(ordinal), err)
		}
		if check != nil {
			if err := check(ordinal, payloads[ordinal]); err != nil {
				return nil, fmt.Errorf("document %q: %w", s.ID(ordinal), err)
			}
		}
	}
	return payloads, nil
}

// hasField reports whether an update sets a field.
func hasField(set condition.Fields, name string) bool { _, ok := set[name]; return ok }

// checkPage checks a new payload of a document, if it describes a page.
func (s *Snapshot) checkPage(ordinal uint32, payload []byte) error {
	chunk, doc, _ := s.Locate(ordinal)
	_, offsets := s.ChunkDocs(chunk)
	return poolingFromBuild(s.Header().Build).checkPage(payload, int(offsets[doc+1]-offsets[doc]))
}

// SetPayload replaces the payloads of documents by id, in one transaction that writes no vectors.
// An empty payload removes the stored one. A passage stays a passage, and a document cannot become
// one ([ErrOption]). Ids without a live document are returned in missing, in order, and are not an
// error.
func (ix *Index) SetPayload(
	ctx context.Context, payloads map[string][]byte,
) (updated Affected, missing []string, err error) {
	return Entry{ix: ix}.SetPayload(ctx, payloads)
}

// SetPayload does [Index.SetPayload] as this entry.
func (e Entry) SetPayload(
	ctx context.Context, payloads map[string][]byte,
) (updated Affected, missing []string, err error) {
	updated, err = e.replacePayloads(ctx, func(snap *Snapshot) (map[uint32][]byte, error) {
		newPayloads := make(map[uint32][]byte, len(payloads))
		for _, id := range slices.Sorted(maps.Keys(payloads)) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			payload := payloads[id]
			if err := checkPayload(id, payload); err != nil {
				return nil, err
			}
			ordinal, ok, err := snap.Ordinal(id)
			if err == nil && ok {
				payload, err = snap.withPassageField(ordinal, payload)
			}
			if err == nil && ok {
				err = snap.checkPage(ordinal, payload)
			}
			switch {
			case err != nil:
				return nil, fmt.Errorf("metadata of document %q: %w", id, err)
			case !ok:
				missing = append(missing, id)
			case len(payload) == 0:
				newPayloads[ordinal] = nil
			default:
				newPayloads[ordinal] = payload
			}
		}
		return newPayloads, nil
	})
	if err != nil {
		return Affected{}, nil, err
	}
	return updated, missing, nil
}

// checkPayload checks that a payload can be stored, and that it is UTF-8.
func checkPayload(id string, payload []byte) error {
	err := checkStorable(id, payload)
	if err == nil && !utf8.Valid(payload) {
		err = fmt.Errorf("%w: it is not UTF-8", vectors.ErrPayload)
	}
	if err != nil {
		return fmt.Errorf("metadata of document %q: %w", id, err)
	}
	return nil
}

// replacePayloads replaces payloads by ordinal with those that newPayloads returns, which is called
// with the newest snapshot.
func (e Entry) replacePayloads(
	ctx context.Context, newPayloads func(*Snapshot) (map[uint32][]byte, error),
) (changed Affected, err error) {
	c, err := e.beginChange(ctx)
	if err != nil {
		return Affected{}, err
	}
	defer c.endChange()
	payloads, err := newPayloads(c.snap)
	if err != nil {
		return Affected{}, err
	}
	if len(payloads) == 0 {
		return Affected{}, c.recordEntry()
	}
	// Derive the fields, and store them with the payloads in one transaction.
	ordinals, state := slices.Sorted(maps.Keys(payloads)), c.snap.State()
	run, absorbed, err := deriveFields(ctx, c.snap, ordinals, payloads, &state)
	if err != nil {
		return Affected{}, err
	}
	state.PayloadUpdates++
	err = c.update(&state, func(g *storage.Generation, sets storage.DocSets) error {
		for _, ordinal := range ordinals {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := replacePayload(g, sets, ordinal, payloads[ordinal]); err != nil {
				return err
			}
		}
		for _, r := range absorbed {
			if err := g.DeleteFieldRun(r.ID); err != nil {
				return err
			}
		}
		return run.Put(g)
	})
	if err != nil {
		return Affected{}, err
	}
	// Record the change for caches, and for a retraining in progress.
	e.ix.payloadLog.add(state.PayloadUpdates, ordinals)
	if e.ix.changedPayloads != nil {
		e.ix.changedPayloads.AddMany(ordinals)
	}
	return c.snap.countDocuments(roaring.BitmapOf(ordinals...)), nil
}

// deriveFields builds a run from the fields of new payloads. The run absorbs the last runs of the
// state, which are returned.
func deriveFields(
	ctx context.Context, snap *Snapshot, ordinals []uint32, payloads map[uint32][]byte, state *storage.State,
) (run *metadata.EncodedRun, absorbed []storage.FieldRun, err error) {
	fields := newFieldBuilder(DefaultMemory)
	for _, ordinal := range ordinals {
		if err := fields.Add(ctx, ordinal, payloads[ordinal]); err != nil {
			return nil, nil, err
		}
	}
	if absorbed, err = fields.Absorb(ctx, snap.fileSnapshot, liveDocs(snap.fileSnapshot), state); err != nil {
		return nil, nil, err
	}
	run, err = fields.Run(state)
	return run, absorbed, err
}

// replacePayload replaces the payload of a live document. nil removes it.
func replacePayload(g *storage.Generation, sets storage.DocSets, ordinal uint32, payload []byte) error {
	if payload == nil {
		sets.Payload.Remove(ordinal)
		return g.DeletePayload(ordinal)
	}
	sets.Payload.Add(ordinal)
	return g.PutPayload(ordinal, payload)
}

// payloadLog remembers the last changes of payloads, for caches of data derived from payloads.
type payloadLog struct {
	mu      sync.Mutex
	changes []payloadChange // in order; their updates are consecutive
	docs    uint64          // number of documents in all of them
}

type payloadChange struct {
	updates uint64 // storage.State.PayloadUpdates after the change
	docs    *roaring.Bitmap
}

// Limits of a payloadLog.
const (
	maxLoggedChanges = 1024
	maxLoggedDocs    = 1 << 20
)

func (l *payloadLog) add(updates uint64, ordinals []uint32) {
	docs := roaring.BitmapOf(ordinals...)
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.changes); n > 0 && l.changes[n-1].updates+1 != updates { // a change in between is missing
		l.changes, l.docs = nil, 0
	}
	l.changes = append(l.changes, payloadChange{updates, docs})
	l.docs += uint64(len(ordinals))
	for len(l.changes) > maxLoggedChanges || l.docs > maxLoggedDocs && len(l.changes) > 1 {
		l.docs -= l.changes[0].docs.GetCardinality()
		l.changes = slices.Delete(l.changes, 0, 1)
	}
}

// PayloadsChanged returns the ordinals of the documents whose payloads have changed since the index
// had the given [storage.State].PayloadUpdates. complete is false if the log does not reach back
// that far: an [Index] remembers only its last changes.
func (s *Snapshot) PayloadsChanged(since uint64) (docs *roaring.Bitmap, complete bool) {
	docs = roaring.New()
	now := s.State().PayloadUpdates
	if since == now {
		return docs, true
	}
	l := &s.ix.payloadLog
	l.mu.Lock()
	defer l.mu.Unlock()
	// The log must have all changes after since up to now; others may have been logged since then.
	n := len(l.changes)
	if since > now || n == 0 || l.changes[0].updates > since+1 || l.changes[n-1].updates < now {
		return nil, false
	}
	for _, c := range l.changes {
		if c.updates > since && c.updates <= now {
			docs.Or(c.docs)
		}
	}
	return docs, true
}
