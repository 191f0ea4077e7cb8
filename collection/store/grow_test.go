package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
)

var smallGrowth = collection.Growth{Flat: 200, Until: 3000, Factor: 2}

// settled waits until no training runs and none is due.
func settled(t *testing.T, c *Collection) collection.Stats {
	t.Helper()
	var st collection.Stats
	require.Eventually(t, func() bool {
		var err error
		st, err = c.Stats(t.Context())
		require.NoError(t, err)
		c.mu.Lock()
		running := c.growth.running != nil
		c.mu.Unlock()
		return !running && !st.Growth.Training
	}, 2*time.Minute, 5*time.Millisecond)
	require.Empty(t, st.Growth.Failed)
	return st
}

// A collection that grows by single documents goes through all stages, and keeps every
// document with its ordinal, while it is searched.
func TestGrowth(t *testing.T) {
	s := openStore(t, testenv.RAMDir(t), &Options{Growth: smallGrowth, Threads: 1, MinWaste: 1})
	c := declare(t, s, "docs", collection.Config{Nbits: 2})
	var docs []collection.DocumentInput
	stages := map[collection.Stage]bool{}
	var generations []uint64
	for i := 0; len(docs) < 1000; i++ {
		first := len(docs)
		for range 1 + i%10 {
			docs = append(docs, randomDoc("d"+strconv.Itoa(len(docs)), 1))
		}
		r, err := c.Update(t.Context(), docs[first:], collection.UpdateOptions{})
		require.NoError(t, err)
		require.Len(t, r.Numbers, len(docs)-first)
		require.EqualValues(t, first, r.Numbers[0])
		if d := docs[first]; i%8 == 0 {
			st := settled(t, c)
			stages[st.Growth.Stage] = true
			if g := st.Generation; !slices.Contains(generations, g) {
				generations = append(generations, g)
			}
			require.True(t, st.Growth.Stage == collection.StageFinal || finds(t, c, d), "%+v", st)
		}
	}
	st := settled(t, c)
	require.Equal(t, map[collection.Stage]bool{collection.StageFlat: true, collection.StageGrowing: true, collection.StageFinal: true}, stages)
	require.GreaterOrEqual(t, len(generations), 3, "flat, 4 bits, then 2: %v", generations)
	require.True(t, slices.IsSorted(generations))
	require.Equal(t, collection.StageFinal, st.Growth.Stage)
	require.Equal(t, 2, st.Nbits)
	require.EqualValues(t, len(docs), st.Documents)
	require.EqualValues(t, len(docs), st.Metadata)
	v := view(t, c)
	require.NoError(t, c.Verify(t.Context()))
	for i, d := range docs {
		require.Equal(t, d.ID, v.snap.ID(uint32(i)))
		m, err := v.snap.Payload(uint32(i))
		require.NoError(t, err)
		require.Equal(t, string(d.Metadata), string(m))
	}

	// More of another kind.
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 100 {
		d := collection.DocumentInput{ID: "other" + strconv.Itoa(i), Dim: testDim, Vectors: make([]float32, 5*testDim)}
		for j := range d.Vectors {
			d.Vectors[j] = rng.Float32() * float32(j%3)
		}
		docs = append(docs, d)
	}
	_, err := c.Update(t.Context(), docs[len(docs)-100:], collection.UpdateOptions{})
	require.NoError(t, err)
	st = settled(t, c)
	before := st.Growth.Drift
	require.Positive(t, before.Ratio)
	// By hand.
	r, err := c.Retrain(t.Context())
	require.NoError(t, err)
	require.Equal(t, len(docs), r.Docs)
	st = settled(t, c)
	require.Zero(t, st.Growth.Drift.Added)
	require.Greater(t, st.Centroids, before.Centroids-1)
	require.Positive(t, st.Counts.Trainings)
}

// What changes leave unused in a file is given back, and the documents stay.
func TestFreePagesAreGivenBack(t *testing.T) {
	for _, least := range []int64{1 << 16, 1 << 40} {
		s := openStore(t, testenv.RAMDir(t), &Options{MinWaste: least, Threads: 1})
		c := declare(t, s, "docs", collection.Config{})
		var docs []collection.DocumentInput
		for i := range 3000 {
			docs = append(docs, randomDoc("d"+strconv.Itoa(i), uint64(i)))
		}
		for part := range slices.Chunk(docs, 1600) {
			_, err := c.Update(t.Context(), part, collection.UpdateOptions{})
			require.NoError(t, err)
		}
		_, err := c.Delete(t.Context(), collection.Selection{Numbers: []uint64{0}}) // waits for the writer to tidy up
		require.NoError(t, err)
		require.NoError(t, c.Verify(t.Context()))
		st, err := c.Stats(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, len(docs)-1, st.Documents)
		v := view(t, c)
		pages, err := v.snap.Pages()
		require.NoError(t, err)
		unused := wastedBytes(pages, v.snap.State())
		loose := unused >= 1<<16 && 4*unused >= pages.Size
		require.Equal(t, least == 1<<40, loose, "%d bytes of %d are not used", unused, pages.Size)
		require.Equal(t, least == 1<<40, st.Counts.Compactions == 0)
		for i := 1; i < len(docs); i += 100 {
			require.Equal(t, docs[i].ID, v.snap.ID(uint32(i)))
		}
	}
}

// A collection that is closed does not wait for a compaction, and one whose caller has gone away is given up.
func TestCompactionsEnd(t *testing.T) {
	var log bytes.Buffer
	s := openStore(t, testenv.RAMDir(t), &Options{MinWaste: 1 << 40, Threads: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	c := declare(t, s, "docs", collection.Config{})
	for i := range 3 {
		require.NoError(t, update(c, collection.UpdateOptions{Replace: true}, randomDoc("d", uint64(i)))().err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, c.submit(ctx, &request{kind: acting, action: func(context.Context) error {
		cancel()
		o, err := c.worker.requireIndex()
		require.NoError(t, err)
		require.ErrorIs(t, c.worker.compact(ctx, o), context.Canceled)
		c.store.opts.MinWaste = 1 // from here on the writer would compact
		c.endLifetime(collection.ErrClosed)
		require.ErrorIs(t, c.worker.compact(t.Context(), o), collection.ErrClosed)
		return nil
	}}))
	require.NoError(t, s.Close(t.Context()))
	require.Zero(t, c.counts.Compactions)
	require.NotContains(t, log.String(), "compacted")
	require.NotContains(t, log.String(), "compacting")
}

// Changes beside a training hold no snapshot when they are answered: a store that is closed can be opened again.
func TestChangesBesideATrainingReleaseTheFile(t *testing.T) {
	dir := testenv.RAMDir(t)
	s := openStore(t, dir, &Options{Growth: smallGrowth, Threads: 1})
	s.training <- struct{}{} // the training waits for its turn until the store is closed
	c := declare(t, s, "docs", collection.Config{})
	var docs []collection.DocumentInput
	for i := range 100 {
		docs = append(docs, randomDoc("d"+strconv.Itoa(i), uint64(i)))
	}
	require.NoError(t, update(c, collection.UpdateOptions{}, docs[:10]...)().err)
	require.NoError(t, update(c, collection.UpdateOptions{}, docs[10:]...)().err)
	require.True(t, c.isTraining())
	_, err := c.Delete(t.Context(), collection.Selection{IDs: []string{"d0"}})
	require.NoError(t, err)
	require.NoError(t, s.Close(t.Context()))

	c, err = openStore(t, dir, nil).Get("docs")
	require.NoError(t, err)
	require.NoError(t, c.Err())
}

// A training ends with a check of what searches find, which is stored with the index.
func TestTrainingsMeasureRecall(t *testing.T) {
	s := openStore(t, testenv.RAMDir(t), &Options{Growth: smallGrowth, Threads: 1})
	s.checkQuestions = 20
	c := declare(t, s, "docs", collection.Config{Nbits: 2})
	stored := func() (d *storage.Defaults) {
		require.Eventually(t, func() bool {
			v := view(t, c)
			var err error
			d, err = v.snap.Defaults()
			require.NoError(t, err)
			return d != nil
		}, time.Minute, 5*time.Millisecond)
		return d
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for first := range 20 {
		var docs []collection.DocumentInput
		for i := range 20 {
			d := collection.DocumentInput{ID: strconv.Itoa(20*first + i), Dim: testDim, Vectors: make([]float32, 10*testDim)}
			for j := range d.Vectors {
				d.Vectors[j] = float32(rng.NormFloat64())
			}
			docs = append(docs, d)
		}
		require.NoError(t, update(c, collection.UpdateOptions{}, docs...)().err)
	}
	settled(t, c)
	before := stored()
	require.True(t, before.Passages)
	require.Len(t, before.Classes, 2)
	require.Equal(t, 20, before.Classes[0].Queries)
	require.Equal(t, before.Classes, settled(t, c).Defaults.Classes)

	_, err := c.Delete(t.Context(), collection.Selection{IDs: []string{"1", "2", "3"}})
	require.NoError(t, err)
	_, err = c.Retrain(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 397, stored().Docs, "of the new codec")
}

// Writers of all kinds and searches beside trainings; then everything is there that
// was answered.
func TestChangesWhileGrowing(t *testing.T) {
	n := 150
	if !effort.Long() {
		n = 25
	}
	s := openStore(t, testenv.RAMDir(t), &Options{
		Growth: collection.Growth{Flat: 50, Until: 2000, Factor: 1.25}, Threads: 2, MinWaste: 1,
	})
	c := declare(t, s, "docs", collection.Config{})
	type state struct {
		version uint64
		there   bool
	}
	const writers = 4
	final := make([]map[string]state, writers)
	ctx, cancel := context.WithCancel(t.Context())
	var searching, writing sync.WaitGroup
	for w := range writers {
		final[w] = map[string]state{}
		writing.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 9))
			for i := range n {
				id := fmt.Sprintf("w%d-%d", w, rng.IntN(40))
				switch rng.IntN(6) {
				case 0:
					_, err := c.Delete(ctx, collection.Selection{IDs: []string{id}})
					if err == nil {
						final[w][id] = state{}
					} else {
						require.ErrorIs(t, err, collection.ErrEmpty)
					}
				case 1:
					got, err := c.UpdateMetadata(ctx, collection.Selection{IDs: []string{id}}, map[string]json.RawMessage{"version": []byte(strconv.Itoa(i))})
					if err == nil && got.Documents == 1 {
						final[w][id] = state{uint64(i), true}
					}
				default:
					_, err := c.Update(ctx, []collection.DocumentInput{randomDoc(id, uint64(i)), randomDoc("", 1)}, collection.UpdateOptions{Replace: true})
					require.NoError(t, err)
					final[w][id] = state{uint64(i), true}
				}
			}
		})
	}
	searching.Go(func() {
		q := randomDoc("q", 1)
		for ctx.Err() == nil {
			v, err := c.Snapshot(ctx)
			if err != nil {
				continue // empty yet
			}
			r, err := v.engine.Search(ctx, search.Query{Vectors: q.Vectors, Dim: testDim}, search.Options{K: 5})
			if err == nil && len(r.Hits) != min(5, v.snap.Len()) {
				t.Errorf("%d hits of %d documents", len(r.Hits), v.snap.Len())
			}
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			if err := v.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	writing.Wait()
	cancel()
	searching.Wait()
	st := settled(t, c)
	require.Positive(t, st.Counts.Trainings)
	require.NoError(t, c.Verify(t.Context()))
	v := view(t, c)
	for _, ids := range final {
		for id, want := range ids {
			ordinal, there, err := v.snap.Ordinal(id)
			require.NoError(t, err)
			require.Equal(t, want.there, there, id)
			if there {
				m, err := v.snap.Payload(ordinal)
				require.NoError(t, err)
				require.Contains(t, string(m), fmt.Sprintf(`"version":%d,`, want.version), id)
			}
		}
	}
}
