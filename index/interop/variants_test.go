package interop

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/torchtest"
)

func TestRepackGolden(t *testing.T) {
	for _, c := range []struct {
		nbits   int
		buckets []int
		colbert []byte
	}{
		{2, []int{3, 2, 2, 1, 1, 0, 0, 0}, []byte{0xd6, 0x80}},
		{4, []int{1, 8}, []byte{0x81}},
		{4, []int{3, 12}, []byte{0xc3}},
		{1, []int{1, 0, 0, 0, 0, 0, 1, 1}, []byte{0x83}},
		{8, []int{1, 0x80, 0x2d}, []byte{0x80, 0x01, 0xb4}},
	} {
		b := append([]byte(nil), c.colbert...)
		repack(b)
		for j, want := range c.buckets {
			bit := j * c.nbits
			require.Equal(t, want, int(b[bit/8])>>(bit%8)&(1<<c.nbits-1), "%d bits, field %d", c.nbits, j)
		}
		repack(b)
		require.Equal(t, c.colbert, b)
	}
}

// TestVariants opens every legal form of the fixture; all read the same.
func TestVariants(t *testing.T) {
	f := newFixture()
	for _, c := range []struct {
		name, engine string
		files        func() memoryFiles
		edit         func(memoryFiles)
		warning      string // part of the only one; none if empty
	}{
		{name: "next-plaid", engine: EngineNextPlaid},
		{name: "JSON with byte order marks", engine: EngineNextPlaid, edit: func(o memoryFiles) {
			for name, text := range o {
				if filepath.Ext(name) == ".json" {
					o[name] = append([]byte("\ufeff"), text...)
				}
			}
		}},
		{name: "fast-plaid", engine: EngineFastPlaid, edit: func(o memoryFiles) {
			o.edit("metadata.json", map[string]any{"embedding_dim": nil, "next_plaid_compatible": nil, "compress_only": false})
			o["centroids.npy"] = npy("<f2", "(4,8,)", 16, 0, raw("<f2", f.centroids))
			o["0.residuals.npy"] = npy("<u1", "(3,2,)", 16, 0, f.residuals[0])
		}},
		{name: "float16 weights, float64 cutoffs", engine: EngineNextPlaid, edit: func(o memoryFiles) {
			o["bucket_weights.npy"] = npy("<f2", "(4,)", 64, 0, raw("<f2", f.weights))
			o["bucket_cutoffs.npy"] = npy("<f8", "(3,)", 64, 0, raw("<f8", f.cutoffs))
		}},
		{name: "int64 lengths, scalar float64 threshold", engine: EngineNextPlaid, edit: func(o memoryFiles) {
			_, lengths := f.lists()
			o["ivf_lengths.npy"] = npy("<i8", "(4,)", 16, 0, raw("<i8", lengths))
			o["cluster_threshold.npy"] = npy("<f8", "()", 64, 0, raw("<f8", []float32{.5}))
		}},
		{name: "int32 codes, data behind 64k+1 bytes", engine: EngineNextPlaid, edit: func(o memoryFiles) {
			o["0.codes.npy"] = npy("<i4", "(3,)", 64, 1, raw("<i4", f.codes[0]))
			o["2.codes.npy"] = npy("<i8", "(4, )", 64, 1, raw("<i8", f.codes[2]))
			o["2.residuals.npy"] = npy("|u1", "( 4,2 )", 64, 1, f.residuals[2])
		}},
		{name: "empty chunk without columns", engine: EngineNextPlaid, edit: func(o memoryFiles) {
			o["1.residuals.npy"] = npy("|u1", "(0,)", 64, 0, nil)
		}},
		{name: "empty chunk without files", engine: EngineNextPlaid, edit: func(o memoryFiles) {
			delete(o, "1.residuals.npy")
			delete(o, "1.codes.npy")
		}},
		{name: "merged only", engine: EngineFastPlaid, edit: func(o memoryFiles) {
			f.merge(o)
			o.edit("metadata.json", map[string]any{"embedding_dim": nil, "next_plaid_compatible": nil, "frozen": true, "mutable": true})
			o.json("merged_codes.manifest.json", map[string]any{
				"0.codes.npy": map[string]any{"rows": 3, "merged": true, "mtime": nil}, "2.codes.npy": map[string]any{"rows": 4},
			})
		}},
		{name: "stale merged beside shards", engine: EngineNextPlaid, edit: func(o memoryFiles) {
			o["merged_codes.npy"] = npy("<i8", "(1,)", 64, 0, raw("<i8", []int{3}))
			o["merged_residuals.npy"] = []byte("junk")
		}},
		{name: "a shard missing, merged complete", engine: EngineNextPlaid, warning: "shards are incomplete", edit: func(o memoryFiles) {
			shard := o["0.codes.npy"]
			f.merge(o)
			o["0.codes.npy"] = shard
		}},
		{name: "K mismatch", engine: EngineNextPlaid, warning: "num_partitions 8, the arrays have 4", edit: func(o memoryFiles) {
			o.edit("metadata.json", map[string]any{"num_partitions": 8})
		}},
		{name: "token count", engine: EngineNextPlaid, warning: "num_embeddings 6, the arrays have 7", edit: func(o memoryFiles) {
			o.edit("metadata.json", map[string]any{"num_embeddings": 6})
		}},
		{name: "old metadata", engine: EngineNextPlaid, edit: func(o memoryFiles) {
			o.edit("metadata.json", map[string]any{"num_documents": 0, "nbits": nil})
		}},
		{name: "unknown flag", engine: EngineNextPlaid, warning: `sets "rotated"`, edit: func(o memoryFiles) {
			o.edit("metadata.json", map[string]any{"rotated": true})
		}},
		{name: "chunk beyond the metadata", engine: EngineNextPlaid, warning: "doclens.3.json is beyond", edit: func(o memoryFiles) {
			o.json("doclens.3.json", []int{1})
		}},
		{name: "pickled leftovers", engine: EngineNextPlaid, edit: func(o memoryFiles) {
			o["buffer.npy"] = npy("|O", "(1,)", 64, 0, []byte("cos\nsystem\n(S'false'\ntR."))
			o["embeddings.npy"] = o["buffer.npy"]
		}},
		{name: "colbert", engine: EngineColBERT, files: func() memoryFiles { return f.colbert(t) }},
		{name: "colbert, interrupted", engine: EngineColBERT, warning: "metadata.json is missing", files: func() memoryFiles { return f.colbert(t) }, edit: func(o memoryFiles) {
			o["plan.json"] = o["metadata.json"]
			delete(o, "metadata.json")
		}},
		{name: "plain", engine: EngineNPY, edit: func(o memoryFiles) {
			f.merge(o)
			for name := range o {
				if strings.HasSuffix(name, ".json") {
					delete(o, name)
				}
			}
			want := f.want()
			repack(want.residuals)
			o["codes.npy"] = npy("<i4", "(7,)", 64, 0, raw("<i4", append(append([]int64{}, f.codes[0]...), f.codes[2]...)))
			o["residuals.npy"] = npy("|u1", "(7, 2)", 64, 0, want.residuals)
			o["doclens.npy"] = npy("<i4", "(5,)", 64, 0, raw("<i4", []int{2, 0, 1, 3, 1}))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := f.nextPlaid()
			if c.files != nil {
				o = c.files()
			}
			if c.edit != nil {
				c.edit(o)
			}
			dir := o.write(t, t.TempDir())
			before := snapshot(t, dir)
			x, err := Open(dir)
			require.NoError(t, err)
			require.Equal(t, c.engine, x.Engine)
			if c.warning == "" {
				require.Empty(t, x.Warnings)
			} else {
				require.Len(t, x.Warnings, 1)
				require.Contains(t, x.Warnings[0], c.warning)
			}
			require.Equal(t, []int{8, 2, 4}, []int{x.Dim, x.Nbits, x.K})
			require.Equal(t, f.centroids, x.Centroids)
			require.Equal(t, f.cutoffs, x.Cutoffs)
			require.Equal(t, f.weights, x.Weights)
			require.Equal(t, []int32{2, 0, 1, 3, 1}, x.DocLens)
			require.Equal(t, int64(7), x.Tokens)
			for _, block := range []int{1, 2, 3, 100} {
				require.Equal(t, f.want(), collect(t, x, block))
			}
			differences, err := x.VerifyIVF(context.Background())
			require.NoError(t, err)
			require.Empty(t, differences)
			require.NoError(t, x.Unchanged())
			require.Equal(t, before, snapshot(t, dir), "reading must not touch the folder")
		})
	}
}

// TestFaults opens folders that are broken or of another kind.
func TestFaults(t *testing.T) {
	f := newFixture()
	set := func(name string, data []byte) func(memoryFiles) { return func(o memoryFiles) { o[name] = data } }
	meta := func(key string, v any) func(memoryFiles) {
		return func(o memoryFiles) { o.edit("metadata.json", map[string]any{key: v}) }
	}
	nan := append([]float32{}, f.centroids...)
	for _, c := range []struct {
		name    string
		edit    func(memoryFiles)
		kind    error
		message string
	}{
		{"empty folder", func(o memoryFiles) { clear(o) }, ErrNotIndex, ""},
		{"no metadata", func(o memoryFiles) { delete(o, "metadata.json") }, ErrBroken, "metadata.json is missing"},
		{"no num_chunks", meta("num_chunks", nil), ErrBroken, "num_chunks"},
		{"negative num_chunks", meta("num_chunks", -1), ErrBroken, "num_chunks is -1"},
		{"too many chunks", meta("num_chunks", 1e15), ErrBroken, "doclens.3.json is missing"},
		{"text for a number", meta("nbits", "2"), ErrBroken, "nbits"},
		{"binary", meta("binary", true), ErrUnsupported, "binary"},
		{"ternary", meta("ternary", true), ErrUnsupported, "ternary"},
		{"three bits", meta("nbits", 3), ErrUnsupported, "3 bits"},
		{"other bits", meta("nbits", 4), ErrBroken, "4 bucket weights"},
		{"metadata cut", set("metadata.json", []byte(`{"num_chunks": 1`)), ErrBroken, "metadata.json"},
		{"both engines", set("centroids.pt", nil), ErrBroken, "both"},
		{"warp", set("codes.compacted.pt", nil), ErrUnsupported, "WARP"},
		{"code too large", set("2.codes.npy", npy("<i8", "(4,)", 64, 0, raw("<i8", []int{0, 1, 4, 0}))), ErrBroken, "2.codes.npy: token 2 has code 4"},
		{"code negative", set("0.codes.npy", npy("<i4", "(3,)", 64, 0, raw("<i4", []int{0, -1, 0}))), ErrBroken, "0.codes.npy: token 1 has code -1"},
		{"float codes", set("0.codes.npy", npy("<f4", "(3,)", 64, 0, make([]byte, 12))), ErrBroken, "0.codes.npy"},
		{"shard missing", func(o memoryFiles) { delete(o, "2.residuals.npy") }, ErrBroken, "2.residuals.npy is missing"},
		{"all shards missing", func(o memoryFiles) { f.merge(o); delete(o, "merged_codes.npy") }, ErrBroken, "merged_codes.npy is missing"},
		{"merged too short", func(o memoryFiles) {
			f.merge(o)
			o["merged_codes.npy"] = npy("<i8", "(6,)", 64, 0, make([]byte, 48))
		}, ErrBroken, "6 rows, the document lengths add to 7"},
		{"manifest of other rows", func(o memoryFiles) {
			f.merge(o)
			o.json("merged_codes.manifest.json", map[string]any{"chunks": map[string]any{
				"0.codes.npy": map[string]any{"rows": 4}, "2.codes.npy": map[string]any{"rows": 3}}})
		}, ErrBroken, "0.codes.npy has 4 rows"},
		{"residual columns", set("0.residuals.npy", npy("|u1", "(3, 3)", 64, 0, make([]byte, 9))), ErrBroken, "3 bytes a token"},
		{"residual rows", set("0.residuals.npy", npy("|u1", "(2, 2)", 64, 0, make([]byte, 4))), ErrBroken, "2 rows"},
		{"residual type", set("0.residuals.npy", npy("<i4", "(3, 2)", 64, 0, make([]byte, 24))), ErrBroken, "is <i4 [3 2]"},
		{"lengths of other rows", func(o memoryFiles) { o.json("doclens.0.json", []int{2, 0, 2}) }, ErrBroken, "add to 4"},
		{"negative length", func(o memoryFiles) { o.json("doclens.0.json", []int{4, -1}) }, ErrBroken, "document 1 has length -1"},
		{"huge length", set("doclens.0.json", []byte("[4294967296]")), ErrBroken, "document 0"},
		{"null length", set("doclens.0.json", []byte("[2, null, 1]")), ErrBroken, "document 1"},
		{"lengths cut", set("doclens.0.json", []byte("[2, 0")), ErrBroken, "doclens.0.json"},
		{"lengths no array", set("doclens.0.json", []byte("{}")), ErrBroken, "not a JSON array"},
		{"lengths twice", set("doclens.0.json", []byte("[2,0,1][]")), ErrBroken, "after the array"},
		{"centroid not finite", func(o memoryFiles) {
			b := raw("<f4", nan)
			copy(b[4*9:], []byte{0, 0, 0xc0, 0x7f})
			o["centroids.npy"] = npy("<f4", "(4, 8)", 64, 0, b)
		}, ErrBroken, "centroid 1, dimension 1 is NaN"},
		{"no centroids", set("centroids.npy", npy("<f4", "(0, 8)", 64, 0, nil)), ErrBroken, "centroids.npy"},
		{"flat centroids", set("centroids.npy", npy("<f4", "(32,)", 64, 0, make([]byte, 128))), ErrBroken, "2 dimensions"},
		{"column-major", func(o memoryFiles) {
			o["centroids.npy"] = []byte(strings.Replace(string(o["centroids.npy"]), "False", "True ", 1))
		}, ErrBroken, "Fortran order"},
		{"objects", set("centroids.npy", npy("|O", "(4, 8)", 64, 0, []byte("cos\nsystem\n."))), ErrBroken, "pickles, which are never read"},
		{"npy cut", func(o memoryFiles) { o["centroids.npy"] = o["centroids.npy"][:190] }, ErrBroken, "cut short"},
		{"npy header cut", func(o memoryFiles) { o["centroids.npy"] = o["centroids.npy"][:50] }, ErrBroken, "centroids.npy"},
		{"npy shape overflow", set("centroids.npy", npy("<f4", "(4611686018427387904, 8)", 64, 0, nil)), ErrBroken, "more than any file can hold"},
		{"cutoffs decrease", set("bucket_cutoffs.npy", npy("<f4", "(3,)", 64, 0, raw("<f4", []float32{0, 1, .5}))), ErrBroken, "bucket cutoff 2"},
		{"too few weights", set("bucket_weights.npy", npy("<f4", "(3,)", 64, 0, make([]byte, 12))), ErrBroken, "3 bucket weights"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := f.nextPlaid()
			c.edit(o)
			x, err := Open(o.write(t, t.TempDir()))
			if err == nil {
				err = streamError(x)
			}
			require.ErrorIs(t, err, c.kind)
			require.ErrorContains(t, err, c.message)
			require.NotErrorIs(t, err, fs.ErrNotExist, "the folder is there")
		})
	}
	_, err := Open(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o666))
	_, err = Open(file)
	require.ErrorIs(t, err, ErrNotIndex)
	o := f.nextPlaid()
	delete(o, "0.codes.npy")
	dir := o.write(t, t.TempDir())
	require.NoError(t, os.Mkdir(filepath.Join(dir, "0.codes.npy"), 0o777))
	_, err = Open(dir)
	require.ErrorIs(t, err, ErrBroken)
	require.ErrorContains(t, err, "not a regular file")
}

func TestCodecWarnings(t *testing.T) {
	f := newFixture()
	f.centroids[8+1] = 2
	f.weights = make([]float32, 4)
	x := reopen(t, f.nextPlaid().write(t, t.TempDir()))
	require.Len(t, x.Warnings, 2)
	require.Contains(t, x.Warnings[0], "1 of 4 centroids are not unit vectors, first 1")
	require.Contains(t, x.Warnings[1], "all bucket weights are zero")
}

func TestVerifyIVFDifferences(t *testing.T) {
	f := newFixture()
	items, lengths := f.lists()
	for _, c := range []struct {
		name           string
		items, lengths []int64
		want           []string
	}{
		{"right", items, lengths, nil},
		{"short", items[:3], lengths[:1], []string{"1 lengths, there are 4", "centroid 1 has no list, 2", "centroid 3 has no list, 1"}},
		{"long", append(append([]int64{}, items...), 1), append(append([]int64{}, lengths...), 1), []string{"5 lengths", "centroid 4 does not exist"}},
		{"a posting lost", []int64{0, 3, 0, 4, 3}, []int64{2, 2, 0, 1}, []string{"centroid 0 lacks 1 postings, first 2"}},
		{"a posting too many", []int64{0, 2, 3, 0, 2, 4, 3}, []int64{3, 3, 0, 1}, []string{"centroid 1 has 1 postings too many, first 2"}},
		{"order", []int64{0, 3, 2, 0, 4, 3}, lengths, []string{"centroid 0 has a list that is not ascending"}},
		{"twice", []int64{0, 2, 3, 3, 0, 4, 3}, []int64{4, 2, 0, 1}, []string{"centroid 0 has a list that is not ascending"}},
		{"entries left over", append(append([]int64{}, items...), 9), lengths, []string{"7 entries, the lists end at 6"}},
		{"length past the end", items, []int64{3, 2, 0, 5}, []string{"centroid 3 has a list of length 5, 1 entries", "centroid 3 has no list", "6 entries, the lists end at 5"}},
		{"negative length", items, []int64{3, 2, -1, 1}, []string{"centroid 2 has a list of length -1", "centroid 3 has no list", "6 entries, the lists end at 5"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := f.nextPlaid()
			o["ivf.npy"] = npy("<i4", fmt.Sprintf("(%d,)", len(c.items)), 64, 0, raw("<i4", c.items))
			o["ivf_lengths.npy"] = npy("<i8", fmt.Sprintf("(%d,)", len(c.lengths)), 64, 0, raw("<i8", c.lengths))
			x := reopen(t, o.write(t, t.TempDir()))
			got, err := x.VerifyIVF(context.Background())
			require.NoError(t, err)
			require.Len(t, got, len(c.want))
			for i, want := range c.want {
				require.Contains(t, got[i], want)
			}
		})
	}

	// ColBERT's older lists hold tokens: 0, 2, 5 / 1, 6 / none / 3, 4.
	o := f.colbert(t)
	delete(o, "ivf.pid.pt")
	o["ivf.pt"] = torchtest.File(t,
		torchtest.Tensor{Class: "LongStorage", Shape: []int{7}, Data: raw("<i8", []int{0, 2, 5, 1, 6, 3, 4})},
		torchtest.Tensor{Class: "LongStorage", Shape: []int{4}, Data: raw("<i8", []int{3, 2, 0, 2})})
	got, err := reopen(t, o.write(t, t.TempDir())).VerifyIVF(context.Background())
	require.NoError(t, err)
	require.Empty(t, got)

	delete(o, "ivf.pt")
	x := reopen(t, o.write(t, t.TempDir()))
	got, err = x.VerifyIVF(context.Background())
	require.NoError(t, err)
	require.Equal(t, []string{"there are no inverted lists"}, got)
}

func TestUnchanged(t *testing.T) {
	f := newFixture()
	for name, change := range map[string]func(path string) error{
		"touched": func(p string) error { return os.Chtimes(p, time.Time{}, time.Now().Add(time.Hour)) }, // not at all
		"written": func(p string) error {
			data, err := os.ReadFile(p)
			data[len(data)-1] ^= 1
			return errors.Join(err, os.WriteFile(p, data, 0o666), os.Chtimes(p, time.Time{}, time.Now().Add(time.Hour)))
		},
		"longer":  func(p string) error { return os.Truncate(p, 1<<12) },
		"removed": os.Remove,
		"replaced": func(p string) error {
			info, err := os.Stat(p)
			data, err2 := os.ReadFile(p)
			data[len(data)-1] ^= 1
			err3 := os.WriteFile(p+".new", data, 0o666)
			err4 := os.Chtimes(p+".new", time.Time{}, info.ModTime())
			return errors.Join(err, err2, err3, err4, os.Rename(p+".new", p))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := f.nextPlaid().write(t, t.TempDir())
			x := reopen(t, dir)
			require.NoError(t, x.Unchanged())
			require.NoError(t, change(filepath.Join(dir, "2.codes.npy")))
			if name == "touched" {
				require.NoError(t, x.Unchanged())
				return
			}
			require.ErrorIs(t, x.Unchanged(), ErrChanged)
			require.ErrorContains(t, x.Unchanged(), "2.codes.npy")
		})
	}
}

func TestBlocksEnds(t *testing.T) {
	dir := newFixture().nextPlaid().write(t, t.TempDir())
	x := reopen(t, dir)
	n := 0
	for range x.Blocks(context.Background(), 1) {
		n++
		break
	}
	require.Equal(t, 1, n)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	n = 0
	var last error
	for _, err := range x.Blocks(ctx, 2) {
		n++
		last = err
		cancel()
	}
	require.Equal(t, 2, n)
	require.ErrorIs(t, last, context.Canceled)
	_, err := x.VerifyIVF(ctx)
	require.ErrorIs(t, err, context.Canceled)

	for _, err := range x.Blocks(context.Background(), 0) {
		require.ErrorContains(t, err, "want at least 1")
	}
}

// TestReadOnlyFolder takes the permissions away; hashes in the other tests
// cover systems where the user may write all the same.
func TestReadOnlyFolder(t *testing.T) {
	dir := newFixture().nextPlaid().write(t, t.TempDir())
	require.NoError(t, os.Chmod(dir, 0o555))
	t.Cleanup(func() { os.Chmod(dir, 0o755) })
	if os.WriteFile(filepath.Join(dir, "probe"), nil, 0o666) == nil {
		os.Remove(filepath.Join(dir, "probe"))
		t.Skip("this user may write to read-only folders")
	}
	require.Equal(t, newFixture().want(), collect(t, reopen(t, dir), 5))
}
