package encode

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/encode/native"
	"github.com/plaid-ir/plaid/encode/weights"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/vectors"
)

// stored are the vectors of a collection that Python computed, as float16.
func stored(t testing.TB, name string) (out encoded, ids int) {
	t.Helper()
	read := func(file string) (*vectors.Array, []float32) {
		a, err := vectors.OpenNPY(filepath.Join(shared(t, "data", name, "vectors"), file))
		require.NoError(t, err)
		defer a.Close()
		x := make([]float32, a.Len())
		require.NoError(t, a.Float32s(x, 0))
		return a, x
	}
	a, docs := read("docs.npy")
	out.dim, ids = a.Shape[1], a.Shape[0]
	_, lengths := read("doclens.npy")
	for _, n := range lengths {
		out.docs, docs = append(out.docs, docs[:int(n)*out.dim]), docs[int(n)*out.dim:]
	}
	a, queries := read("queries.npy")
	for range a.Shape[0] {
		n := len(queries) / (a.Shape[0] - len(out.queries))
		out.queries, queries = append(out.queries, queries[:n]), queries[n:]
	}
	return out, ids
}

// fault is what differs from the stored vectors: "" if nothing does.
func fault(want, got [][]float32) string {
	if len(want) != len(got) {
		return "number of texts"
	}
	equal, all := 0, 0
	for i := range want {
		if len(want[i]) != len(got[i]) {
			return "number of vectors"
		}
		for j, x := range want[i] {
			// Half a unit in the last place of float16, and what float32 may differ by.
			if d := math.Abs(float64(x - got[i][j])); d > math.Abs(float64(x))/2048+3e-6 {
				return "a component"
			}
			if kernels.F16ToF32(kernels.F16FromF32(got[i][j])) == x {
				equal++
			}
		}
		all += len(want[i])
	}
	if float64(equal) < 0.993*float64(all) {
		return "too many last bits"
	}
	return ""
}

// collections are those that are held against Python: the larger ones are
// called for by PLAID_ENCODE_LARGE.
func collections() []string {
	if os.Getenv("PLAID_ENCODE_LARGE") != "" {
		return []string{"scifact-sample", "lotte-500", "cranfield"}
	}
	return []string{"scifact-sample"}
}

// TestStored: text to vectors, against onnxruntime with the same weights; lengths
// of all texts, components, rankings.
func TestStored(t *testing.T) {
	effort.SkipBrief(t, "TestSameBytes has its goroutines")
	want := map[string]float64{"scifact-sample": 0.8731, "lotte-500": 0.9687, "cranfield": 0.5470}
	for _, name := range collections() {
		c := load(t, name)
		reference, kept := stored(t, name)
		dir := mini(t)
		if !effort.Long() {
			c.docs, reference.docs = c.docs[:30], reference.docs[:30]
			c.queries, reference.queries = c.queries[:10], reference.queries[:10]
		}
		exact := encodeAll(t, open(t, dir, nil), c)
		require.Empty(t, fault(reference.docs, exact.docs))
		require.Empty(t, fault(reference.queries, exact.queries))
		if !effort.Long() {
			continue
		}
		n := 0
		for _, d := range exact.docs {
			n += len(d) / exact.dim
		}
		require.Equal(t, kept, n)
		best, ndcg := rank(c, exact)
		t.Logf("%s: %d vectors, nDCG@10 %.4f", name, n, ndcg)
		require.InDelta(t, want[name], ndcg, 2e-4)

		rough := encodeAll(t, open(t, dir, &Options{Precision: Int8}), c)
		top, ndcg := rank(c, rough)
		same, all := 0, 0
		for i := range best {
			for _, j := range top[i] {
				all++
				for _, k := range best[i] {
					if j == k {
						same++
					}
				}
			}
		}
		t.Logf("%s, int8: nDCG@10 %.4f, overlap %.3f", name, ndcg, float64(same)/float64(all))
		require.InDelta(t, want[name], ndcg, 0.005)
		require.GreaterOrEqual(t, float64(same), 0.95*float64(all))
		least, mean := cosines(exact.docs, rough.docs, exact.dim)
		t.Logf("%s, int8: cosines, least %.4f, mean %.5f", name, least, mean)
		require.Greater(t, least, 0.975)
		require.Greater(t, mean, 0.9985)
	}
}

// TestNanoRanks: the small model's own figure, of its README.
func TestNanoRanks(t *testing.T) {
	if !effort.Long() {
		t.Skip("long")
	}
	c := load(t, "scifact-sample")
	_, ndcg := rank(c, encodeAll(t, open(t, nano(t), nil), c))
	t.Logf("nDCG@10 %.4f", ndcg)
	require.InDelta(t, 0.8910, ndcg, 2e-4)
}

// cosines of unit vectors.
func cosines(want, got [][]float32, dim int) (least, mean float64) {
	least = 1
	n := 0
	for i := range want {
		for j := 0; j < len(want[i]); j += dim {
			s := 0.0
			for k := range dim {
				s += float64(want[i][j+k]) * float64(got[i][j+k])
			}
			least, mean, n = min(least, s), mean+s, n+1
		}
	}
	return least, mean / float64(n)
}

// TestMutants: mistakes that rankings hardly notice, vectors do.
func TestMutants(t *testing.T) {
	if !effort.Long() {
		t.Skip("long")
	}
	c := load(t, "scifact-sample")
	reference, _ := stored(t, "scifact-sample")
	c.docs, reference.docs = c.docs[:6], reference.docs[:6]
	no, long, prompt := false, 48, "[unused0] "
	noMarker := func(l *local) { l.config.Query.Marker, l.config.Document.Marker = -1, -1 }
	dir := mini(t)
	for name, m := range map[string]struct {
		o       Options
		queries bool         // else documents
		mistake func(*local) // made on purpose once the model is open
	}{
		"mask not attended": {Options{Override: &modeldir.Override{Attend: &no}}, true, nil},
		"no expansion":      {Options{Override: &modeldir.Override{Expand: &no}}, true, nil},
		"no marker":         {Options{}, true, noMarker},
		"document marker":   {Options{}, true, func(l *local) { l.config.Query.Marker = l.config.Document.Marker }},
		"marker as text":    {Options{Override: &modeldir.Override{QueryPrompt: &prompt}}, true, noMarker},
		"length 48":         {Options{Override: &modeldir.Override{QueryLength: &long}}, true, nil},
		"skiplist off":      {Options{}, false, func(l *local) { l.config.Document.Skip = false }},
		"end cut off":       {Options{}, false, func(l *local) { l.suffix = nil }},
		"position offset": {Options{}, true, func(l *local) {
			nc, w, err := weights.Load(l.config)
			require.NoError(t, err)
			nc.MaxPositions, nc.PositionOffset = nc.MaxPositions-1, 1
			require.NoError(t, l.engine.Close())
			l.engine, err = native.New(nc, w, native.Options{})
			require.NoError(t, err)
		}},
		"no marker, either": {Options{}, false, noMarker},
	} {
		e := open(t, dir, &m.o)
		c, reference := *c, reference
		if name == "end cut off" { // as a cut without room for it does to texts that are too long
			docs, vectors := c.docs, reference.docs
			c.docs, reference.docs = nil, nil
			for i, d := range docs {
				s, err := localOf(e).sequence(Document, d.Full(), false)
				require.NoError(t, err)
				if s.truncated {
					c.docs, reference.docs = append(c.docs, d), append(reference.docs, vectors[i])
				}
			}
			require.NotEmpty(t, c.docs)
		}
		if m.mistake != nil {
			m.mistake(localOf(e))
		}
		var got string
		if m.queries {
			got = fault(reference.queries, encodeQueries(t, e, &c))
		} else {
			got = fault(reference.docs, encodeAll(t, e, &c).docs)
		}
		t.Logf("%s: %s", name, got)
		require.NotEmpty(t, got, name)
	}
}
