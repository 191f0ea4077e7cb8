package tokenizer

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// kindsOf are the tokenizers of testdata/kinds.json.gz: pipelines of published families.
func kindsOf(t testing.TB) map[string]json.RawMessage {
	var kinds map[string]json.RawMessage
	readGzip(t, filepath.Join("testdata", "kinds.json.gz"), &kinds)
	return kinds
}

// Each family's pipeline gives the ids of the Python package, and puts around a text what that does.
func TestKinds(t *testing.T) {
	lines := loadFixtures(t).lines
	var golden map[string]struct {
		Bare  [][]int32
		Whole []int32
	}
	readGzip(t, filepath.Join("testdata", "golden-kinds.json.gz"), &golden)
	kinds := kindsOf(t)
	require.Len(t, kinds, len(golden))
	for name, file := range kinds {
		t.Run(name, func(t *testing.T) {
			tok, err := Parse(file)
			require.NoError(t, err)
			want := golden[name]
			require.NotEmpty(t, want.Bare)
			compare(t, tok, name, lines[:len(want.Bare)], want.Bare)
			ids, err := tok.EncodeIDs(tok.Prefix(), "a text")
			require.NoError(t, err)
			require.Equal(t, want.Whole, slices.Concat(ids, tok.Suffix()))
		})
	}
}
