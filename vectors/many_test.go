package vectors

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func twoTensors(second string) []byte {
	return safetensorsBytes(`{"doc a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},`+second+`}`, f32Bytes(1, 2, 3, 4, 5, 6))
}

// A file with an array for each document, as np.savez(**docs) and save_file write it.
func TestArrayPerDocument(t *testing.T) {
	safe := tempFile(t, "d.safetensors", twoTensors(`"b":{"dtype":"F32","shape":[1,2],"data_offsets":[16,24]}`))
	zipped := tempFile(t, "d.npz", zipBytes(t,
		stored("doc a", npyBytes(t, "<f4", []int{2, 2}, 1, 2, 3, 4)), stored("b", npyBytes(t, "<f4", []int{1, 2}, 5, 6)),
		stored("empty", npyBytes(t, "<f4", []int{0, 2}))))
	payload := tempFile(t, "p.jsonl", []byte(`{"_id": "b", "n": 1}`+"\n"))
	for _, c := range []struct {
		files Files
		ids   []string
	}{
		{Files{Vectors: safe}, []string{"doc a", "b"}},
		{Files{Vectors: zipped, Payload: payload}, []string{"doc a", "b", "empty"}},
	} {
		src := open(t, c.files)
		require.Equal(t, 2, src.Dim())
		docs := all(t, src)
		require.Len(t, docs, len(c.ids))
		for i, want := range [][]float32{{1, 2, 3, 4}, {5, 6}, {}}[:len(c.ids)] {
			require.Equal(t, c.ids[i], docs[i].ID)
			require.Equal(t, len(want), len(docs[i].Tokens))
			require.Equal(t, len(want)/2, src.Rows(i))
			for j := range want {
				require.Equal(t, want[j], docs[i].Tokens[j])
			}
		}
		if c.files.Payload != "" {
			require.JSONEq(t, `{"_id": "b", "n": 1}`, string(docs[1].Payload))
		}
	}
	for second, reason := range map[string]string{
		`"b":{"dtype":"F32","shape":[2,1],"data_offsets":[16,24]}`:        "arrays before it have 2",
		`"b\n":{"dtype":"F32","shape":[1,2],"data_offsets":[16,24]}`:      "the name of an array is the id",
		`"b":{"dtype":"F32","shape":[1,1,2],"data_offsets":[16,24]}`:      "several arrays of floats",
		`"mask":{"dtype":"F32","shape":[1,2],"data_offsets":[16,24]}`:     "needs lengths",
		`"b":{"dtype":"F32","shape":[1,2],"data_offsets":[16,24]},"c":{}`: "wants dtype",
	} {
		_, err := Open(t.Context(), Files{Vectors: tempFile(t, "d.safetensors", twoTensors(second))})
		require.ErrorContains(t, err, reason)
	}
}

func TestFormatByName(t *testing.T) {
	npy := npyBytes(t, "<f4", []int{1, 1, 2}, 1, 2)
	path := tempFile(t, "vectors.bin", npy)
	_, err := Open(t.Context(), Files{Vectors: path})
	require.ErrorIs(t, err, ErrSuffix)
	require.ErrorIs(t, err, ErrFormat)
	require.Len(t, all(t, open(t, Files{Vectors: path, Format: "npy"})), 1)
	_, err = Open(t.Context(), Files{Vectors: path, Format: "npz"})
	require.ErrorContains(t, err, "is not what was said: npy, not npz")
	_, err = Open(t.Context(), Files{Vectors: path, Format: "xml"})
	require.ErrorContains(t, err, "there is npy, npz")
}

func TestQueriesAreCalledSo(t *testing.T) {
	one := tempFile(t, "q.npy", npyBytes(t, "<f4", []int{2, 2}, 1, 2, 3, 4))
	_, err := Open(t.Context(), Files{Vectors: one})
	require.ErrorIs(t, err, ErrNoLengths)
	require.ErrorIs(t, err, ErrShape)
	src := open(t, Files{Vectors: one, Queries: true})
	require.Equal(t, 1, src.Len())
	require.Equal(t, 2, src.Rows(0))
	bad := tempFile(t, "q.npy", npyBytes(t, "<f4", []int{1, 2, 2}, 1, 2, 3, float32(math.NaN())))
	for queries, noun := range map[bool]string{true: ": query 0 (id \"0\"), token 1", false: ": document 0 (id \"0\"), token 1"} {
		for _, err := range open(t, Files{Vectors: bad, Queries: queries}).Docs(t.Context(), 0, 1) {
			require.ErrorContains(t, err, noun)
		}
	}
}
