package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/folder"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
)

// documents are those of an index that say of what file they are, by its path, in order.
func (m *watchModel) documents(ix *index.Index) map[string][]*index.StoredDocument {
	snap, err := ix.Snapshot()
	require.NoError(m.t, err)
	defer snap.Close()
	all := map[string][]*index.StoredDocument{}
	for ordinal := range snap.State().Docs {
		if !snap.Live(ordinal) {
			continue
		}
		d, err := snap.DocumentAt(ordinal)
		require.NoError(m.t, err)
		d.Payload = bytes.Clone(d.Payload)
		var is struct{ Path string }
		require.NoError(m.t, json.Unmarshal(d.Payload, &is))
		if _, strange := m.strange[d.ID]; strange {
			is.Path = "strange: " + d.ID
		}
		all[is.Path] = append(all[is.Path], d)
	}
	return all
}

// expect says what a sync has to come to, and changes the picture.
func (m *watchModel) expect(allow bool) (want folderReport) {
	m.see()
	cut := folder.Cut(m.sync.splitting)
	next, arrived := map[string]pictured{}, map[string]int{}
	for name, text := range m.files {
		if strings.Contains(text, "\x00") {
			want.Passed++
			continue
		}
		was, known := m.has[name]
		is := pictured{text: text, cut: cut, device: m.deviceOf(path.Dir(name))}
		switch {
		case !known:
			want.Added++
			arrived[text]++
			for id := range m.strange { // that others have made of its document
				if id == name || strings.HasPrefix(id, name+"#") {
					delete(m.strange, id)
				}
			}
		case was.text != text || was.broken || was.cut != cut:
			want.Changed++
		default:
			is.noted = was.noted
		}
		next[name] = is
	}
	var vanished []string
	seen := len(m.has)
	for _, name := range slices.Sorted(maps.Keys(m.has)) {
		is := m.has[name]
		if _, there := next[name]; there {
			continue
		}
		dir := path.Dir(name)
		for _, err := os.Stat(m.at(dir)); err != nil; _, err = os.Stat(m.at(dir)) {
			dir = path.Dir(dir)
		}
		_, inPlace := m.files[name]
		switch {
		case allow:
			want.Deleted++
		case m.deviceOf(dir) != is.device:
			seen--
			want.Kept++
			next[name] = is
		case inPlace:
			want.Deleted++
		case arrived[is.text] > 0 && !is.broken:
			arrived[is.text]--
			want.Deleted++
		default:
			vanished = append(vanished, name)
		}
	}
	hold := len(vanished) == seen || seen > 4 && len(vanished) > seen/2
	for _, name := range vanished {
		if hold {
			want.Kept++
			next[name] = m.has[name]
		} else {
			want.Deleted++
		}
	}
	want.Files = len(next)
	m.has = next
	return want
}

// sync syncs, and compares the index with the picture.
func (m *watchModel) look() {
	t, s := m.t, m.sync
	allow := m.rng.IntN(15) == 0
	if m.rng.IntN(4) == 0 {
		next := *s
		next.known, next.indexed, next.mounts, next.rootStored, next.otherCuts = nil, indexState{}, nil, false, 0
		if m.rng.IntN(2) == 0 {
			next.splitting.Window = 8 + m.rng.IntN(2)
		}
		*s = next
		m.say("again, by %s", folder.Cut(s.splitting))
	}
	s.allowEmpty = allow
	m.say("look, allow %v", allow)
	want := m.expect(allow)
	r, err := s.syncOnce(t.Context(), nil)
	if errors.Is(err, errOtherCut) { // by older copies
		m.say("%v", err)
		require.GreaterOrEqual(t, s.otherCuts, 2)
		s.known, s.indexed, s.otherCuts = nil, indexState{}, 0
		r, err = s.syncOnce(t.Context(), nil)
	}
	require.NoError(t, err)
	got := folderReport{
		Files: r.Files, Added: r.Added, Changed: r.Changed, Deleted: r.Deleted, Kept: r.Kept, Passed: r.Passed,
	}
	require.Equal(t, want, got)
	require.Equal(t, r.Kept > 0, r.keptReason != "")
	require.False(t, r.changedByOthers)
	m.check()
	if m.rng.IntN(6) == 0 && len(m.copies) < 5 {
		if file, err := os.ReadFile(s.path); err == nil {
			m.copies = append(m.copies, indexCopy{file, maps.Clone(m.has), maps.Clone(m.strange)})
		}
	}
}

// check compares all documents of the index with the picture.
func (m *watchModel) check() {
	t, s := m.t, m.sync
	if _, err := os.Stat(s.path); err != nil {
		require.Empty(t, m.has)
		return
	}
	ix, err := index.Open(t.Context(), s.path, nil)
	require.NoError(t, err)
	defer ix.Close()
	all := m.documents(ix)
	for id, payload := range m.strange {
		require.Len(t, all["strange: "+id], 1)
		if payload != "" {
			require.JSONEq(t, payload, string(all["strange: "+id][0].Payload))
		}
		delete(all, "strange: "+id)
	}
	for name, is := range m.has {
		docs := all[name]
		require.NotEmpty(t, docs, name)
		delete(all, name)
		if is.broken {
			continue // and its file cannot be seen
		}
		var got, want []string
		parting := s.splitting
		for _, d := range docs {
			e, ok := folder.ReadEntry(d.Payload)
			require.True(t, ok)
			require.True(t, e.Intact)
			require.Equal(t, is.device, e.Device, name)
			require.Equal(t, is.cut, e.Cut, name)
			require.Equal(t, s.home, e.Root)
			var more struct{ Note, Text string }
			require.NoError(t, json.Unmarshal(d.Payload, &more))
			require.Equal(t, is.noted, more.Note != "", name)
			got = append(got, more.Text)
		}
		fmt.Sscanf(is.cut, "kinds %d+", &parting.Window)
		parting.By = encode.BySentences
		if strings.HasSuffix(name, ".md") {
			parting.By = encode.ByHeadings
		}
		whole := func(yield func(encode.Text, error) bool) { yield(encode.Text{ID: name, Text: is.text}, nil) }
		for p, err := range encode.Passages(t.Context(), whole, parting) {
			require.NoError(t, err)
			want = append(want, p.Text)
		}
		require.Equal(t, want, got, name)
	}
	require.Empty(t, slices.Collect(maps.Keys(all)), "documents of no file")
}

// A folder is watched while files come and go, file systems are mounted and are not, others
// change the index, and the files are to be cut otherwise. After each sync, the index has what a
// picture of all that says.
func TestWatchModel(t *testing.T) {
	for seed := range uint64(effort.Cases(2, 40)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := newWatchModel(t, seed)
			defer func() {
				if t.Failed() {
					t.Log(strings.Join(m.log, "\n"))
				}
			}()
			for range effort.Cases(12, 80) {
				for range 1 + m.rng.IntN(2) {
					m.change()
				}
				m.look()
			}
		})
	}
}
