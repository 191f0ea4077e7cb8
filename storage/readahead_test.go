package storage

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSpansAreMergedOverGaps(t *testing.T) {
	a := readAhead{spans: []memorySpan{
		{200 << 10, 201 << 10},
		{0, 100},
		{100 + maxAheadGap, 50 << 10}, // the largest gap that is read
		{40 << 10, 41 << 10},          // inside of another
		{50<<10 + maxAheadGap + 1, 60 << 10},
	}}
	a.mergeSpans()
	require.Equal(t, []memorySpan{
		{0, 50 << 10}, {50<<10 + maxAheadGap + 1, 60 << 10}, {200 << 10, 201 << 10},
	}, a.spans)
	a.adviseSystem(false) // of nothing that is mapped: the system refuses
	require.Empty(t, a.spans)
	a.adviseSystem(true)
	a.addBytes(nil)
	require.Empty(t, a.spans)
}

// What has passed its checksum is asked for again only where memory is short.
func TestPassedIsNotAskedForAgain(t *testing.T) {
	f, err := Open(context.Background(), writeManyDocs(t, 70), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	v, err := f.Snapshot()
	require.NoError(t, err)
	defer func() { require.NoError(t, v.Close()) }()

	asked := func(part Arrays, ordinals []uint32, again bool) int {
		a, spans := v.unreadSpans(part, ordinals, true, again)
		require.Empty(t, spans)
		return len(a.spans)
	}
	last := v.state.Docs - 1
	ordinals := []uint32{last, 3, last + 1} // the last does not exist
	chunk, doc, _ := v.Locate(3)
	require.Equal(t, 2, asked(Codes, ordinals, false))
	require.Equal(t, 6, asked(All, ordinals, false), "codes, factors and residuals")
	_, err = v.ChunkFor(chunk, Codes, uint32(doc))
	require.NoError(t, err)
	require.Equal(t, 1, asked(Codes, ordinals, false))
	require.Equal(t, 5, asked(All, ordinals, false))
	_, err = v.ChunkFor(chunk, All, uint32(doc))
	require.NoError(t, err)
	require.Equal(t, 3, asked(All, ordinals, false))
	require.Equal(t, 5, asked(All, ordinals, true))

	lists := func(again bool) int { return len(v.unreadPostings([]uint32{0}, again).spans) }
	require.Equal(t, v.Segments(), lists(false))
	list, err := v.Postings(v.Segments()-1, 0)
	require.NoError(t, err)
	require.NotEmpty(t, list)
	require.Equal(t, v.Segments()-1, lists(false))
	require.Equal(t, v.Segments(), lists(true))
}

func TestShortageEnds(t *testing.T) {
	var s shortageDetector
	require.False(t, s.memoryIsShort())
	s.noteShortage()
	require.True(t, s.memoryIsShort())
	s.shortUntil.Store(int64(time.Since(processStart)) - 1)
	require.False(t, s.memoryIsShort())
}
