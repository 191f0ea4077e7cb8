package storage

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestNumberOfChecksum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Uint32().Draw(t, "number")
		key := rapid.SampledFrom(chunkKeys[:]).Draw(t, "key")
		value := rapid.SliceOf(rapid.Byte()).Draw(t, "value")
		require.Equal(t, number, numberOf(key, value, checksum(keyIn(number, key), value)))
	})
}

// The counts of a leaf page follow from where its keys are.
func TestCountByLayout(t *testing.T) {
	path := writeTestIndex(t)
	w, err := OpenWreck(context.Background(), path, WreckOptions{})
	require.NoError(t, err)
	require.Empty(t, w.Faults())
	require.Equal(t, 1, w.Chunks())
	for _, l := range append(w.finds.ids, w.finds.payload...) {
		elements, err := w.elements(l)
		require.NoError(t, err)
		page := make([]byte, l.end-l.at)
		_, _ = w.file.ReadAt(page, l.at)
		n := int64(len(elements))
		for _, wrong := range []int64{0, n - 1, n + 1, n + 256} {
			if n > 1 {
				require.Equal(t, n, countByLayout(page, wrong))
			}
		}
	}
	require.NoError(t, w.Close())
}
