package keywords

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// descriptors is how many files this process has open; 0 where that is not to be known.
func descriptors() int {
	names, _ := os.ReadDir("/proc/self/fd")
	return len(names)
}

// shut closes a file, and returns what queries found in it, and its bytes.
func shut(t *testing.T, kw *Index, queries []Query) (found [][]Hit, file []byte) {
	for _, q := range queries {
		found = append(found, search1(t, kw, q))
	}
	require.NoError(t, kw.Close())
	file, err := os.ReadFile(kw.path)
	require.NoError(t, err)
	return found, file
}

// Whatever bit of a file is flipped, a search says that the file is damaged or has the
// same answers as before, and a Sync makes it right. One bit of some is tried, or, with
// PLAID_TEST_FLIPS=all in the environment, every one.
func TestEveryBit(t *testing.T) {
	smallLimits(t)
	path := filepath.Join(ramDir(t), "x.plaid")
	var payloads [][]byte
	for i := range 12 {
		payloads = append(payloads, fmt.Appendf(nil, "common w%d w%d w%d", i%2, i%5, i))
	}
	ix := build(t, path, payloads...)
	kw := open(t, Path(path), &Options{Memory: 1000})
	syncWith(t, kw, ix)
	_, _, err := ix.Delete(context.Background(), []string{"d3"})
	require.NoError(t, err)
	syncWith(t, kw, ix)
	_, err = ix.Add(context.Background(), documents(t, 12, texts("common w0 w2 w12", "w0 w1")...), nil)
	require.NoError(t, err)
	syncWith(t, kw, ix)
	queries := []Query{{Text: "common w1 w12"}, {Text: `"common w0" +w1* -w11`, Mode: Expression}}
	want, good := shut(t, kw, queries)

	stride := 997
	if os.Getenv("PLAID_TEST_FLIPS") == "all" {
		stride = 1
	}
	open, met, wrong := descriptors(), map[string]int{}, 0
	for bit := 0; bit < 8*len(good); bit += stride {
		for _, write := range []bool{false, true} {
			if err := os.WriteFile(Path(path), good, 0o666); err != nil { // in the same file, the lock of which must be free
				t.Fatal(err)
			}
			flip(t, Path(path), bit)
			kw, err := Open(context.Background(), Path(path), &Options{Write: write})
			require.NoError(t, err, "bit %d", bit)
			find := func() error {
				for i, q := range queries {
					q.K = 1000
					hits, err := kw.Search(context.Background(), q)
					if err != nil {
						return err
					}
					if fmt.Sprint(want[i]) != fmt.Sprint(hits) {
						wrong++
						t.Errorf("bit %d: %q: want %v, have %v", bit, q.Text, want[i], hits)
					}
				}
				return nil
			}
			switch err := find(); {
			case err == nil:
				met["found"]++
			case errors.Is(err, ErrDamaged):
				met["damaged"]++
			default:
				require.ErrorIs(t, err, ErrNotSynced, "bit %d", bit)
				met["not there"]++
			}
			syncWith(t, kw, ix)
			if err := find(); err != nil {
				require.ErrorIs(t, err, ErrDamaged, "bit %d", bit)
				met["damaged after a Sync"]++
				syncWith(t, kw, ix)
				require.NoError(t, find(), "bit %d", bit)
			}
			require.NoError(t, kw.Close())
			require.Less(t, wrong, 5)
		}
	}
	t.Logf("%d bytes: %v", len(good), met)
	require.NotZero(t, met["damaged"])
	require.NotZero(t, met["not there"])
	require.Equal(t, open, descriptors())
}
