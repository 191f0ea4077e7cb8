package index_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/search"
)

// document is what an index shows of one.
type document struct {
	ordinal uint32
	id      string
	payload string
	vectors []float32
	scores  []float32 // of each query; NaN where it is not found
}

// documents reads a sound index, in order.
func (sp *specimen) documents(t *testing.T, path string) []document {
	t.Helper()
	ctx := context.Background()
	ix, err := index.Open(context.Background(), path, nil)
	require.NoError(t, err)
	defer ix.Close()
	s, err := ix.Snapshot()
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Verify(ctx))
	rs, err := searchAt(ctx, s, sp.queries, search.Options{K: 1 << 20, Mode: search.Exhaustive})
	require.NoError(t, err)
	scores := map[string]float32{}
	for q, r := range rs {
		for _, hit := range r.Hits {
			scores[fmt.Sprint(q, hit.ID)] = hit.Score
		}
	}
	var out []document
	for ordinal := range s.State().Docs {
		if !s.Live(ordinal) {
			continue
		}
		d := document{ordinal: ordinal, id: s.ID(ordinal)}
		p, err := s.Payload(ordinal)
		require.NoError(t, err)
		d.payload = string(p)
		d.vectors, err = s.Vectors(ordinal)
		require.NoError(t, err)
		for q := range sp.queries {
			score, ok := scores[fmt.Sprint(q, d.id)]
			if !ok {
				score = float32(math.NaN())
			}
			d.scores = append(d.scores, score)
		}
		out = append(out, d)
	}
	return out
}

// salvager tries Salvage on damaged files.
type salvager struct {
	sp      *specimen
	want    []document
	before  []document // as of the commit before
	newest  uint64     // transaction
	out     string
	options index.SalvageOptions

	cases, complete, partial, refused int
	reasons                           map[string]int
	lost                              int64
}

func newSalvager(t *testing.T, docs int) *salvager {
	sp := newSpecimen(t, docs)
	s := &salvager{sp: sp, out: filepath.Join(testenv.RAMDir(t), "salvaged.plaid"), reasons: map[string]int{}}
	require.NoError(t, os.WriteFile(sp.path, sp.versions[len(sp.versions)-2], 0o600))
	s.before = sp.documents(t, sp.path)
	require.NoError(t, os.WriteFile(sp.path, sp.data, 0o600))
	s.want = sp.documents(t, sp.path)
	r := s.try(t, sp.data, "nothing damaged")
	require.True(t, r != nil && r.Complete(), "%+v", r)
	require.Empty(t, r.Faults)
	s.newest = r.Transaction.ID
	*s = salvager{sp: sp, want: s.want, before: s.before, newest: s.newest, out: s.out, reasons: s.reasons}
	return s
}

func (s *salvager) String() string {
	return fmt.Sprintf("%d cases: %d complete, %d in part (%d documents lost), %d refused: %v", s.cases, s.complete, s.partial, s.lost, s.refused, s.reasons)
}

// try salvages a damaged file. What comes of it is sound, has no document that
// is not as it was, and names those that it lacks.
func (s *salvager) try(t *testing.T, data []byte, what string) *index.SalvageReport {
	t.Helper()
	s.cases++
	require.NoError(t, os.WriteFile(s.sp.path, data, 0o600))
	r, err := index.Salvage(context.Background(), s.sp.path, s.out, &s.options)
	after, rerr := os.ReadFile(s.sp.path)
	require.NoError(t, rerr)
	require.True(t, slices.Equal(data, after), "%s: the damaged file was changed", what)
	if err != nil {
		index.RequireTyped(t, err, what)
		require.ErrorContains(t, err, s.sp.path)
		require.NoFileExists(t, s.out, what)
		s.refused++
		_, reason, _ := strings.Cut(err.Error(), s.sp.path+": ")
		s.reasons[reason]++
		return nil
	}
	got := s.sp.documents(t, s.out)
	require.NoError(t, os.Remove(s.out))
	s.lost += r.LostDocs
	if r.Complete() {
		s.complete++
	} else {
		s.partial++
	}
	want := s.want
	if s.newest != 0 && r.Transaction.ID != s.newest {
		require.True(t, r.Transaction.DamagedMeta, what)
		want = s.before
	}
	require.EqualValues(t, len(got), r.Docs)
	missing := s.compare(t, got, want, r, what)
	for _, l := range r.Lost {
		for ordinal := l.First; ordinal <= l.Last; ordinal++ {
			delete(missing, ordinal)
		}
	}
	require.Empty(t, missing, "%s: neither there nor listed: %+v", what, r)
	if !r.Complete() {
		require.NotEmpty(t, r.Faults, "%s: %+v", what, r)
	}
	return r
}

// compare holds documents against those that they should be; it returns those
// that are missing.
func (s *salvager) compare(t *testing.T, got, want []document, r *index.SalvageReport, what string) map[uint32]string {
	t.Helper()
	missing := map[uint32]string{}
	next := 0
	for _, w := range want {
		if next == len(got) || got[next].id != w.id {
			missing[w.ordinal] = w.id
			continue
		}
		g := got[next]
		next++
		require.Equal(t, w.vectors, g.vectors, "%s: %s", what, w.id)
		for q := range w.scores {
			require.Equal(t, math.Float32bits(w.scores[q]), math.Float32bits(g.scores[q]), "%s: %s", what, w.id)
		}
		if g.payload != w.payload {
			require.Empty(t, g.payload, "%s: %s", what, w.id)
			require.Contains(t, r.LostPayloads, w.id, what)
		}
	}
	require.Equal(t, len(got), next, "%s: a document that should not be there, or out of order", what)
	return missing
}

func TestSalvageOfDamagedPages(t *testing.T) {
	s := newSalvager(t, damageDocs())
	damagedPages(s.sp.data, effort.Cases(2, 1), func(data []byte, what string) { s.try(t, data, what) })
	t.Log(s)
	require.Positive(t, s.complete)
	require.Positive(t, s.partial)
	require.Positive(t, s.refused)
	require.Less(t, s.refused, s.cases/10)
}

func TestSalvageOfOtherDamage(t *testing.T) {
	if effort.Brief() {
		t.Skip("long, and of one goroutine")
	}
	s := newSalvager(t, damageDocs())
	stride, one := effort.Cases(4001, 193), effort.Cases(97, 13)
	run := func(name string, each func(try func(data []byte, what string))) {
		*s = salvager{sp: s.sp, want: s.want, before: s.before, newest: s.newest, out: s.out, reasons: map[string]int{}}
		each(func(data []byte, what string) { s.try(t, data, what) })
		t.Logf("%s: %v", name, s)
		require.Positive(t, s.complete, name)
	}
	run("flipped bits", func(try func(data []byte, what string)) {
		used := bytesInUse(s.sp.data)
		for at := 0; at < len(s.sp.data); at += stride {
			if used[at] {
				data := slices.Clone(s.sp.data)
				data[at] ^= 1 << (at % 8)
				try(data, fmt.Sprintf("byte %d of page %d", at%os.Getpagesize(), at/os.Getpagesize()))
			}
		}
	})
	run("sectors", func(try func(data []byte, what string)) {
		for at := 0; at < len(s.sp.data); at += 512 * effort.Cases(7, 1) {
			data := slices.Clone(s.sp.data)
			clear(data[at : at+512])
			try(data, fmt.Sprintf("sector at byte %d", at))
		}
	})
	run("swapped pages", func(try func(data []byte, what string)) {
		swappedPages(s.sp.data, one, func(data []byte, what string) {
			if !strings.HasSuffix(what, "right") { // those may be sound pages of another commit
				try(data, what)
			}
		})
	})
	run("cut", func(try func(data []byte, what string)) {
		for at := len(s.sp.data) - 1; at > 0; at -= effort.Cases(6007, 1777) {
			try(s.sp.data[:at], fmt.Sprintf("cut at byte %d", at))
		}
	})
}

// A lost write may show an earlier state of some documents, but no document
// that never was.
func TestSalvageAfterLostWrites(t *testing.T) {
	s := newSalvager(t, 60)
	sp := s.sp
	was := map[string]document{}
	for _, data := range sp.versions {
		require.NoError(t, os.WriteFile(sp.path, data, 0o600))
		for _, d := range sp.documents(t, sp.path) {
			was[d.id] = d
		}
	}
	cases, salvaged := 0, 0
	for v := 2; v < len(sp.versions); v++ {
		stalePages(sp.versions[v], sp.versions[v-1], func(data []byte, what string) {
			cases++
			require.NoError(t, os.WriteFile(sp.path, data, 0o600))
			r, err := index.Salvage(context.Background(), sp.path, s.out, nil)
			if err != nil {
				index.RequireTyped(t, err, what)
				require.NoFileExists(t, s.out)
				return
			}
			salvaged++
			for _, d := range sp.documents(t, s.out) {
				require.Equal(t, was[d.id].vectors, d.vectors, "%s: %s", what, d.id)
				if d.payload != was[d.id].payload {
					require.Empty(t, d.payload)
					require.Contains(t, slices.Concat(r.LostPayloads, r.UncertainPayloads), d.id, "version %d: %s", v, what)
				}
			}
			require.NoError(t, os.Remove(s.out))
		})
	}
	t.Logf("%d cases, %d salvaged", cases, salvaged)
	require.Greater(t, salvaged, cases/2)
}
