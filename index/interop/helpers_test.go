package interop

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/torchtest"
	"github.com/plaid-ir/plaid/kernels"
)

// collected is a whole stream.
type collected struct {
	codes     []uint32
	residuals []byte
}

func collect(t require.TestingT, x *Index, maxTokens int) collected {
	var c collected
	for b, err := range x.Blocks(context.Background(), maxTokens) {
		require.NoError(t, err)
		require.NotEmpty(t, b.Codes)
		require.LessOrEqual(t, len(b.Codes), maxTokens)
		require.Len(t, b.Residuals, len(b.Codes)*x.RowBytes())
		c.codes = append(c.codes, b.Codes...)
		c.residuals = append(c.residuals, b.Residuals...)
	}
	return c
}

// streamError runs a stream and returns its error.
func streamError(x *Index) error {
	for _, err := range x.Blocks(context.Background(), 7) {
		if err != nil {
			return err
		}
	}
	return nil
}

// snapshot is the hash and the modification time of each file below dir.
func snapshot(t *testing.T, dir string) map[string]string {
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		out[path] = fmt.Sprintf("%x %v %v", sha256.Sum256(data), info.ModTime(), info.Mode())
		return err
	}))
	return out
}

// raw encodes values little-endian in a NumPy type.
func raw[T int32 | int64 | float32 | byte | int](descr string, values []T) []byte {
	var b []byte
	for _, v := range values {
		switch descr[1:] {
		case "f2":
			b = binary.LittleEndian.AppendUint16(b, kernels.F16FromF32(float32(v)))
		case "f4":
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
		case "f8":
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(v)))
		case "u1":
			b = append(b, byte(v))
		case "i4":
			b = binary.LittleEndian.AppendUint32(b, uint32(int32(v)))
		case "i8":
			b = binary.LittleEndian.AppendUint64(b, uint64(int64(v)))
		default:
			panic(descr)
		}
	}
	return b
}

// npy makes a .npy file whose shape is written as given; the data begin at a
// multiple of align plus shift.
func npy(descr, shape string, align, shift int, data []byte) []byte {
	head := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape)
	for (10+len(head)+1)%align != shift%align {
		head += " "
	}
	head += "\n"
	b := append([]byte("\x93NUMPY\x01\x00"), byte(len(head)), byte(len(head)>>8))
	return append(append(b, head...), data...)
}

// fixture is a small index by hand: 4 centroids, 8 dimensions, 2 bits.
type fixture struct {
	centroids, cutoffs, weights []float32
	lens                        [][]int32 // of each chunk
	codes                       [][]int64
	residuals                   [][]byte // ColBERT's order
}

func newFixture() fixture {
	return fixture{
		centroids: []float32{
			1, 0, 0, 0, 0, 0, 0, 0,
			0, 1, 0, 0, 0, 0, 0, 0,
			.5, .5, .5, .5, 0, 0, 0, 0,
			0, 0, 0, 0, 0, 0, 0, -1,
		},
		cutoffs: []float32{-.25, 0, .25},
		weights: []float32{-.5, -.125, .125, .5},
		lens:    [][]int32{{2, 0, 1}, {}, {3, 1}},
		codes:   [][]int64{{0, 1, 0}, {}, {3, 3, 0, 1}},
		residuals: [][]byte{
			{0xd6, 0x80, 0x01, 0x02, 0x03, 0x04}, {},
			{0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80},
		},
	}
}

// want is what a stream of the fixture gives.
func (f fixture) want() collected {
	var c collected
	for i := range f.codes {
		for _, v := range f.codes[i] {
			c.codes = append(c.codes, uint32(v))
		}
		for _, v := range f.residuals[i] {
			c.residuals = append(c.residuals, bits.Reverse8(v))
		}
	}
	return c
}

// lists are the inverted lists by hand: documents 0 to 4 of lengths 2, 0, 1, 3, 1.
func (f fixture) lists() (items, lengths []int64) {
	return []int64{0, 2, 3, 0, 4, 3}, []int64{3, 2, 0, 1}
}

// files is a folder in memory.
type memoryFiles map[string][]byte

// write makes the folder.
func (f memoryFiles) write(t require.TestingT, dir string) string {
	for name, data := range f {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o666))
	}
	return dir
}

func (f memoryFiles) json(name string, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	f[name] = b
}

// edit changes keys of a JSON object; nil removes one.
func (f memoryFiles) edit(name string, changes map[string]any) {
	var o map[string]any
	if err := json.Unmarshal(f[name], &o); err != nil {
		panic(err)
	}
	for k, v := range changes {
		if o[k] = v; v == nil {
			delete(o, k)
		}
	}
	f.json(name, o)
}

// nextPlaid is the fixture as next-plaid writes it.
func (f fixture) nextPlaid() memoryFiles {
	out := memoryFiles{
		"centroids.npy":         npy("<f4", "(4, 8)", 64, 0, raw("<f4", f.centroids)),
		"bucket_cutoffs.npy":    npy("<f4", "(3,)", 64, 0, raw("<f4", f.cutoffs)),
		"bucket_weights.npy":    npy("<f4", "(4,)", 64, 0, raw("<f4", f.weights)),
		"avg_residual.npy":      npy("<f4", "(8,)", 64, 0, raw("<f4", make([]float32, 8))),
		"cluster_threshold.npy": npy("<f4", "(1,)", 64, 0, raw("<f4", []float32{.5})),
	}
	tokens := 0
	for i := range f.lens {
		n := len(f.codes[i])
		tokens += n
		out.json(fmt.Sprintf("doclens.%d.json", i), f.lens[i])
		out.json(fmt.Sprintf("%d.metadata.json", i), map[string]int{"num_documents": len(f.lens[i])})
		out[fmt.Sprintf("%d.codes.npy", i)] = npy("<i8", fmt.Sprintf("(%d,)", n), 64, 0, raw("<i8", f.codes[i]))
		out[fmt.Sprintf("%d.residuals.npy", i)] = npy("|u1", fmt.Sprintf("(%d, 2)", n), 64, 0, f.residuals[i])
	}
	items, lengths := f.lists()
	out["ivf.npy"] = npy("<i8", fmt.Sprintf("(%d,)", len(items)), 64, 0, raw("<i8", items))
	out["ivf_lengths.npy"] = npy("<i4", "(4,)", 64, 0, raw("<i4", lengths))
	out.json("metadata.json", map[string]any{
		"num_chunks": len(f.lens), "nbits": 2, "num_partitions": 4, "num_embeddings": tokens,
		"num_documents": 5, "avg_doclen": 1.4, "embedding_dim": 8, "next_plaid_compatible": true, "binary": false,
	})
	return out
}

// merge replaces the shards by merged files with two rows of padding, in the
// manner of fast-plaid 1.7.
func (f fixture) merge(out memoryFiles) {
	var codes []int64
	var residuals []byte
	for i := range f.codes {
		codes = append(codes, f.codes[i]...)
		residuals = append(residuals, f.residuals[i]...)
	}
	for name := range out {
		if strings.HasSuffix(name, ".codes.npy") || strings.HasSuffix(name, ".residuals.npy") {
			delete(out, name)
		}
	}
	n := len(codes) + 2
	// Padding that would be refused if it were read.
	out["merged_codes.npy"] = npy("<i8", fmt.Sprintf("(%d,)", n), 64, 1, raw("<i8", append(codes, -1, 99)))
	out["merged_residuals.npy"] = npy("|u1", fmt.Sprintf("(%d, 2)", n), 64, 1, append(residuals, 0, 0, 0, 0))
}

// colbert is the fixture as the reference implementation writes it.
func (f fixture) colbert(t require.TestingT) memoryFiles {
	out := memoryFiles{
		"centroids.pt":    torchtest.File(t, torchtest.Tensor{Class: "HalfStorage", Shape: []int{4, 8}, Data: raw("<f2", f.centroids)}),
		"avg_residual.pt": torchtest.File(t, torchtest.Tensor{Class: "HalfStorage", Shape: []int{}, Data: raw("<f2", []float32{.5})}),
		"buckets.pt": torchtest.File(t,
			torchtest.Tensor{Class: "FloatStorage", Shape: []int{3}, Data: raw("<f4", f.cutoffs)}, torchtest.Tensor{Class: "HalfStorage", Shape: []int{4}, Data: raw("<f2", f.weights)}),
	}
	tokens := 0
	for i := range f.lens {
		n := len(f.codes[i])
		tokens += n
		out.json(fmt.Sprintf("doclens.%d.json", i), f.lens[i])
		out[fmt.Sprintf("%d.codes.pt", i)] = torchtest.File(t, torchtest.Tensor{Class: "IntStorage", Shape: []int{n}, Data: raw("<i4", f.codes[i])})
		out[fmt.Sprintf("%d.residuals.pt", i)] = torchtest.File(t, torchtest.Tensor{Class: "ByteStorage", Shape: []int{n, 2}, Data: f.residuals[i]})
	}
	items, lengths := f.lists()
	out["ivf.pid.pt"] = torchtest.File(t,
		torchtest.Tensor{Class: "IntStorage", Shape: []int{len(items)}, Data: raw("<i4", items)}, torchtest.Tensor{Class: "LongStorage", Shape: []int{4}, Data: raw("<i8", lengths)})
	out.json("metadata.json", map[string]any{
		"config": map[string]any{"nbits": 2, "dim": 8}, "num_chunks": len(f.lens), "num_partitions": 4, "num_embeddings": tokens,
	})
	return out
}
