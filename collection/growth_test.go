package collection

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/conditiontest"
	"github.com/plaid-ir/plaid/storage"
)

// A collection is trained for its size, and keeps what it has where more would add nothing.
func TestTraining(t *testing.T) {
	g, err := Growth{Flat: 100, Until: 1000}.Completed()
	require.NoError(t, err)
	cfg := Config{Nbits: 4, Binary: true}
	require.Equal(t, Training{StageFlat, 8, 1, defaultSeed}, g.Training(99, cfg))
	require.Equal(t, Training{StageGrowing, 4, 10, defaultSeed}, g.Training(400, cfg), "it is trained on what is stored")
	require.Equal(t, Training{StageFinal, 1, 0, defaultSeed}, g.Training(1000, cfg), "binary")
	cfg.Binary = false
	final := &storage.Header{Nbits: 2}
	require.Equal(t, 2, g.Retraining(g.EncodingOf(final), 10, cfg).Nbits)
	require.Equal(t, StageFinal, g.Retraining(g.EncodingOf(final), 10, cfg).Stage)

	growing := Encoding{StageGrowing, 4, 200}
	_, due := g.NextTraining(growing, 1000, Config{Nbits: 2})
	require.True(t, due, "it is large, and is to have fewer bits")
	cfg.Nbits = 8
	_, due = g.NextTraining(growing, 1599, cfg)
	require.False(t, due)
	next, due := g.NextTraining(growing, 1600, cfg)
	require.True(t, due)
	require.Equal(t, Training{StageFinal, 4, 0, defaultSeed}, next, "more bits would add nothing")
	require.Equal(t, Training{StageGrowing, 4, 1, defaultSeed}, g.Retraining(growing, 50, cfg), "much was deleted")
	built := &storage.Header{Nbits: 4, Centroids: 64, Build: storage.Build{Source: "vectors", Tokens: 300}}
	require.Equal(t, Encoding{StageGrowing, 4, 300}, g.EncodingOf(built))
	built.Nbits = 2
	require.Equal(t, StageFinal, g.EncodingOf(built).Stage, "it is not precise enough to train on")
	built.Nbits, built.Build.Tokens = 4, 0
	require.Equal(t, StageFinal, g.EncodingOf(built).Stage, "its codec was given")
	_, err = Growth{Factor: 1}.Completed()
	require.ErrorIs(t, err, ErrConfig)
}

// Advice is for collections that have grown up.
func TestAdvice(t *testing.T) {
	g, err := Growth{}.Completed()
	require.NoError(t, err)
	final := storage.Header{Nbits: 4, Build: storage.Build{Source: "vectors", Tokens: 1 << 20}}
	precise := final
	precise.Nbits = 8
	precise.Build.Tokens = 1 << 19
	for name, x := range map[string]struct {
		h    storage.Header
		d    index.Drift
		want string
	}{
		"like the others": {final, index.Drift{Trained: 1 << 20, Added: 1 << 20, Ratio: 1.4, Centroids: 4, Wanted: 8}, ""},
		"few":             {final, index.Drift{Trained: 1 << 20, Added: 1 << 10, Ratio: 3, Centroids: 4, Wanted: 4}, ""},
		"others":          {final, index.Drift{Trained: 1 << 20, Added: 1 << 17, Ratio: 1.6, Centroids: 4, Wanted: 4}, "1.60 times"},
		"many":            {final, index.Drift{Trained: 1 << 20, Added: 1 << 25, Ratio: 1.1, Centroids: 4, Wanted: 16}, "16"},
		"growing":         {precise, index.Drift{Trained: 1 << 19, Added: 1 << 19, Ratio: 3, Centroids: 4, Wanted: 16}, ""},
	} {
		got := g.Advice(g.EncodingOf(&x.h).Stage, x.d)
		if x.want == "" {
			require.Empty(t, got, name)
		} else {
			require.Contains(t, got, x.want, name)
		}
	}
}

// A selection is the same after its way through JSON: a list without entries is not taken for none.
func FuzzSelection(f *testing.F) {
	where := conditiontest.Bind(f, "n > ? AND s = ?", 2, "<b>")
	for _, s := range []Selection{
		{}, {IDs: []string{}}, {Numbers: []uint64{}}, {Numbers: []uint64{1, 1 << 40}, IDs: []string{"a&b"}}, {Where: where},
	} {
		text, err := json.Marshal(s)
		require.NoError(f, err)
		var got Selection
		require.NoError(f, json.Unmarshal(text, &got))
		require.Equal(f, s, got)
		f.Add(text)
	}
	require.Error(f, json.Unmarshal([]byte(`{"nombers":[1]}`), &Selection{}))
	f.Fuzz(func(t *testing.T, text []byte) {
		var s, again Selection
		if json.Unmarshal(text, &s) != nil {
			return
		}
		text, err := json.Marshal(s)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &again))
		require.Equal(t, s.criteria(), again.criteria())
	})
}

func TestSelectionWays(t *testing.T) {
	for _, c := range []struct {
		s          Selection
		all        bool
		check, one bool // pass
	}{
		{Selection{}, true, true, false},
		{Selection{IDs: []string{}}, false, true, true},
		{Selection{Numbers: []uint64{1}}, false, true, true},
		{Selection{Numbers: []uint64{1}, IDs: []string{"a"}}, false, false, false},
	} {
		require.Equal(t, c.all, c.s.SelectsAll())
		require.Equal(t, c.check, c.s.Check() == nil)
		require.Equal(t, c.one, c.s.CheckExactlyOne() == nil)
	}
	require.ErrorIs(t, (&Selection{}).CheckExactlyOne(), ErrSelection)
}
