package store

import (
	"context"
	"crypto/md5"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// memoryLog is a log that several collections follow.
type memoryLog struct {
	mu      sync.Mutex
	entries []logged
	appends int
	lists   int
}

type logged struct {
	at      storage.Applied
	batches []string
	body    []byte
}

// follower is the log as one collection has it.
type follower struct {
	*memoryLog
	// before is called when an entry is to be put, and its error is that of the put; after likewise
	// when it was put.
	before, after func() error
	failed        error
}

func (f *follower) Append(_ context.Context, after storage.Applied, batches []string, body []byte) (
	storage.Applied, error) {
	if f.before != nil {
		if err := f.before(); err != nil {
			return storage.Applied{}, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if uint64(len(f.entries)) > after.Sequence {
		return storage.Applied{}, fmt.Errorf("%w: %d", ErrTaken, after.Sequence+1)
	}
	if after.Sequence > 0 && f.entries[after.Sequence-1].at != after || after.Sequence > uint64(len(f.entries)) {
		panic(fmt.Sprintf("an entry after %v", after))
	}
	at := storage.Applied{Sequence: after.Sequence + 1, Mark: md5.Sum(body)}
	f.entries = append(f.entries, logged{at, batches, slices.Clone(body)})
	f.appends++
	if f.after != nil {
		return at, f.after()
	}
	return at, nil
}

func (f *follower) Read(_ context.Context, after storage.Applied, use func(storage.Applied, []byte) error) error {
	f.mu.Lock()
	f.lists++
	rest := slices.Clone(f.entries[after.Sequence:])
	f.mu.Unlock()
	for _, e := range rest {
		if err := use(e.at, e.body); err != nil {
			return err
		}
	}
	return nil
}

func (f *follower) Find(_ context.Context, batch string, after uint64) (uint64, []byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.entries[after:] {
		if slices.Contains(e.batches, batch) {
			return e.at.Sequence, e.body, nil
		}
	}
	return 0, nil, nil
}

func (f *follower) ReportFailure(err error) { f.failed = err }

// openFollower opens a collection without documents that follows a log.
func openFollower(t *testing.T, l *memoryLog, most *uint64) (*Collection, *follower, *index.Index) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "own.plaid")
	flat, err := codec.NewFlat(testDim)
	require.NoError(t, err)
	src, err := vectors.FromDocuments(0, []vectors.Document{{ID: "none"}})
	require.NoError(t, err)
	_, err = index.Train(t.Context(), path, src, &index.BuildOptions{Codec: flat, Nbits: 8})
	require.NoError(t, err)
	ix, err := index.Open(t.Context(), path, &index.Options{Write: true, NoSync: true})
	require.NoError(t, err)
	f := &follower{memoryLog: l}
	given := OpenIndex{Index: ix, Write: true, Journal: f, Config: collection.Config{MaxDocuments: most}}
	s, err := FromIndexes(t.Context(), map[string]OpenIndex{"docs": given}, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.Close(context.Background()))
		require.NoError(t, ix.Close())
	})
	c, err := s.Get("docs")
	require.NoError(t, err)
	return c, f, ix
}

func contents(t *testing.T, ix *index.Index) *index.Contents {
	t.Helper()
	snap, err := ix.Snapshot()
	require.NoError(t, err)
	defer snap.Close()
	c, err := snap.Contents(t.Context(), 1)
	require.NoError(t, err)
	return c
}

func updateBatch(t *testing.T, c *Collection, b *Batch, ids ...string) collection.Receipt {
	t.Helper()
	var docs []collection.DocumentInput
	for i, id := range ids {
		docs = append(docs, randomDoc(id, uint64(i)))
	}
	r, err := c.UpdateBatch(t.Context(), b, docs, collection.UpdateOptions{})
	require.NoError(t, err)
	return r
}

// Of two collections that follow a log each sees what the other has put before it decides: numbers,
// ids that are taken, what a selection finds. Nothing to change is no entry.
func TestJournal(t *testing.T) {
	ctx, l := t.Context(), &memoryLog{}
	a, _, ixa := openFollower(t, l, nil)
	b, _, ixb := openFollower(t, l, nil)
	require.Equal(t, []uint64{0, 1}, updateBatch(t, a, &Batch{}, "a", "").Numbers)
	sent := &Batch{}
	require.Equal(t, []uint64{2}, updateBatch(t, b, sent, "c").Numbers, "the entry of the other comes first")
	require.EqualValues(t, 2, sent.Entry)
	_, err := a.Update(ctx, []collection.DocumentInput{randomDoc("c", 9)}, collection.UpdateOptions{})
	require.ErrorIs(t, err, index.ErrDuplicateID, "refused at the end of the log")
	n, err := b.Delete(ctx, collection.Selection{IDs: []string{"a", "nothing"}})
	require.NoError(t, err)
	require.Equal(t, 1, n.Documents)
	n, err = a.Delete(ctx, collection.Selection{IDs: []string{"a"}})
	require.NoError(t, err)
	require.Zero(t, n)
	one := collection.Selection{IDs: []string{"c"}}
	n, err = a.UpdateMetadata(ctx, one, map[string]json.RawMessage{"k": []byte(`"<v>"`)})
	require.NoError(t, err)
	require.Equal(t, 1, n.Documents)
	large := fmt.Appendf(nil, "%q", make([]byte, collection.MaxMetadata/2))
	_, err = b.UpdateMetadata(ctx, one, map[string]json.RawMessage{"k": large})
	require.ErrorIs(t, err, collection.ErrMetadata)
	require.Len(t, l.entries, 4)
	require.NoError(t, a.Follow(ctx))
	require.NoError(t, b.Follow(ctx))
	require.Equal(t, contents(t, ixa), contents(t, ixb))
	lists := l.lists
	updateBatch(t, a, &Batch{}, "d")
	require.Equal(t, lists, l.lists, "a change costs one put")
}

// A change of unknown outcome that is sent again is made once, whether or not the log has it and
// whichever collection gets it; its receipt is the first one.
func TestJournalUnknown(t *testing.T) {
	for _, put := range []bool{true, false} {
		l := &memoryLog{}
		a, fa, ixa := openFollower(t, l, nil)
		b, _, ixb := openFollower(t, l, nil)
		updateBatch(t, a, &Batch{}, "first")
		lost := func() error { return fmt.Errorf("no answer: %w", storage.ErrOutcomeUnknown) }
		if put {
			fa.after = lost
		} else {
			fa.before = lost
		}
		batch := Batch{ID: "x", After: 1}
		docs := []collection.DocumentInput{randomDoc("", 2), randomDoc("", 3)}
		_, err := a.UpdateBatch(t.Context(), &batch, docs, collection.UpdateOptions{})
		require.ErrorIs(t, err, storage.ErrOutcomeUnknown)
		fa.before, fa.after = nil, nil
		require.Equal(t, !put, len(l.entries) == 1)
		batch.Sent = true
		for _, c := range []*Collection{b, a, b} {
			again := batch
			r, err := c.UpdateBatch(t.Context(), &again, docs, collection.UpdateOptions{})
			require.NoError(t, err)
			require.Equal(t, []uint64{1, 2}, r.Numbers)
			require.Equal(t, []string{"1", "2"}, r.IDs)
			require.EqualValues(t, 2, again.Entry)
		}
		n, err := a.DeleteBatch(t.Context(), &Batch{ID: "y"}, collection.Selection{Numbers: []uint64{1}})
		require.NoError(t, err)
		require.Equal(t, 1, n.Documents)
		n, err = b.DeleteBatch(t.Context(), &Batch{ID: "y", Sent: true, After: 1}, collection.Selection{Numbers: []uint64{1}})
		require.NoError(t, err)
		require.Equal(t, 1, n.Documents)
		require.Len(t, l.entries, 3)
		require.NoError(t, a.Follow(t.Context()))
		require.Equal(t, contents(t, ixa), contents(t, ixb))
	}
}

// What comes between a put of unknown outcome and the next try may be that put: it is not made twice.
func TestJournalLatePut(t *testing.T) {
	l := &memoryLog{}
	a, fa, _ := openFollower(t, l, nil)
	b, fb, _ := openFollower(t, l, nil)
	updateBatch(t, a, &Batch{}, "first")
	require.NoError(t, b.Follow(t.Context()))
	fa.before = func() error { return storage.ErrOutcomeUnknown }
	docs := []collection.DocumentInput{randomDoc("", 2)}
	_, err := a.UpdateBatch(t.Context(), &Batch{ID: "x", After: 1}, docs, collection.UpdateOptions{})
	require.ErrorIs(t, err, storage.ErrOutcomeUnknown)
	fa.before = nil
	fb.before = func() error { // the first put arrives after it was looked for
		fb.before = nil
		_, err := a.UpdateBatch(t.Context(), &Batch{ID: "x", After: 1}, docs, collection.UpdateOptions{})
		return err
	}
	r, err := b.UpdateBatch(t.Context(), &Batch{ID: "x", Sent: true, After: 1}, docs, collection.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, []uint64{1}, r.Numbers)
	require.Len(t, l.entries, 2)
}

// A request that arrives after it was sent again, and done, is not done once more.
func TestJournalOvertaken(t *testing.T) {
	l := &memoryLog{}
	a, _, ixa := openFollower(t, l, nil)
	b, _, _ := openFollower(t, l, nil)
	updateBatch(t, a, &Batch{}, "first")
	require.NoError(t, b.Follow(t.Context()))
	first := updateBatch(t, b, &Batch{ID: "x", Sent: true, After: 1}, "", "")
	for range 2 { // a has not read what b has put, and then it has
		late := &Batch{ID: "x", After: 1}
		r := updateBatch(t, a, late, "", "")
		first.Generation, r.Generation = 0, 0
		require.Equal(t, first, r)
		require.EqualValues(t, 2, late.Entry)
	}
	require.Len(t, l.entries, 2)
	for i := range maxRecent { // what is forgotten is looked for
		a.worker.recent.addBatches(uint64(i+3), []outcome{{ID: fmt.Sprint("other", i)}})
	}
	updateBatch(t, a, &Batch{ID: "x", Sent: true, After: 1}, "", "")
	require.Len(t, l.entries, 2)
	require.Len(t, a.worker.recent.entries, maxRecent)
	has, err := ixa.Has("3")
	require.NoError(t, err)
	require.False(t, has)
}

// The limit is in the entries: two collections with another limit than the log has evict alike, and
// an addition of more than may stay leaves the newest.
func TestJournalEvicts(t *testing.T) {
	l, most := &memoryLog{}, uint64(3)
	a, _, ixa := openFollower(t, l, &most)
	b, _, ixb := openFollower(t, l, nil)
	r := updateBatch(t, a, &Batch{}, "a", "b")
	require.Zero(t, r.Evicted)
	r = updateBatch(t, a, &Batch{}, "c", "d")
	require.Equal(t, 1, r.Evicted)
	batch := &Batch{}
	r = updateBatch(t, a, batch, "e", "f", "g", "h", "i")
	require.Equal(t, 5, r.Evicted, "three of before, and two of its own")
	require.EqualValues(t, 4, batch.Entry)
	require.NoError(t, b.Follow(t.Context()))
	require.Equal(t, contents(t, ixa), contents(t, ixb))
	st, err := b.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 3, st.Documents)
	r = updateBatch(t, b, &Batch{}, "j")
	require.Zero(t, r.Evicted)
	two := uint64(2)
	a.LimitDocuments(&two)
	r = updateBatch(t, a, &Batch{}, "k")
	require.Equal(t, 3, r.Evicted)
}

// A fault of the index after an entry was put does not take the acknowledgement back: the change is
// in the log, and the collection says that it follows no more.
func TestJournalAcknowledges(t *testing.T) {
	l := &memoryLog{}
	a, fa, ix := openFollower(t, l, nil)
	fa.after = func() error { return ix.Close() }
	batch := &Batch{}
	updateBatch(t, a, batch, "a")
	require.EqualValues(t, 1, batch.Entry)
	require.Error(t, fa.failed)
	_, err := a.Delete(t.Context(), collection.Selection{IDs: []string{"a"}})
	require.ErrorIs(t, err, collection.ErrDamaged)
	b, _, ixb := openFollower(t, l, nil)
	require.NoError(t, b.Follow(t.Context()))
	has, err := ixb.Has("a")
	require.NoError(t, err)
	require.True(t, has)
}

// An entry that cannot be read ends the following, and is not passed over.
func TestJournalOfNewerProgram(t *testing.T) {
	l := &memoryLog{}
	a, fa, ix := openFollower(t, l, nil)
	l.entries = append(l.entries, logged{at: storage.Applied{Sequence: 1}, body: []byte{2, 0, 0}})
	err := a.Follow(t.Context())
	require.ErrorIs(t, err, ErrEntry)
	require.ErrorIs(t, fa.failed, ErrEntry)
	snap, err := ix.Snapshot()
	require.NoError(t, err)
	defer snap.Close()
	at, err := snap.Applied()
	require.NoError(t, err)
	require.Zero(t, at.Sequence)
}

// Many writers of two collections at a time: every acknowledged document is there once, with the
// number that was said.
func TestJournalManyWriters(t *testing.T) {
	l := &memoryLog{}
	a, _, ixa := openFollower(t, l, nil)
	b, _, ixb := openFollower(t, l, nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	numbers := map[uint64]string{}
	for i := range 60 {
		wg.Go(func() {
			c := []*Collection{a, b}[i%2]
			docs := []collection.DocumentInput{randomDoc(fmt.Sprint("d", i), uint64(i))}
			r, err := c.Update(context.Background(), docs, collection.UpdateOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			numbers[r.Numbers[0]] = r.IDs[0]
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(a.Follow(t.Context()), b.Follow(t.Context())))
	require.Equal(t, contents(t, ixa), contents(t, ixb))
	require.Len(t, numbers, 60)
	snap, err := ixb.Snapshot()
	require.NoError(t, err)
	defer snap.Close()
	for n, id := range numbers {
		require.Equal(t, id, snap.ID(uint32(n)))
	}
	require.Less(t, len(l.entries), 61)
}

// A change that is in the log and that the index refuses, which no admission should let happen, is passed over by
// all; it is not said to be done.
func TestJournalRefusedEntry(t *testing.T) {
	l := &memoryLog{}
	a, _, ix := openFollower(t, l, nil)
	b, _, _ := openFollower(t, l, nil)
	updateBatch(t, a, &Batch{}, "a")
	r := &request{kind: acting}
	r.action = func(ctx context.Context) error {
		o, err := a.worker.requireIndex()
		if err != nil {
			return err
		}
		d := randomDoc("a", 1)
		docs := []vectors.Document{{ID: "a", Tokens: d.Vectors}}
		_, err = a.worker.commitChange(ctx, o, &change{docs: docs, changeHead: changeHead{Kind: addDocuments, First: 1, Dim: d.Dim}})
		return err
	}
	require.ErrorIs(t, a.submit(t.Context(), r), index.ErrDuplicateID)
	updateBatch(t, a, &Batch{}, "b")
	require.NoError(t, b.Follow(t.Context()))
	has, err := ix.Has("b")
	require.NoError(t, err)
	require.True(t, has)
	require.Len(t, l.entries, 3)
}
