package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/journal"
	"github.com/plaid-ir/plaid/collection/cluster/replica"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/objectstest/memory"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/storage/objects"
	"github.com/plaid-ir/plaid/vectors"
)

// sourceOf is documents as a build takes them; some are passages.
func sourceOf(t *testing.T, docs []collection.DocumentInput) vectors.Source {
	t.Helper()
	all := make([]vectors.Document, len(docs))
	for i, d := range docs {
		all[i] = vectors.Document{ID: d.ID, Tokens: d.Vectors, Payload: d.Metadata}
	}
	src, err := vectors.FromDocuments(docs[0].Dim, all)
	require.NoError(t, err)
	return src
}

// A bulk build takes the place of what there was, and changes made meanwhile are made to what it has built.
func TestBuild(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 2, 3, nil)
	a, b, s := nodes[0], nodes[1], nodes[0].cfg.Store
	wiki := declared(t, a)
	before, during, docs := testDocs(1000, 30, 16), testDocs(2000, 30, 16), testDocs(0, 300, 16)
	add(t, wiki, before)
	bulk := begunBuild(t, a, "wiki")
	add(t, wiki, during)
	_, err := finishBuild(t, bulk, docs)
	require.NoError(t, err)
	await(t, "what was built is searched", func() bool { return numbersOf(t, wiki).Documents == 330 })
	require.Equal(t, "d2007", found(t, b, "wiki", during[7]))
	require.Equal(t, "d77", found(t, b, "wiki", docs[77]))
	require.NotEqual(t, "d1007", found(t, b, "wiki", before[7]))

	// Of two builds the one that began first has lost.
	first, second := *bulk, *bulk
	require.NoError(t, first.reserveGeneration(t.Context()))
	require.NoError(t, second.reserveGeneration(t.Context()))
	_, err = finishBuild(t, &first, docs)
	require.ErrorIs(t, err, ErrConflict)
	_, err = finishBuild(t, &second, docs)
	require.NoError(t, err)

	_, err = Build(t.Context(), s, "wiki", BuildOptions{Train: index.BuildOptions{Nbits: 2}}, sourceOf(t, docs[:100]),
		sourceOf(t, docs[100:200]))
	require.NoError(t, err)
	await(t, "what was built is searched",
		func() bool { st := numbersOf(t, wiki); return st.Documents == 200 && st.Nbits == 2 })
	_, err = Build(t.Context(), s, "other", BuildOptions{}, sourceOf(t, docs))
	require.ErrorIs(t, err, collection.ErrUnknown)
	r, err := Verify(t.Context(), s, VerifyOptions{})
	require.NoError(t, err)
	require.Empty(t, r.Faults)
	require.Empty(t, r.Unclaimed)
	require.Equal(t, 1, r.Collections)

	_, err = Build(t.Context(), s, "wiki", BuildOptions{Train: index.BuildOptions{Nbits: 3}}, sourceOf(t, docs[:100]))
	require.ErrorIs(t, err, index.ErrOption)
	require.Nil(t, inStore(t, s).Building, "logs are cut again")
}

// A backup is one file with all documents, and a restored one is the collection that it was.
func TestBackupAndRestore(t *testing.T) {
	nodes := startNodes(t, 2, 4, func(c *Config) { c.Replicas = 1 }) // so that a node has not all shards
	a, b := nodes[0], nodes[1]
	wiki := declared(t, a)
	_, err := wiki.(collection.Backuper).Backup(t.Context(), &bytes.Buffer{})
	require.ErrorIs(t, err, collection.ErrEmpty)
	docs := testDocs(0, 60, 16)
	for i := range 3 { // passages, and a document that looks like one
		p := &vectors.Passage{ParentID: "long#1", Number: i, Start: i, End: i + 1}
		docs[20+i].ID = p.ID()
		payload, err := p.Payload(docs[20+i].Metadata)
		require.NoError(t, err)
		docs[20+i].Metadata = payload
	}
	docs[30].ID = "short#1"
	add(t, wiki, docs)
	_, err = wiki.Delete(t.Context(), collection.Selection{IDs: []string{"d5"}})
	require.NoError(t, err)
	var file bytes.Buffer
	r, err := wiki.(collection.Backuper).Backup(t.Context(), &file)
	require.NoError(t, err)
	require.EqualValues(t, file.Len(), r.Size)
	require.NoError(t, b.Restore(t.Context(), "again", bytes.NewReader(file.Bytes())))
	copied, err := a.Get("again")
	require.NoError(t, err)
	want, got := numbersOf(t, wiki), numbersOf(t, copied)
	require.Equal(t, want.Documents, got.Documents)
	require.Equal(t, want.Tokens, got.Tokens)
	require.Equal(t, want.Growth.Stage, got.Growth.Stage)
	require.Equal(t, "d7", found(t, a, "again", docs[7]))
	for _, c := range []collection.Collection{wiki, copied} {
		gone, err := c.Delete(t.Context(), collection.Selection{IDs: []string{"long#1", "short#1", "d5"}})
		require.NoError(t, err)
		require.Equal(t, index.Affected{Documents: 2, Passages: 3}, gone)
	}
}

// Documents without vectors come first, and the first vectors decide the dimension.
func TestDimensionComesLater(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 2, 3, nil)
	a, b := nodes[0], nodes[1]
	wiki := declared(t, a)
	var without []collection.DocumentInput
	for i := range 10 {
		without = append(without, collection.DocumentInput{ID: fmt.Sprint("w", i), Metadata: []byte(`{"n":1}`)})
	}
	add(t, wiki, without)
	require.Zero(t, numbersOf(t, wiki).Dim)
	docs := testDocs(0, 10, 16)
	there, err := b.Get("wiki")
	require.NoError(t, err)
	_, err = there.Update(t.Context(), docs, collection.UpdateOptions{})
	require.NoError(t, err)
	st := numbersOf(t, wiki)
	require.EqualValues(t, 20, st.Documents)
	require.Equal(t, 16, st.Dim)
	require.Equal(t, "d3", found(t, a, "wiki", docs[3]))
	_, err = wiki.Update(t.Context(), testDocs(50, 1, 8), collection.UpdateOptions{})
	require.ErrorIs(t, err, index.ErrDimension)
}

// First vectors that come while another generation without a dimension is built do not wait for ever.
func TestDimensionWhileTraining(t *testing.T) {
	t.Parallel()
	s := memory.New()
	c := testNode(t, s, "a", func(c *Config) { c.Beat = 20 * time.Millisecond })
	wiki := declared(t, c, collection.DocumentInput{ID: "w", Metadata: []byte(`{"n":1}`)})
	s.Fail("/files/", errLost)
	changeMap(t, s, func(m *Map) {
		m.Last++
		next := *m.Current
		next.Number, next.Begun = m.Last, false
		m.Next = &next
	})
	ended := make(chan error, 1)
	go func() {
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
		defer stop()
		_, err := wiki.Update(ctx, testDocs(0, 10, 16), collection.UpdateOptions{})
		ended <- err
	}()
	looks(t, c, 5)
	s.SetHook(nil)
	require.NoError(t, <-ended)
	require.EqualValues(t, 11, numbersOf(t, wiki).Documents)
}

// First vectors that come during a training have a generation that the training does not take the place of.
func TestDimensionInPlaceOfTraining(t *testing.T) {
	t.Parallel()
	s := memory.New()
	c := testNode(t, s, "a", nil)
	wiki := declared(t, c, collection.DocumentInput{ID: "w", Metadata: []byte(`{"n":1}`)})
	begun := atomic.Bool{}
	s.SetHook(func(_ context.Context, op, name string) (before, after error) {
		m, err := existingMap(t.Context(), s.Twin(), "wiki")
		if err == nil && op == "put" && name == versionObject("wiki", m.Version+1) && m.Training != nil && !begun.Swap(true) {
			changeMap(t, s.Twin(), func(m *Map) {
				m.Last++
				m.Next = &replica.Generation{Number: m.Last, Dim: 16, Nbits: 8, Stage: collection.StageFlat}
			})
		}
		return nil, nil
	})
	_, err := wiki.(collection.Retrainer).Retrain(t.Context())
	require.NoError(t, err)
	await(t, "all are done", func() bool {
		m := inStore(t, s)
		return m.Next == nil && m.Training == nil && m.Wanted == ""
	})
	m := inStore(t, s)
	require.Equal(t, 16, m.Current.Dim)
	require.EqualValues(t, m.Last, len(m.Retired)+1)
}

// The share of each shard follows max_documents, and less than one document a shard is refused.
func TestMaxDocuments(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, 2, 3, nil)
	a, b := nodes[0], nodes[1]
	n := func(n uint64) *uint64 { return &n }
	_, err := a.Create(t.Context(), "small", collection.Config{MaxDocuments: n(2)})
	require.ErrorIs(t, err, collection.ErrConfig)
	wiki, err := a.Create(t.Context(), "wiki", collection.Config{MaxDocuments: n(30)})
	require.NoError(t, err)
	there, err := b.Get("wiki")
	require.NoError(t, err)
	var evicted atomic.Int64
	var wg sync.WaitGroup
	for front, c := range []collection.Collection{wiki, there} {
		wg.Go(func() {
			for i := range 5 {
				docs := testDocs(100*front+20*i, 20, 8)
				r, err := c.Update(t.Context(), docs, collection.UpdateOptions{})
				if err != nil {
					t.Error(err)
				}
				evicted.Add(int64(r.Evicted))
				// A request of the other node may just have added its 20 to one shard, whose share is 10.
				if n := numbersOf(t, c).Documents; n > 40 || i > 1 && n < 30 {
					t.Errorf("%d documents are there, and 30 are kept", n)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 30, numbersOf(t, wiki).Documents)
	require.EqualValues(t, 200-30, evicted.Load(), "by one of them only")
	_, err = wiki.SetMaxDocuments(t.Context(), n(2))
	require.ErrorIs(t, err, collection.ErrConfig)
	cfg, err := wiki.SetMaxDocuments(t.Context(), n(10))
	require.NoError(t, err)
	require.EqualValues(t, 10, *cfg.MaxDocuments)
	_, err = there.Update(t.Context(), testDocs(1000, 20, 8), collection.UpdateOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 10, numbersOf(t, there).Documents, "the next change everywhere knows the limit")
}

// A training that fails is not repeated before the collection has grown by a tenth, and the statistics say why:
// whether no codec can be put, or no checkpoint of a shard, which all nodes say.
func TestTrainingThatFails(t *testing.T) {
	t.Parallel()
	for part, says := range map[string]string{"/codec/": "refused", "/files/0001/": "shard 1"} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			s := memory.New()
			s.Fail(part, fmt.Errorf("refused: %w", objects.ErrName))
			nodes := nodesOver(t, s, 2,
				func(c *Config) { c.Shards, c.Index.Growth = 2, collection.Growth{Flat: 100, Until: 10_000} })
			docs := testDocs(0, 60, 16)
			wiki := declared(t, nodes[0], docs...)
			await(t, "the training fails", func() bool { return numbersOf(t, wiki).Growth.Failed != "" })
			require.Contains(t, numbersOf(t, wiki).Growth.Failed, says)
			require.Equal(t, collection.StageFlat, numbersOf(t, wiki).Growth.Stage)
			require.Equal(t, "d7", found(t, nodes[1], "wiki", docs[7]))
			_, err := wiki.(collection.Retrainer).Retrain(t.Context())
			require.ErrorContains(t, err, says)
			require.Nil(t, inStore(t, s).Next)
			last := inStore(t, s).Last
			s.SetHook(nil)
			add(t, wiki, testDocs(100, 2, 16))
			looks(t, nodes[0], 10)
			require.Equal(t, last, inStore(t, s).Last, "it is not tried again")
			add(t, wiki, testDocs(200, 10, 16))
			trained(t, wiki)
		})
	}
}

// A store that is away for a while during a training puts that off, and no longer.
func TestTrainingWhileStoreIsAway(t *testing.T) {
	t.Parallel()
	s := memory.New()
	s.Fail("/codec/", errLost)
	c := testNode(t, s, "a", func(c *Config) {
		c.Beat, c.Index.Growth = 20*time.Millisecond, collection.Growth{Flat: 100, Until: 10_000}
	})
	wiki := declared(t, c, testDocs(0, 60, 16)...)
	await(t, "the training fails", func() bool { return numbersOf(t, wiki).Growth.Failed != "" })
	require.ErrorIs(t, inStore(t, s).Failed.Cause.toError(), collection.ErrUnreachable)
	s.Fail("/files/", errLost)
	await(t, "it is tried again", func() bool { return inStore(t, s).Next != nil })
	looks(t, c, 3*waitBeats)
	require.NotNil(t, inStore(t, s).Next, "it is not given up")
	s.SetHook(nil)
	trained(t, wiki)
}

// A node that ends, or is slow, while it is asked for its part of a training puts that off, and no longer.
func TestTrainingWhileNodesEnd(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		context.Canceled, context.DeadlineExceeded, collection.ErrClosed, storage.ErrClosed, collection.ErrReopened,
	} {
		t.Run(err.Error(), func(t *testing.T) {
			t.Parallel()
			s, failed := memory.New(), atomic.Bool{}
			serve := func(h http.Handler, w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/sample") && !failed.Swap(true) {
					text, jerr := json.Marshal(newFailure(err))
					require.NoError(t, jerr)
					w.WriteHeader(http.StatusUnprocessableEntity)
					_, _ = w.Write(text)
					return
				}
				h.ServeHTTP(w, r)
			}
			change := func(c *Config) {
				c.Beat, c.Shards, c.Replicas = 20*time.Millisecond, 8, 1 // each node is asked
				c.Index.Growth = collection.Growth{Flat: 100, Until: 10_000}
			}
			a := testNodeBehind(t, s, "a", serve, change)
			b := testNodeBehind(t, s, "b", serve, change)
			await(t, "the nodes know each other", func() bool { return a.isProcessAlive(b.node.Started) && b.isProcessAlive(a.node.Started) })
			wiki := declared(t, a, testDocs(0, 60, 16)...)
			trained(t, wiki)
			require.True(t, failed.Load())
		})
	}
}

func trained(t *testing.T, wiki collection.Collection) {
	t.Helper()
	await(t, "it is trained", func() bool {
		st := numbersOf(t, wiki).Growth
		return st.Stage == collection.StageGrowing && st.Failed == ""
	})
}

// looks waits until a node has looked at the store several times.
func looks(t *testing.T, c *Cluster, n int64) {
	t.Helper()
	at := c.requests.Load()
	await(t, "some looks", func() bool { return c.requests.Load() > at+3*n })
}

// In any order of changes to generations, each number stands for one of them, and none is forgotten.
func TestNumbersOfGenerations(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	m := &Map{Name: "wiki", ID: "wiki.0123456789abcdef", Version: 1, Shards: 1, Replicas: 1}
	for range 1000 {
		switch r.IntN(6) {
		case 0:
			m.reserve(&m.Training, "x")
		case 1:
			m.reserve(&m.Building, "x")
		case 2:
			m.release(&m.Building)
		case 3:
			if m.Training != nil && m.Next == nil {
				m.Next, m.Training = &replica.Generation{Number: m.Training.Generation}, nil
			}
		case 4:
			if m.Next != nil && r.IntN(2) == 0 {
				m.giveUpNext(errors.New("a test"))
			} else if m.Next != nil {
				m.promote(m.Next)
			}
		case 5:
			if m.Building != nil {
				g := &replica.Generation{Number: m.Building.Generation}
				m.Building = nil
				m.promote(g)
			}
		}
		require.NoError(t, m.validate())
		used := len(m.Retired) + len(m.generations())
		for _, r := range []*Reserved{m.Training, m.Building} {
			if r != nil {
				used++
			}
		}
		require.EqualValues(t, m.Last, used)
	}
	m.remove()
	require.NoError(t, m.validate())
	require.Equal(t, []Retired{{ID: m.ID, Shards: m.Shards}}, m.Retired, "its logs are to be sealed")
}

// Damage in the store is found, and what no map speaks of is named.
func TestVerifyFindsDamage(t *testing.T) {
	t.Parallel()
	s := memory.New()
	c := testNode(t, s, "a", func(c *Config) { c.Shards, c.Index.Growth = 2, collection.Growth{Flat: 50, Until: 60} })
	wiki := declared(t, c, testDocs(0, 40, 8)...)
	await(t, "it is trained", func() bool { return numbersOf(t, wiki).Growth.Stage == collection.StageFinal })
	for i := range 4 {
		add(t, wiki, testDocs(100*(i+1), 10, 8))
	}
	require.NoError(t, wiki.(collection.Verifier).Verify(t.Context()))
	m, err := c.findMap(t.Context(), "wiki")
	require.NoError(t, err)
	s.Set("data/wiki.ffffffffffffffff/codec/00000001", []byte("x"))
	s.Set(codecObject(m.ID, 77), []byte("x"))
	r, err := Verify(t.Context(), s, VerifyOptions{Dir: t.TempDir()})
	require.NoError(t, err)
	require.Empty(t, r.Faults)
	require.Len(t, r.Unclaimed, 2)
	files, logs := s.Names(dataPrefix(m.ID)+"files/"), s.Names(dataPrefix(m.ID)+"log/0001/")
	require.NotEmpty(t, files)
	for _, name := range []string{m.Current.Codec.Name, files[len(files)-1], logs[len(logs)-2]} {
		whole := s.Body(name)
		damaged := bytes.Clone(whole)
		for i := len(damaged) / 4; i < len(damaged)*3/4; i++ { // one byte may be of a page that is free
			damaged[i] ^= 1
		}
		s.Set(name, damaged)
		err := wiki.(collection.Verifier).Verify(t.Context())
		require.Error(t, err, name)
		require.Contains(t, err.Error(), "wiki")
		s.Set(name, whole)
	}
	require.NoError(t, s.Delete(t.Context(), logs[len(logs)-2]))
	require.Error(t, wiki.(collection.Verifier).Verify(t.Context()), "a gap")
}

// Files of replicas that are not needed go after a day, those of collections that are gone at once.
func TestCacheIsSwept(t *testing.T) {
	c := testNode(t, memory.New(), "a", nil)
	wiki := declared(t, c, testDocs(0, 10, 8)...)
	id := wiki.(*shardedCollection).id
	for _, dir := range []string{"other.0123456789abcdef/0000-00000001", "wiki.ffffffffffffffff/0000-00000001",
		id + "/0007-00000001", ".scratch-1/x"} {
		require.NoError(t, os.MkdirAll(filepath.Join(c.cfg.Dir, dir), 0o777))
	}
	dirs := func() (n int) {
		all, err := filepath.Glob(filepath.Join(c.cfg.Dir, "*", "*"))
		require.NoError(t, err)
		return len(all)
	}
	require.Equal(t, 5, dirs())
	c.removeStaleCaches(time.Now())
	require.Equal(t, 4, dirs(), "another collection has the name of one")
	c.removeStaleCaches(time.Now().Add(2 * cacheAge))
	require.Equal(t, 2, dirs(), "what is open stays, and what is none")
}

// A training whose coordinator has died is given up when another one is asked for.
func TestTrainingThatWasInterrupted(t *testing.T) {
	t.Parallel()
	s := memory.New()
	wiki := declared(t, nodesOver(t, s, 2, nil)[0], testDocs(0, 10, 8)...)
	changeMap(t, s, func(m *Map) { m.reserve(&m.Training, "somebody who died") })
	r, err := wiki.(collection.Retrainer).Retrain(t.Context())
	require.NoError(t, err)
	require.Equal(t, 10, r.Docs)
	m := inStore(t, s)
	require.Nil(t, m.Training)
	require.EqualValues(t, 3, m.Current.Number)
	require.Len(t, m.Retired, 2)
}

// A shard is encoded for the next generation with all that its log has, whatever the replica was told of: a list of
// checkpoints from before may be used for cutting the log afterwards.
func TestNextHasAllOfTheLog(t *testing.T) {
	s := memory.New()
	c := testNode(t, s, "a", nil)
	wiki := declared(t, c, testDocs(0, 10, 8)...)
	m := inStore(t, s)
	silent := replica.Config{Store: s, Dir: t.TempDir(), Index: c.cfg.Index}
	other, err := replica.Open(&silent, m.replicaShard(0, m.Current))
	require.NoError(t, err)
	_, entry, err := other.Update(t.Context(), replica.Batch{ID: "b"}, testDocs(100, 10, 8), collection.UpdateOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 2, entry)
	require.NoError(t, other.Close(t.Context()))
	changeMap(t, s, func(m *Map) {
		m.Last++
		next := *m.Current
		next.Number, next.Begun = m.Last, false
		m.Next = &next
	})
	await(t, "the next generation is searched", func() bool { return numbersOf(t, wiki).Generation == 2 })
	all, err := journal.New(s, m.ID, 0, journal.Options{}).Checkpoints(t.Context(), 2)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.EqualValues(t, 2, all[0].Number)
}
