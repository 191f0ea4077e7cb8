package index_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// Indexes of every format version are kept in testdata, as the programs of that
// time wrote them, and every later version must open, search and change them.
//
//	PLAID_WRITE_FORMAT=1 go test ./index -run TestOldFormats
//
// adds those of the present version under its number. What is there is never
// written again.

const oldDim = 16

// oldIndex says what an index of an earlier format has in it.
type oldIndex struct {
	Digest  string                 `json:"digest"`
	Docs    uint32                 `json:"docs"`
	IDs     []string               `json:"ids"` // live, in order of insertion
	Payload map[string]string      `json:"payload"`
	Queries [][]oldHit             `json:"queries"` // results of oldQuery(0), oldQuery(1), …, exhaustive
	Tuned   []storage.DefaultClass `json:"tuned"`
}

type oldHit struct {
	ID    string `json:"id"`
	Score uint32 `json:"score"` // its bits
}

// oldKinds are the makers of the indexes of one version, by name.
var oldKinds = map[string]func(ctx context.Context, path, scratch string) error{
	"built":    makeBuilt,
	"table":    makeTable,
	"payloads": makePayloads,
}

func TestOldFormats(t *testing.T) {
	if os.Getenv("PLAID_WRITE_FORMAT") != "" {
		writeFormat(t)
	}
	files, err := filepath.Glob("testdata/format-*.plaid.gz")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), len(oldKinds), "the indexes of format version 1")
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".plaid.gz")
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "old.plaid")
			unpack(t, file, path)
			b, err := os.ReadFile(strings.TrimSuffix(file, ".plaid.gz") + ".json")
			require.NoError(t, err)
			var want oldIndex
			require.NoError(t, json.Unmarshal(b, &want))

			ix, err := index.Open(context.Background(), path, nil)
			require.NoError(t, err)
			got := describe(t, ix)
			requireNear(t, want.Queries, got.Queries)
			want.Queries, got.Queries = nil, nil
			require.Equal(t, want, got)
			require.NoError(t, ix.Close())

			change(t, path, want.IDs)
			update(t, file, path, want)
		})
	}
}

// requireNear demands the same documents with scores that differ by their last bits at
// most: how a version adds them up is not part of a format.
func requireNear(t *testing.T, want, got [][]oldHit) {
	t.Helper()
	require.Len(t, got, len(want))
	for q := range want {
		require.Len(t, got[q], len(want[q]))
		for i, w := range want[q] {
			require.Equal(t, w.ID, got[q][i].ID)
			score := float64(math.Float32frombits(w.Score))
			require.InDelta(t, score, float64(math.Float32frombits(got[q][i].Score)), 2e-6*max(1, math.Abs(score)))
		}
	}
}

// change adds, replaces, deletes and compacts, and looks at the content after
// each step.
func change(t *testing.T, path string, ids []string) {
	ctx := t.Context()
	ix, err := index.Open(context.Background(), path, &index.Options{Write: true})
	require.NoError(t, err)
	defer ix.Close()
	check := func(live ...string) {
		require.ElementsMatch(t, live, describe(t, ix).IDs)
	}
	rng := rand.New(rand.NewPCG(9, 9))
	fresh := []vectors.Document{oldDocument(rng, "new", 5), oldDocument(rng, ids[0], 4)}
	src, err := vectors.FromDocuments(oldDim, fresh)
	require.NoError(t, err)
	_, err = ix.Add(ctx, src, &index.AddOptions{Replace: true})
	require.NoError(t, err)
	check(append(ids[:len(ids):len(ids)], "new")...)
	n, missing, err := ix.Delete(ctx, ids[1:3])
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Empty(t, missing)
	rest := append(append([]string{"new"}, ids[0]), ids[3:]...)
	check(rest...)
	require.NoError(t, ix.Compact(ctx, nil))
	check(rest...)
}

// update changes payloads of an old index, before and after everything else that may
// change it: documents that had one keep it, whatever says so from then on.
func update(t *testing.T, file, path string, old oldIndex) {
	ctx := t.Context()
	for _, first := range []struct {
		name   string
		change func(*index.Index) error
	}{
		{"nothing", func(*index.Index) error { return nil }},
		{"delete", func(ix *index.Index) error {
			_, _, err := ix.Delete(ctx, old.IDs[1:2])
			return err
		}},
		{"add", func(ix *index.Index) error {
			src, err := vectors.FromDocuments(oldDim, []vectors.Document{oldDocument(rand.New(rand.NewPCG(1, 1)), "x", 3)})
			require.NoError(t, err)
			_, err = ix.Add(ctx, src, nil)
			require.NoError(t, err)
			_, _, err = ix.Delete(ctx, []string{"x"})
			return err
		}},
		{"compact", func(ix *index.Index) error { return ix.Compact(ctx, nil) }},
	} {
		unpack(t, file, path)
		ix, err := index.Open(ctx, path, &index.Options{Write: true})
		require.NoError(t, err)
		info, err := ix.Info(ctx)
		require.NoError(t, err)
		was := info.FormatVersion
		require.NoError(t, first.change(ix), first.name)
		with, without := "", "" // a document that has a payload, and one that has none
		want := maps.Clone(old.Payload)
		for i, id := range old.IDs {
			if first.name == "delete" && i == 1 {
				delete(want, id)
				continue
			}
			if _, ok := want[id]; ok {
				with = id
			} else {
				without = id
			}
		}
		set := map[string][]byte{without: []byte(`{"now": "here"}`)}
		if with != "" {
			set[with] = nil
			delete(want, with)
		}
		want[without] = `{"now": "here"}`
		for range 2 {
			n, missing, err := ix.SetPayload(ctx, set)
			require.NoError(t, err)
			require.Len(t, set, n)
			require.Empty(t, missing)
			require.Equal(t, want, describe(t, ix).Payload, first.name)
		}
		require.NoError(t, ix.Close())
		ix, err = index.Open(ctx, path, nil)
		require.NoError(t, err)
		require.Equal(t, want, describe(t, ix).Payload, first.name)
		if info, err = ix.Info(ctx); was < 2 {
			// A program that looks for flags refuses it.
			require.Equal(t, 2, info.FormatVersion)
		}
		require.NoError(t, err)
		require.NoError(t, ix.Close())
	}
}

func describe(t *testing.T, ix *index.Index) oldIndex {
	ctx := t.Context()
	snap, err := ix.Snapshot()
	require.NoError(t, err)
	defer snap.Close()
	require.NoError(t, snap.Verify(ctx))
	info, err := snap.Info(ctx)
	require.NoError(t, err)
	d := oldIndex{Digest: info.Digest, Docs: info.Docs, Payload: map[string]string{}}
	if info.Defaults != nil {
		d.Tuned = info.Defaults.Classes
	}
	for o := range snap.State().Docs {
		if !snap.Live(o) {
			continue
		}
		id := snap.ID(o)
		d.IDs = append(d.IDs, id)
		p, err := snap.Payload(o)
		require.NoError(t, err)
		if p != nil {
			d.Payload[id] = string(p)
		}
	}
	engine, err := search.NewAt(ctx, snap, &search.EngineOptions{Threads: 1})
	require.NoError(t, err)
	defer engine.Close()
	for n := range 3 {
		res, err := engine.Search(ctx, oldQuery(n), search.Options{K: 8, Mode: search.Exhaustive})
		require.NoError(t, err)
		var hits []oldHit
		for _, h := range res.Hits {
			hits = append(hits, oldHit{h.ID, math.Float32bits(h.Score)})
		}
		d.Queries = append(d.Queries, hits)
	}
	return d
}

func oldQuery(n int) search.Query {
	rng := rand.New(rand.NewPCG(uint64(n), 77))
	return search.Query{Vectors: oldDocument(rng, "", 6).Tokens}
}

func oldDocument(rng *rand.Rand, id string, tokens int) vectors.Document {
	d := vectors.Document{ID: id, Tokens: make([]float32, tokens*oldDim)}
	for i := range d.Tokens {
		d.Tokens[i] = float32(rng.NormFloat64())
	}
	return d
}

func oldDocuments(prefix string, n int, seed uint64) []vectors.Document {
	rng := rand.New(rand.NewPCG(seed, 7))
	docs := make([]vectors.Document, n)
	for i := range docs {
		docs[i] = oldDocument(rng, fmt.Sprintf("%s-%d ü", prefix, i), i%9) // some are empty
		if i%3 != 0 {
			docs[i].Payload = fmt.Appendf(nil, `{"n": %d, "text": "%x"}`, i, rng.Uint64())
		}
	}
	return docs
}

// makeBuilt has segments, deleted and replaced documents, scales and defaults.
func makeBuilt(ctx context.Context, path, _ string) error {
	src, err := vectors.FromDocuments(oldDim, oldDocuments("first", 30, 1))
	if err != nil {
		return err
	}
	if _, err := index.Build(ctx, path, src, &index.BuildOptions{Seed: 3, Centroids: 24, Threads: 1}); err != nil {
		return err
	}
	ix, err := index.Open(context.Background(), path, &index.Options{Write: true})
	if err != nil {
		return err
	}
	defer ix.Close()
	for i, docs := range [][]vectors.Document{oldDocuments("second", 5, 2), append(oldDocuments("first", 4, 3), oldDocuments("third", 2, 4)...)} {
		if src, err = vectors.FromDocuments(oldDim, docs); err != nil {
			return err
		}
		if _, err := ix.Add(ctx, src, &index.AddOptions{Replace: i == 1, Threads: 1}); err != nil {
			return err
		}
	}
	if _, _, err := ix.Delete(ctx, []string{"first-7 ü", "second-2 ü"}); err != nil {
		return err
	}
	return ix.SetDefaults(&storage.Defaults{Docs: 38, Tokens: 150, Classes: []storage.DefaultClass{
		{K: 10, Probes: 4, Approx: 20, Exact: 12, Target: 0.99, Recall: 1, HeldOut: 1, Queries: 3},
	}})
}

// makePayloads has payloads that came, changed and went after their documents.
func makePayloads(ctx context.Context, path, scratch string) error {
	if err := makeBuilt(ctx, path, scratch); err != nil {
		return err
	}
	ix, err := index.Open(ctx, path, &index.Options{Write: true})
	if err != nil {
		return err
	}
	defer ix.Close()
	_, _, err = ix.SetPayload(ctx, map[string][]byte{
		"first-6 ü": []byte(`{"late": 1}`), "second-3 ü": []byte(`{"late": 2}`), // had none
		"first-8 ü": []byte(`{"other": 3}`), "first-10 ü": nil, "third-1 ü": nil,
	})
	return err
}

// makeTable has a table of weights, as an import has.
func makeTable(ctx context.Context, path, scratch string) error {
	src, err := vectors.FromDocuments(oldDim, oldDocuments("first", 20, 5))
	if err != nil {
		return err
	}
	plain := filepath.Join(scratch, "plain.plaid")
	o := &index.BuildOptions{Nbits: 4, Seed: 3, Centroids: 16, NoDimScales: true, NoCentroidScales: true, Threads: 1}
	if _, err := index.Build(ctx, plain, src, o); err != nil {
		return err
	}
	ix, err := index.Open(context.Background(), plain, nil)
	if err != nil {
		return err
	}
	defer ix.Close()
	snap, err := ix.Snapshot()
	if err != nil {
		return err
	}
	defer snap.Close()
	engine := filepath.Join(scratch, "engine")
	if _, err := snap.ExportEngine(ctx, engine, nil); err != nil {
		return err
	}
	_, err = index.Import(ctx, engine, path, &index.ImportOptions{Threads: 1})
	return err
}

// writeFormat stores the indexes of the present version, unless they are there.
func writeFormat(t *testing.T) {
	t.Setenv(kernels.EnvCPU, "generic")
	for kind, build := range oldKinds {
		base := fmt.Sprintf("testdata/format-%d-%s", storage.FormatVersion, kind)
		if _, err := os.Stat(base + ".plaid.gz"); err == nil {
			continue
		}
		path := filepath.Join(t.TempDir(), "index.plaid")
		require.NoError(t, build(t.Context(), path, t.TempDir()))
		ix, err := index.Open(context.Background(), path, nil)
		require.NoError(t, err)
		b, err := json.MarshalIndent(describe(t, ix), "", " ")
		require.NoError(t, err)
		require.NoError(t, ix.Close())
		require.NoError(t, os.WriteFile(base+".json", append(b, '\n'), 0o644))
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		var packed bytes.Buffer
		w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		require.NoError(t, err)
		_, err = w.Write(content)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		require.NoError(t, os.WriteFile(base+".plaid.gz", packed.Bytes(), 0o644))
	}
}

func unpack(t *testing.T, file, path string) {
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	r, err := gzip.NewReader(f)
	require.NoError(t, err)
	content, err := io.ReadAll(r)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, content, 0o644))
}
