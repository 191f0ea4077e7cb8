package index_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/vectors"
)

// parted is a document of n passages, or of 0 the document itself.
func parted(t *testing.T, version int, id string, n int) (docs []vectors.Document) {
	t.Helper()
	payload := fmt.Appendf(nil, `{"version":%d,"pad":"so that a value has a page of its own"}`, version)
	if n == 0 {
		return []vectors.Document{{ID: id, Tokens: []float32{1, 2, 3, 4}, Payload: payload}}
	}
	for i := range n {
		p := vectors.Passage{ParentID: id, Number: i, Start: i, End: i + 1}
		own, err := p.Payload(payload)
		require.NoError(t, err)
		docs = append(docs, vectors.Document{ID: p.ID(), Tokens: []float32{1, float32(i), 3, 4}, Payload: own})
	}
	return docs
}

// written is a file with documents, of which later ones replace earlier ones.
func written(t *testing.T, versions ...[]vectors.Document) (path string, data []byte) {
	t.Helper()
	path = filepath.Join(testenv.RAMDir(t), "passages.plaid")
	src := func(docs []vectors.Document) vectors.Source {
		s, err := vectors.FromDocuments(4, docs)
		require.NoError(t, err)
		return s
	}
	_, err := index.Build(t.Context(), path, src(versions[0]), &index.BuildOptions{Centroids: 1})
	require.NoError(t, err)
	ix, err := index.Open(t.Context(), path, &index.Options{Write: true})
	require.NoError(t, err)
	for _, docs := range versions[1:] {
		_, err := ix.Add(t.Context(), src(docs), &index.AddOptions{Replace: true})
		require.NoError(t, err)
	}
	require.NoError(t, ix.Close())
	data, err = os.ReadFile(path)
	require.NoError(t, err)
	return path, data
}

// salvaged are the ids of what is salvaged of damaged bytes, which is sound, by their documents.
func salvaged(t *testing.T, path string, data []byte) (r *index.SalvageReport, documents map[string][]string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, data, 0o600))
	out := filepath.Join(testenv.RAMDir(t), "out.plaid")
	r, err := index.Salvage(context.Background(), path, out, &index.SalvageOptions{WithDeleted: true})
	require.NoError(t, err)
	ix, err := index.Open(t.Context(), out, &index.Options{Write: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, ix.Close()) }()
	_, err = ix.Retrain(t.Context(), &index.RetrainOptions{Centroids: 1}) // which asks payloads for passages
	require.NoError(t, err)
	s, err := ix.Snapshot()
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.Verify(t.Context()))
	documents = map[string][]string{}
	for o := range s.State().Docs {
		documents[s.DocumentOf(o)] = append(documents[s.DocumentOf(o)], s.ID(o))
	}
	require.Len(t, documents, s.Documents())
	for name, ids := range documents {
		parts, err := s.PassagesOf(name)
		require.NoError(t, err)
		var found []string
		for _, o := range parts {
			found = append(found, s.ID(o))
		}
		require.Equal(t, ids, found)
	}
	return r, documents
}

// Where nothing tells any more which documents were deleted, the newest of each id counts, with its
// own passages and no others. A passage that was deleted may come back as a document of its own.
func TestSalvageOfPassagesWithoutTombstones(t *testing.T) {
	const name, other = "a-longer-document", "another-document"
	ids := []string{name + "#0", name + "#1", name + "#2", name + "#3"}
	for what, c := range map[string]struct {
		versions [][]vectors.Document
		want     []string
		back     []string // which were deleted
		lost     int64
	}{
		"fewer":            {[][]vectors.Document{parted(t, 1, name, 3), parted(t, 2, name, 2)}, ids[:2], ids[2:3], 2},
		"more":             {[][]vectors.Document{parted(t, 1, name, 2), parted(t, 2, name, 4)}, ids, nil, 2},
		"passages for one": {[][]vectors.Document{parted(t, 1, name, 0), parted(t, 2, name, 2)}, ids[:2], nil, 1},
		"one for passages": {[][]vectors.Document{parted(t, 1, name, 2), parted(t, 2, name, 0)}, []string{name}, ids[:2], 0},
		"others between":   {[][]vectors.Document{parted(t, 1, name, 3), parted(t, 1, "between", 2), parted(t, 2, name, 1)}, ids[:1], ids[1:3], 1},
	} {
		t.Run(what, func(t *testing.T) {
			c.versions[0] = append(parted(t, 1, other, 0), c.versions[0]...)
			path, data := written(t, c.versions...)
			flipIn(t, data, "tombstones", 3, nil)
			flipIn(t, data, other, -1, func(rest []byte) bool { return binary.LittleEndian.Uint32(rest) == 0 }) // its id
			r, documents := salvaged(t, path, data)
			require.Equal(t, c.want, documents[name])
			require.Equal(t, []string{other}, documents[other])
			require.Equal(t, append([]string{other}, c.back...), r.Uncertain)
			require.Equal(t, c.lost, r.LostDocs, "%+v", r.Lost)
		})
	}
}

// Where the bitmap of passages is lost, payloads tell; of a lost one, the passages before it.
func TestSalvageWithoutPassages(t *testing.T) {
	const name = "a-document-longer-than-others" // than what runs of fields have of a text
	docs := append(parted(t, 1, name, 3), parted(t, 1, "another-document#7", 0)...)
	all := []string{name + "#0", name + "#1", name + "#2"}
	path, sound := written(t, docs)
	flip := func(payloads ...int) []byte {
		data := append([]byte(nil), sound...)
		flipIn(t, data, "passages", 2, func(rest []byte) bool { return rest[0] != '"' })
		for _, i := range payloads {
			flipIn(t, data, fmt.Sprintf(`%s","n":%d,`, name, i), 3, nil)
		}
		return data
	}
	r, documents := salvaged(t, path, flip())
	require.True(t, r.Complete(), "%+v", r)
	require.NotEmpty(t, r.Faults)
	require.Equal(t, map[string][]string{name: all, "another-document#7": {"another-document#7"}}, documents)

	r, documents = salvaged(t, path, flip(1))
	require.False(t, r.Complete())
	require.Equal(t, all[1:2], r.LostPayloads)
	require.Equal(t, all, documents[name])

	r, documents = salvaged(t, path, flip(0))
	require.Equal(t, all[:1], r.LostPayloads)
	require.Equal(t, all[:1], documents[all[0]], "nothing tells that it was a passage")
	require.Equal(t, all[1:], documents[name])
}
