package packed_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/maxsim"
	_ "github.com/plaid-ir/plaid/kernels/maxsim/cpu"
	"github.com/plaid-ir/plaid/vectors"
	"github.com/plaid-ir/plaid/vectors/packed"
)

var ctx = context.Background()

func backend(t testing.TB) maxsim.Backend {
	b, err := maxsim.Select("")
	require.NoError(t, err)
	return b
}

// documents are of awkward lengths.
func documents(t testing.TB, side maxsimtest.Side, dim int, ids, screen bool) *packed.Documents {
	side.Lengths = []int{5, 0, 70, 1, 300, 0}
	d := &packed.Documents{Batch: side.Batch(maxsimtest.Rand(uint64(dim)), dim)}
	for i := 0; ids && i < d.Batch.Len(); i++ {
		d.IDs = append(d.IDs, fmt.Sprintf("é %d", i))
	}
	if screen {
		var err error
		d.Screening, err = maxsim.Pack(ctx, backend(t), d.Batch, 0)
		require.NoError(t, err)
	}
	return d
}

func write(t testing.TB, d *packed.Documents) []byte {
	var b bytes.Buffer
	require.NoError(t, packed.Write(ctx, &b, d))
	return b.Bytes()
}

var sides = map[string]maxsimtest.Side{
	"float32":         {},
	"float16, masked": {Type: maxsim.F16, Masked: 0.3},
	"bfloat16":        {Type: maxsim.BF16, Padded: true},
	"int8":            {Type: maxsim.I8, Masked: 0.2},
	"int8, affine":    {Type: maxsim.I8, Affine: true},
	"e4m3, padded":    {Type: maxsim.E4M3, Padded: true, Masked: 0.3},
}

// TestRoundTrip: a file scores as what was written, to the bit, screened or not, and
// reads as it, whole and in slices.
func TestRoundTrip(t *testing.T) {
	for name, side := range sides {
		for _, screen := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", name, screen), func(t *testing.T) {
				const dim = 33
				want := documents(t, side, dim, screen, screen)
				path := filepath.Join(t.TempDir(), "docs"+packed.Suffix)
				require.NoError(t, os.WriteFile(path, write(t, want), 0o666))
				f, err := packed.Open(path)
				require.NoError(t, err)
				defer f.Close()
				require.Equal(t, want.IDs, f.IDs)
				require.Equal(t, screen, f.Screening != nil)
				require.NoError(t, f.Verify(ctx, 0, f.Len()))

				b := backend(t)
				q := maxsimtest.Side{Lengths: []int{40, 3}}.Batch(maxsimtest.Rand(1), dim)
				scores := maxsimtest.NewCall(q, want.Batch, maxsim.All(), maxsim.Terms{Normalize: true})
				scores.Argmax = nil // strides of padded ones differ
				require.NoError(t, b.Score(ctx, scores))
				got := *scores
				got.Scores = make([]float32, len(scores.Scores))
				held, err := b.Hold(ctx, f.Batch, maxsim.HoldOptions{Screen: true, Screening: f.Screening})
				require.NoError(t, err)
				got.D = held
				require.NoError(t, b.Score(ctx, &got))
				require.Equal(t, scores.Scores, got.Scores)
				for lo := range f.Len() {
					s := f.Slice(lo, f.Len())
					held, err := b.Hold(ctx, s.Batch, maxsim.HoldOptions{Screen: true, Screening: s.Screening})
					require.NoError(t, err)
					part := maxsim.Call{Q: q, D: held, Terms: got.Terms, Scores: make([]float32, 2*(f.Len()-lo))}
					require.NoError(t, b.Score(ctx, &part))
					require.Equal(t, append(append([]float32{}, got.Scores[lo:f.Len()]...), got.Scores[f.Len()+lo:]...), part.Scores)
				}

				s, err := vectors.Open(ctx, vectors.Files{Vectors: path})
				require.NoError(t, err)
				defer s.Close()
				require.Equal(t, dim, s.Dim())
				i := 0
				for d, err := range s.Docs(ctx, 0, s.Len()) {
					require.NoError(t, err)
					require.Equal(t, s.Rows(i)*dim, len(d.Tokens))
					if screen {
						require.Equal(t, want.IDs[i], d.ID)
					}
					lo, hi := want.Batch.Span(i)
					var rows []float32
					for r := lo; r < hi; r++ {
						if want.Batch.IsToken(r) {
							for _, v := range maxsim.OracleRow(want.Batch, r, false) {
								rows = append(rows, float32(v))
							}
						}
					}
					require.Equal(t, rows, append([]float32(nil), d.Tokens...))
					i++
				}
				require.Equal(t, 6, i)
				for _, err := range f.Docs(ctx, 3, 9) {
					require.ErrorIs(t, err, vectors.ErrShape)
				}
			})
		}
	}
}

// TestEmpty: no documents, or none with tokens.
func TestEmpty(t *testing.T) {
	for _, offsets := range [][]int{{0}, {0, 0, 0}} {
		d := &packed.Documents{Batch: maxsim.Packed(maxsim.Int8(nil, []float32{}, nil, 7), offsets)}
		f, err := packed.Parse(write(t, d))
		require.NoError(t, err)
		require.Equal(t, len(offsets)-1, f.Len())
		require.Zero(t, f.Dim())
		require.NoError(t, f.Verify(ctx, 0, f.Len()))
		require.NoError(t, f.Close())
	}
}

// TestDamage: every byte counts, and every length but the right one is refused.
func TestDamage(t *testing.T) {
	data := write(t, documents(t, maxsimtest.Side{Type: maxsim.I8, Masked: 0.2}, 9, true, true))
	look := func(b []byte) error {
		f, err := packed.Parse(b)
		if err == nil {
			err = f.Verify(ctx, 0, f.Len())
		}
		return err
	}
	require.NoError(t, look(data))
	step := 1
	if !effort.Long() {
		step = 13
	}
	for i := 0; i < len(data); i += step {
		data[i] ^= 0x10
		require.ErrorIs(t, look(data), vectors.ErrFormat, "byte %d", i)
		data[i] ^= 0x10
		require.ErrorIs(t, look(data[:i]), vectors.ErrFormat, "%d bytes", i)
	}
	require.ErrorIs(t, look(append(bytes.Clone(data), 0)), vectors.ErrFormat)
}

// seal makes the sums of a file right whose bytes were changed.
func seal(b []byte) {
	table := crc32.MakeTable(crc32.Castagnoli)
	binary.LittleEndian.PutUint32(b[60:], crc32.Checksum(b[:60], table))
	// A file of less than a block has one sum, and that of it.
	n := len(b) - 8
	binary.LittleEndian.PutUint32(b[n:], crc32.Checksum(b[:n], table))
	binary.LittleEndian.PutUint32(b[n+4:], crc32.Checksum(b[n:n+4], table))
}

// TestLies: sizes that do not fit each other are errors, with sums that are right.
func TestLies(t *testing.T) {
	d := documents(t, maxsimtest.Side{Type: maxsim.I8, Masked: 0.2}, 9, true, true)
	require.Less(t, len(write(t, d)), 64<<10)
	put64 := func(at int, v uint64) func(b []byte) {
		return func(b []byte) { binary.LittleEndian.PutUint64(b[at:], v) }
	}
	for name, change := range map[string]func(b []byte){
		"version":          func(b []byte) { b[8] = 2 },
		"no type":          func(b []byte) { b[10] = 0 },
		"compressed":       func(b []byte) { b[10] = byte(maxsim.Compressed) },
		"wider type":       func(b []byte) { b[10] = byte(maxsim.F32) },
		"narrow":           func(b []byte) { b[10] = byte(maxsim.E4M3) }, // which has no zeros, and as many bytes
		"parts":            func(b []byte) { b[11] |= 0x80 },
		"no ids":           func(b []byte) { b[11] &^= 8 },
		"no screening":     func(b []byte) { b[11] &^= 16 },
		"reserved":         func(b []byte) { b[56] = 1 },
		"dimension 0":      func(b []byte) { b[12] = 0 },
		"dimension 8":      func(b []byte) { b[12] = 8 },
		"large dimension":  func(b []byte) { b[14] = 1 },
		"rows":             put64(16, 375),
		"many rows":        put64(16, 1<<58),
		"all rows":         put64(16, math.MaxUint64),
		"documents":        put64(24, 5),
		"many documents":   put64(24, 1<<57),
		"tokens":           put64(32, 1),
		"ids":              put64(40, 3),
		"size":             put64(48, 100),
		"falling offsets":  put64(64+16, 2),
		"offsets past end": put64(64+16, 1<<40),
		"first offset":     put64(64, 1),
		"last offset":      put64(64+8*6, 375),
		"an id":            func(b []byte) { b[128] = '\n' },
		"a control":        func(b []byte) { b[129] = 1 },
		"no UTF-8":         func(b []byte) { b[128] = 0xff },
		"one id twice":     func(b []byte) { copy(b[128+5:], b[128:128+5]) },
		"masks":            func(b []byte) { b[192]++ },
	} {
		b := write(t, d)
		change(b)
		seal(b)
		_, err := packed.Parse(b)
		if name == "narrow" && d.Batch.Tokens.Zeros == nil && err == nil {
			continue // as right as the other
		}
		require.ErrorIs(t, err, vectors.ErrFormat, name)
	}
	b := write(t, d)
	b[8] = 2
	_, err := packed.Parse(b)
	require.ErrorIs(t, err, packed.ErrVersion)
}

// TestUnwritable: documents that do not fit each other are not written.
func TestUnwritable(t *testing.T) {
	for name, spoil := range map[string]func(d *packed.Documents){
		"offsets":    func(d *packed.Documents) { d.Batch.Offsets[1] = 1000 },
		"ids":        func(d *packed.Documents) { d.IDs = d.IDs[1:] },
		"an id":      func(d *packed.Documents) { d.IDs[2] = "a\nb" },
		"one twice":  func(d *packed.Documents) { d.IDs[2] = d.IDs[0] },
		"screening":  func(d *packed.Documents) { d.Screening.Levels = nil },
		"compressed": func(d *packed.Documents) { d.Batch.Tokens = maxsim.Matrix{Type: maxsim.Compressed, Dim: 9} },
	} {
		d := documents(t, maxsimtest.Side{}, 9, true, true)
		spoil(d)
		require.Error(t, packed.Write(ctx, io.Discard, d), name)
	}
	d := documents(t, maxsimtest.Side{}, 9, true, true)
	done, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, packed.Write(done, io.Discard, d), context.Canceled)
	full := errors.New("no space")
	for n := range 20 {
		require.ErrorIs(t, packed.Write(ctx, &failing{n, full}, d), full)
	}
}

type failing struct {
	left int
	err  error
}

func (f *failing) Write(p []byte) (int, error) {
	if f.left--; f.left < 0 {
		return 0, f.err
	}
	return len(p), nil
}

// TestChanged: a file that changes after it was opened is an error, and no crash.
func TestChanged(t *testing.T) {
	d := documents(t, maxsimtest.Side{}, 300, false, true)
	path := filepath.Join(t.TempDir(), "docs"+packed.Suffix)
	require.NoError(t, os.WriteFile(path, write(t, d), 0o666))
	f, err := packed.Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Unchanged())
	if err := os.Truncate(path, 1000); err != nil {
		t.Skip("the system keeps files that are mapped:", err)
	}
	require.ErrorIs(t, f.Unchanged(), vectors.ErrChanged)
	require.ErrorIs(t, f.Verify(ctx, 0, f.Len()), vectors.ErrChanged)
	for _, err := range f.Docs(ctx, 4, 5) {
		require.ErrorIs(t, err, vectors.ErrChanged)
	}
	_, err = packed.Open(path)
	require.ErrorIs(t, err, vectors.ErrFormat)
	require.ErrorContains(t, err, path)
	_, err = packed.Open(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = packed.Open(t.TempDir())
	require.Error(t, err)
}

// FuzzParse: whatever is in a file, with sums that are right, it is refused or scores
// without a fault.
func FuzzParse(f *testing.F) {
	for _, side := range sides {
		side.Lengths = []int{3, 0, 20}
		d := &packed.Documents{Batch: side.Batch(maxsimtest.Rand(1), 5), IDs: []string{"a", "b", "c"}}
		var err error
		d.Screening, err = maxsim.Pack(ctx, backend(f), d.Batch, 0)
		require.NoError(f, err)
		f.Add(write(f, d), true)
		d.Screening = nil
		f.Add(write(f, d), false)
	}
	f.Fuzz(func(t *testing.T, data []byte, sealed bool) {
		if sealed && len(data) >= 72 && len(data) < 64<<10 {
			seal(data)
		}
		p, err := packed.Parse(data)
		if err != nil {
			require.ErrorIs(t, err, vectors.ErrFormat)
			return
		}
		if p.Verify(ctx, 0, p.Len()) != nil || p.Len()*p.Batch.Tokens.Dim > 1<<16 {
			return
		}
		for _, err := range p.Docs(ctx, 0, p.Len()) {
			if err != nil {
				require.ErrorIs(t, err, vectors.ErrValue)
			}
		}
		b := backend(t)
		h, err := b.Hold(ctx, p.Batch, maxsim.HoldOptions{Screen: true, Screening: p.Screening})
		require.NoError(t, err)
		q := maxsimtest.Side{Lengths: []int{3}}.Batch(maxsimtest.Rand(2), p.Batch.Tokens.Dim)
		err = b.Score(ctx, &maxsim.Call{Q: q, D: h, Scores: make([]float32, p.Len()), Terms: maxsim.Terms{Threads: 1}})
		if err != nil {
			require.ErrorIs(t, err, kernels.ErrShape)
		}
	})
}
