package storage

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// The reader of serialised bitmaps agrees with the library that writes them,
// at every alignment.
func TestPostingListAgreesWithRoaring(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		docs := uint32(rapid.IntRange(1, 300_000).Draw(t, "docs"))
		bm := roaring.New()
		for range rapid.IntRange(0, 6).Draw(t, "pieces") {
			switch lo := rng.Uint32N(docs); rng.IntN(3) {
			case 0:
				bm.AddRange(uint64(lo), uint64(min(docs, lo+rng.Uint32N(90_000)+1)))
			case 1:
				for range rng.IntN(9000) {
					bm.Add(lo + rng.Uint32N(docs-lo))
				}
			default:
				bm.Add(lo)
			}
		}
		if rapid.Bool().Draw(t, "runs") {
			bm.RunOptimize()
		}
		b, err := bm.ToBytes()
		require.NoError(t, err)
		shift := rapid.IntRange(0, 7).Draw(t, "shift")
		at := append(make([]byte, shift), b...)[shift:]
		got, err := PostingList(at).appendDocs(nil, docs)
		require.NoError(t, err)
		want := bm.ToArray()
		require.True(t, slices.Equal(want, got))
	})
}

func TestPostingBlock(t *testing.T) {
	lists := [][]uint32{{1, 5, 9}, nil, {0}}
	block, err := AppendPostings(nil, lists)
	require.NoError(t, err)
	require.NoError(t, checkPostingBlock(block))
	for c := range uint32(PostingBlock) {
		got, err := postingList(block, c).appendDocs(nil, 10)
		require.NoError(t, err)
		if int(c) < len(lists) {
			require.Equal(t, lists[c], got)
		} else {
			require.Empty(t, got)
		}
	}
	_, err = postingList(block, 0).appendDocs(nil, 9)
	require.ErrorIs(t, err, errRoaring, "document 9 of 9")
}

func FuzzPostingList(f *testing.F) {
	for _, bm := range []*roaring.Bitmap{roaring.New(), roaring.BitmapOf(1, 2, 3, 70_000), roaring.BitmapOf(5)} {
		b, err := bm.ToBytes()
		require.NoError(f, err)
		f.Add(b)
		bm.AddRange(10, 100_000)
		bm.RunOptimize()
		b, err = bm.ToBytes()
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		list := PostingList(b)
		docs, err := list.appendDocs(nil, 200_000)
		for i, d := range docs {
			if err == nil && (d >= 200_000 || i > 0 && d <= docs[i-1]) {
				t.Fatalf("document %d of 200,000 is entry %d, after %d", d, i, docs[max(i-1, 0)])
			}
		}
	})
}

func FuzzDocTable(f *testing.F) {
	table := DocTable{First: 3, Lengths: []uint32{4, 0, 2}, IDs: []string{"a", "bc", ""}}
	f.Add(appendDocTable(nil, &table, make([]uint32, 6)))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		table, err := layout.ParseDocTable(b)
		if err != nil {
			return
		}
		if _, err := table.Offsets(); err != nil {
			return
		}
		again, sums := DocTable{First: table.First}, []uint32(nil)
		for i := range table.Count {
			again.Lengths = append(again.Lengths, table.Length(i))
			again.IDs = append(again.IDs, table.ID(i))
			codes, rows := table.Checksums(i)
			sums = append(sums, codes, rows)
		}
		require.Equal(t, b, appendDocTable(nil, &again, sums))
	})
}
