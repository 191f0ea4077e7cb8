package index

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/vectors"
	"github.com/plaid-ir/plaid/vectors/pool"
)

// pages are documents of pictures with grids of several forms.
func pages(n, dim int, seed uint64) []vectors.Document {
	docs := corpus(n, 1, dim, seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range docs {
		g := vectors.Grid{Rows: 2 + i%4, Columns: 3 + i%3, First: i % 3}
		rows := g.End() + i%5
		docs[i].Tokens = make([]float32, rows*dim)
		for j := range docs[i].Tokens {
			docs[i].Tokens[j] = float32(r.NormFloat64())
		}
		docs[i].Payload = fmt.Appendf(nil, `{"image": "%d.png", "grid": [%d, %d, %d]}`, i, g.Rows, g.Columns, g.First)
	}
	return docs
}

func TestPagesArePooled(t *testing.T) {
	const dim = 16
	docs := pages(60, dim, 5)
	for _, c := range []pooling{{4, pool.Tiles}, {3, pool.Neighbours}} {
		var p pool.Pooler
		var want []vectors.Document
		for _, d := range docs {
			x := append([]float32(nil), d.Tokens...)
			codec.Normalize(x, dim)
			page, err := vectors.PageFromPayload(d.Payload)
			require.NoError(t, err)
			d.Tokens = p.Page(nil, x, dim, c.factor, c.method, page.Grid)
			want = append(want, d)
		}
		path := newPath(t)
		build(t, path, dim, docs[:40], &BuildOptions{Pool: c.factor, PoolBy: c.method, Centroids: 20})
		requireFile(t, path, want[:40])
		ix := writing(t, path)
		_, err := ix.Add(t.Context(), fromDocs(t, dim, docs[40:]), nil)
		require.NoError(t, err)
		// A page that comes without payload has the grid of the one that it replaces.
		again := docs[7]
		again.Payload = nil
		_, err = ix.Add(t.Context(), fromDocs(t, dim, []vectors.Document{again}), &AddOptions{Replace: true, KeepPayload: true})
		require.NoError(t, err)
		_, err = ix.Add(t.Context(), fromDocs(t, dim, []vectors.Document{again}), &AddOptions{Replace: true})
		require.ErrorIs(t, err, vectors.ErrFormat, "no grid")
		require.ErrorContains(t, err, docs[7].ID)
		// Vectors that it is trained on have no payloads either.
		var originals []vectors.Document
		for _, d := range docs {
			d.Payload = nil
			originals = append(originals, d)
		}
		_, err = ix.Retrain(context.Background(), &RetrainOptions{Vectors: fromDocs(t, dim, originals)})
		require.NoError(t, err)
		s := taken(t, ix)
		require.Equal(t, string(c.method), s.Header().Build.PoolBy)
		requireIndex(t, s, append(append(append([]vectors.Document(nil), want[:7]...), want[8:]...), want[7]))
		page, _ := vectors.PageFromPayload(docs[3].Payload)
		stored, side, err := s.StoredGrid(page, len(want[3].Tokens)/dim)
		require.NoError(t, err)
		if c.method == pool.Tiles {
			require.Equal(t, 2, side)
			require.Equal(t, page.Grid.Tiles(2), stored)
		} else {
			require.Zero(t, side, "cells cannot be told")
		}
		require.NoError(t, s.Close())
		require.NoError(t, ix.Close())
		// What is built like it is pooled like it.
		like := writing(t, path)
		s = taken(t, like)
		other := newPath(t)
		build(t, other, dim, docs[:20], &BuildOptions{Like: s})
		requireFile(t, other, want[:20])
		_, err = Build(t.Context(), newPath(t), fromDocs(t, dim, docs), &BuildOptions{Like: s, Pool: c.factor})
		require.ErrorIs(t, err, ErrOption, "another method")
		require.NoError(t, s.Close())
		require.NoError(t, like.Close())
	}
}

func TestPagesAreChecked(t *testing.T) {
	const dim = 8
	docs := pages(10, dim, 3)
	path := newPath(t)
	build(t, path, dim, docs[:9], &BuildOptions{Centroids: 4})
	ix := writing(t, path)
	for payload, want := range map[string]error{
		`{"image": "x", "grid": [100, 3]}`:   vectors.ErrShape,
		`{"image": "x", "grid": [1, 1, 99]}`: vectors.ErrShape,
		`{"image": "x", "grid": "2x2"}`:      vectors.ErrFormat,
	} {
		bad := docs[9]
		bad.Payload = []byte(payload)
		_, err := ix.Add(t.Context(), fromDocs(t, dim, []vectors.Document{bad}), nil)
		require.ErrorIs(t, err, want)
		require.ErrorContains(t, err, bad.ID)
		_, err = Build(t.Context(), newPath(t), fromDocs(t, dim, []vectors.Document{docs[0], bad}), nil)
		require.ErrorIs(t, err, want)
		_, _, err = ix.SetPayload(t.Context(), map[string][]byte{docs[0].ID: bad.Payload})
		require.ErrorIs(t, err, want)
	}
	set := condition.Fields{"grid": []byte("[50, 50]")}
	_, err := ix.UpdatePayload(t.Context(), everyDocument(t), set)
	require.ErrorIs(t, err, vectors.ErrShape)
	_, err = ix.UpdatePayload(t.Context(), everyDocument(t), condition.Fields{"grid": []byte("[1, 2]")})
	require.NoError(t, err)
	_, err = ix.Add(t.Context(), fromDocs(t, dim, docs[9:]), nil)
	require.NoError(t, err)
	// Fields of these names are the user's own where there is no picture.
	_, _, err = ix.SetPayload(t.Context(), map[string][]byte{docs[0].ID: []byte(`{"grid": "A4"}`)})
	require.NoError(t, err)
	for _, o := range []BuildOptions{{Pool: 3, PoolBy: pool.Tiles}, {PoolBy: pool.Neighbours}, {Pool: 2, PoolBy: "rows"}} {
		_, err := Build(t.Context(), newPath(t), fromDocs(t, dim, docs), &o)
		require.ErrorIs(t, err, ErrOption)
	}
	bad := docs[9]
	bad.Payload = []byte(`{"image": "x"}`)
	_, err = Build(t.Context(), newPath(t), fromDocs(t, dim, []vectors.Document{docs[0], bad}), &BuildOptions{Pool: 4, PoolBy: pool.Tiles})
	require.ErrorIs(t, err, vectors.ErrFormat)
	require.ErrorContains(t, err, "needs pages")
	require.NoError(t, ix.Close())
}

func everyDocument(t *testing.T) *condition.Condition {
	e, err := condition.Parse("1=1")
	require.NoError(t, err)
	c, err := e.Bind()
	require.NoError(t, err)
	return c
}
