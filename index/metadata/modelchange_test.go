package metadata_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search/keywords"
	"github.com/plaid-ir/plaid/vectors"
)

func (m *model) document(id string) vectors.Document {
	d := vectors.Document{ID: id, Payload: m.payload()}
	if m.rng.IntN(5) > 0 {
		d.Tokens = []float32{1, float32(m.rng.IntN(3)), 0, 0}
	}
	return d
}

func (m *model) open(path string) {
	if m.ix != nil {
		require.NoError(m.t, m.ix.Close())
	}
	if m.path != "" && m.path != path {
		require.NoError(m.t, os.Remove(m.path))
		require.NoError(m.t, m.words.Close())
		require.NoError(m.t, os.RemoveAll(keywords.Path(m.path)))
		m.words = nil
	}
	if m.words == nil {
		var err error
		m.words, err = keywords.Open(context.Background(), keywords.Path(path), &keywords.Options{Write: true})
		require.NoError(m.t, err)
	}
	ix, err := index.Open(context.Background(), path, &index.Options{Write: true})
	require.NoError(m.t, err)
	m.ix, m.path = ix, path
}

func (m *model) reopen() { m.open(m.path) }

// build makes another index of other documents.
func (m *model) build() {
	m.docs = map[string][]byte{}
	docs := []vectors.Document{{ID: "first", Tokens: []float32{1, 0, 0, 0}}}
	for _, id := range m.ids(40) {
		docs = append(docs, m.document(id))
	}
	for _, d := range docs {
		m.docs[d.ID] = d.Payload
	}
	path := m.file("built")
	src, err := vectors.FromDocuments(4, docs)
	require.NoError(m.t, err)
	_, err = index.Build(context.Background(), path, src, &index.BuildOptions{Threads: 1})
	require.NoError(m.t, err)
	m.open(path)
}

func (m *model) add() {
	o := &index.AddOptions{Replace: true, KeepPayload: m.rng.IntN(2) == 0, Threads: 1}
	if m.rng.IntN(4) == 0 {
		o.Delete = m.ids(2)
	}
	var docs []vectors.Document
	for _, id := range m.ids(5) {
		docs = append(docs, m.document(id))
	}
	src, err := vectors.FromDocuments(4, docs)
	require.NoError(m.t, err)
	_, err = m.ix.Add(context.Background(), src, o)
	require.NoError(m.t, err)
	for _, id := range o.Delete {
		if !slices.ContainsFunc(docs, func(d vectors.Document) bool { return d.ID == id }) {
			delete(m.docs, id)
		}
	}
	for _, d := range docs {
		if d.Payload != nil || !o.KeepPayload {
			m.docs[d.ID] = d.Payload
		} else if _, ok := m.docs[d.ID]; !ok {
			m.docs[d.ID] = nil
		}
	}
	for _, d := range docs {
		m.note("%s %s,", d.ID, d.Payload)
	}
}

func (m *model) setPayload() {
	payloads := map[string][]byte{}
	for _, id := range m.ids(4) {
		payloads[id] = m.payload()
		if _, ok := m.docs[id]; ok {
			m.docs[id] = payloads[id]
		}
	}
	_, _, err := m.ix.SetPayload(context.Background(), payloads)
	require.NoError(m.t, err)
	m.note("%q", payloads)
}

func (m *model) updateWhere() {
	c := m.condition()
	set := condition.Fields{m.pick("a", "b", "C", "e", "a", "a.b"): json.RawMessage(m.value())}
	m.note("%s %v: %s", c, c.Params(), set)
	ids, ok := m.matching(c)
	updated := map[string][]byte{}
	var fault error
	for _, id := range ids {
		p, err := set.Merge(m.docs[id])
		updated[id], fault = p, errors.Join(fault, err)
	}
	n, err := m.ix.UpdatePayload(context.Background(), c, set)
	switch {
	case !ok:
		require.ErrorIs(m.t, err, condition.ErrUnknownField)
	case fault != nil:
		require.True(m.t, errors.Is(err, condition.ErrNotObject) || errors.Is(err, condition.ErrNested), "%v", err)
		require.True(m.t, errors.Is(fault, condition.ErrNotObject) || errors.Is(fault, condition.ErrNested), "%v", fault)
	default:
		require.NoError(m.t, err)
		require.Equal(m.t, index.Affected{Documents: len(ids)}, n)
		maps.Copy(m.docs, updated)
	}
}

func (m *model) delete() {
	ids := m.ids(4)
	_, _, err := m.ix.Delete(context.Background(), ids)
	require.NoError(m.t, err)
	for _, id := range ids {
		delete(m.docs, id)
	}
	m.note("%q", ids)
}

func (m *model) deleteWhere() {
	c := m.condition()
	ids, ok := m.matching(c)
	if 2*len(ids) > len(m.docs) && m.rng.IntN(10) > 0 {
		return
	}
	m.note("%s %v: %q", c, c.Params(), ids)
	n, err := m.ix.DeleteWhere(context.Background(), c)
	if !ok {
		require.ErrorIs(m.t, err, condition.ErrUnknownField)
		return
	}
	require.NoError(m.t, err)
	require.Equal(m.t, index.Affected{Documents: len(ids)}, n)
	for _, id := range ids {
		delete(m.docs, id)
	}
}

func (m *model) compact() { require.NoError(m.t, m.ix.Compact(context.Background(), nil)) }

func (m *model) retrain() {
	if _, err := m.ix.Retrain(context.Background(), &index.RetrainOptions{Threads: 1}); err != nil {
		require.ErrorIs(m.t, err, index.ErrNoTokens)
	}
}

// restore goes on with a backup, a new one or one that was brought up to date.
func (m *model) restore() {
	o := &index.BackupOptions{}
	if m.backup == "" || m.rng.IntN(3) == 0 {
		if m.backup != "" {
			require.NoError(m.t, os.Remove(m.backup))
		}
		m.backup = m.file("backup")
	} else {
		o.Incremental = true
	}
	r, err := m.ix.BackupTo(context.Background(), m.backup, o)
	require.NoError(m.t, err)
	m.note("incremental %v", r.Incremental)
	b, err := os.ReadFile(m.backup)
	require.NoError(m.t, err)
	path := m.file("restored")
	require.NoError(m.t, os.WriteFile(path, b, 0o666))
	m.open(path)
}

func (m *model) splitAndMerge() {
	snap, err := m.ix.Snapshot()
	require.NoError(m.t, err)
	defer snap.Close()
	if len(m.docs) == 0 {
		return
	}
	dir := m.file("split")
	parts, err := index.Split(context.Background(), snap, dir, 2, index.ByHash, nil)
	require.NoError(m.t, err)
	var from []index.CopyFrom
	for _, p := range parts {
		ix, err := index.Open(context.Background(), p.Path, nil)
		require.NoError(m.t, err)
		defer ix.Close()
		s, err := ix.Snapshot()
		require.NoError(m.t, err)
		defer s.Close()
		require.NoError(m.t, s.Verify(context.Background()))
		from = append(from, index.CopyFrom{Snapshot: s})
	}
	slices.Reverse(from)
	path := m.file("merged")
	_, err = index.Copy(context.Background(), path, from, nil)
	require.NoError(m.t, err)
	require.NoError(m.t, snap.Close())
	m.open(path)
	require.NoError(m.t, os.RemoveAll(dir))
}
