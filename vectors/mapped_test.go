package vectors_test

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/vectors"
)

// TestMap: what is mapped is what is read, of every type and layout that can be.
func TestMap(t *testing.T) {
	ctx := context.Background()
	values := []float32{1, -2, 0.5, 3, 0, -0.25, 8, 9, 10, 11, 12, 13}
	for _, c := range []struct {
		name, dtype string
		shape       []int
		lengths     string
		mapped      bool
	}{
		{"f4", "<f4", []int{6, 2}, "1\n0\n3\n2\n", true},
		{"f2", "<f2", []int{6, 2}, "6\n", true},
		{"padded", "<f4", []int{3, 2, 2}, "", true},
		{"padded lengths", "<f4", []int{3, 2, 2}, "2\n0\n1\n", true},
		{"f8", "<f8", []int{6, 2}, "6\n", false},
		{"big", ">f4", []int{6, 2}, "6\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			files := vectors.Files{Vectors: filepath.Join(dir, "v.npy")}
			w, err := vectors.CreateNPY(files.Vectors, c.dtype, c.shape...)
			require.NoError(t, err)
			require.NoError(t, w.Float32s(values))
			require.NoError(t, w.Close())
			if c.lengths != "" {
				files.Lengths = filepath.Join(dir, "lens.txt")
				require.NoError(t, os.WriteFile(files.Lengths, []byte(c.lengths), 0o666))
			}
			s, err := vectors.Open(ctx, files)
			require.NoError(t, err)
			defer s.Close()
			m := vectors.Map(s)
			require.Equal(t, c.mapped, m != nil)
			if m == nil {
				return
			}
			require.NoError(t, m.Check(ctx, 0, s.Len()))
			i := 0
			for d, err := range s.Docs(ctx, 0, s.Len()) {
				require.NoError(t, err)
				lo, hi := m.Span(i)
				require.Equal(t, len(d.Tokens), (hi-lo)*m.Dim)
				for j, v := range d.Tokens {
					if m.F32 != nil {
						require.Equal(t, v, m.F32[lo*m.Dim+j])
					} else { // these values are exact, and have the exponent of a float16
						require.Equal(t, v < 0, m.U16[lo*m.Dim+j]>>15 == 1)
					}
				}
				i++
			}
			require.NoError(t, m.CheckUnchanged())
			require.NoError(t, m.Close())
			require.NoError(t, m.Close())
		})
	}
}

// TestMapSafetensors: bfloat16 of a safetensors file, with its lengths beside it.
func TestMapSafetensors(t *testing.T) {
	ctx := context.Background()
	head := `{"vectors":{"dtype":"BF16","shape":[3,2],"data_offsets":[0,12]},"lengths":{"dtype":"I32","shape":[2],"data_offsets":[12,20]}}`
	for len(head)%8 > 0 {
		head += " "
	}
	b := append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...)
	values := []uint16{0x3f80, 0x4000, 0xbf80, 0, 0x3f00, 0x4040} // 1, 2, −1, 0, ½, 3
	for _, v := range values {
		b = binary.LittleEndian.AppendUint16(b, v)
	}
	b = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, 1), 2)
	path := filepath.Join(t.TempDir(), "v.safetensors")
	require.NoError(t, os.WriteFile(path, b, 0o666))
	s, err := vectors.Open(ctx, vectors.Files{Vectors: path})
	require.NoError(t, err)
	defer s.Close()
	m := vectors.Map(s)
	defer m.Close()
	require.True(t, m.IsBFloat16)
	require.Equal(t, values, m.U16)
	require.Equal(t, []int{0, 1, 3}, m.Starts)
	require.NoError(t, m.Check(ctx, 0, 2))
}

// TestMapFaults: values that are not finite, and files that change.
func TestMapFaults(t *testing.T) {
	ctx := context.Background()
	for _, dtype := range []string{"<f4", "<f2"} {
		path := filepath.Join(t.TempDir(), "v.npy")
		w, err := vectors.CreateNPY(path, dtype, 20000, 2, 2)
		require.NoError(t, err)
		require.NoError(t, w.Float32s(make([]float32, 80000)))
		require.NoError(t, w.Close())
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		inf := binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(math.Inf(1))))
		if dtype == "<f2" {
			inf = []byte{0, 0x7c}
		}
		copy(content[len(content)-len(inf):], inf)
		require.NoError(t, os.WriteFile(path, content, 0o666))
		s, err := vectors.Open(ctx, vectors.Files{Vectors: path})
		require.NoError(t, err)
		m := vectors.Map(s)
		require.NoError(t, m.Check(ctx, 0, 19999))
		err = m.Check(ctx, 0, 20000)
		require.ErrorIs(t, err, vectors.ErrValue)
		var fe *vectors.FileError
		require.ErrorAs(t, err, &fe)
		require.Equal(t, []int{19999, 1, 1}, []int{fe.Doc, fe.Token, fe.Dim})
		done, cancel := context.WithCancel(ctx)
		cancel()
		require.ErrorIs(t, m.Check(done, 0, 1), context.Canceled)

		if err := os.Truncate(path, 200); err == nil { // Windows refuses
			require.ErrorIs(t, m.Check(ctx, 0, 20000), vectors.ErrChanged)
			require.ErrorIs(t, m.CheckUnchanged(), vectors.ErrChanged)
		}
		require.NoError(t, m.Close())
		require.NoError(t, s.Close())
	}
	s, err := vectors.FromDocuments(1, []vectors.Document{{Tokens: []float32{1}}})
	require.NoError(t, err)
	require.Nil(t, vectors.Map(s))
}
