package interop

import (
	"archive/zip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/torchtest"
)

// TestBrokenFolderPT: faults of .pt files name the file.
func TestBrokenFolderPT(t *testing.T) {
	f := newFixture()
	for name, c := range map[string]struct {
		file    string
		data    []byte
		kind    error
		message string
	}{
		"one bucket tensor": {"buckets.pt", torchtest.File(t, torchtest.Tensor{Class: "FloatStorage", Shape: []int{3}, Data: make([]byte, 12)}), ErrBroken, "holds 1 tensors, want 2"},
		"wrong class":       {"2.codes.pt", torchtest.File(t, torchtest.Tensor{Class: "FloatStorage", Shape: []int{4}, Data: make([]byte, 16)}), ErrBroken, "2.codes.pt is <f4 [4]"},
		"system":            {"centroids.pt", torchtest.Archive(t, zip.Store, map[string][]byte{"x/data.pkl": []byte("cos\nsystem\n.")}), ErrUnsupported, "centroids.pt"},
		"short":             {"0.residuals.pt", torchtest.File(t, torchtest.Tensor{Class: "ByteStorage", Shape: []int{2, 2}, Data: make([]byte, 4)}), ErrBroken, "0.residuals.pt has 2 rows"},
	} {
		o := f.colbert(t)
		o[c.file] = c.data
		_, err := Open(o.write(t, t.TempDir()))
		require.ErrorIs(t, err, c.kind, name)
		require.ErrorContains(t, err, c.message, name)
	}
}

// FuzzOpenNPYFolder replaces one file of a good folder.
func FuzzOpenNPYFolder(f *testing.F) {
	names := []string{"metadata.json", "doclens.0.json", "centroids.npy", "0.codes.npy", "2.residuals.npy", "ivf.npy", "ivf_lengths.npy"}
	good := newFixture().nextPlaid()
	for i, name := range names {
		f.Add(uint8(i), good[name])
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		o := newFixture().nextPlaid()
		o[names[int(which)%len(names)]] = data
		x, err := Open(o.write(t, t.TempDir()))
		if err != nil {
			if !isContentError(err) {
				t.Fatalf("error of no kind: %v", err)
			}
			return
		}
		tokens := int64(0)
		for b, err := range x.Blocks(t.Context(), 3) {
			if err != nil {
				if !isContentError(err) {
					t.Fatalf("error of no kind: %v", err)
				}
				return
			}
			tokens += int64(len(b.Codes))
		}
		if tokens != x.Tokens {
			t.Fatalf("%d tokens of %d", tokens, x.Tokens)
		}
		if _, err := x.VerifyIVF(t.Context()); err != nil && !isContentError(err) {
			t.Fatal(err)
		}
	})
}
