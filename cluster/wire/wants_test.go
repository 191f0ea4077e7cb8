package wire

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// What few searches ask for, and what hits have for it, comes as it was sent; cut messages do not.
func TestWants(t *testing.T) {
	q := &Query{ID: NewID(), Collection: "wiki", Generation: 1, Left: time.Second, Shards: []ShardAt{{1, 2}}, Dim: 2, Vectors: []float32{1, 2}, K: 3, Wants: &Wants{Group: search.GroupSum, Passages: 2, Matches: true}}
	msg, err := q.Encode()
	require.NoError(t, err)
	got, err := DecodeQuery(msg)
	require.NoError(t, err)
	require.Equal(t, q, got)
	passage := search.Hit{ID: "a#1", Ordinal: 7, Score: 1.25, Payload: search.Payload("no JSON"), Passage: &vectors.Passage{Of: "a", Number: 1, End: 3}, Tokens: 4, Matches: []search.Match{{QueryToken: 1, Score: .1}}}
	a := &Answer{ID: q.ID, Shards: []ShardState{}, Hits: []Hit{
		{1, search.Hit{ID: "a", Ordinal: 7, Score: 1.25, Passages: []search.Hit{passage, {ID: "a#0", Score: 1}}}}, {1, search.Hit{ID: "b"}},
	}}
	text, err := a.Encode()
	require.NoError(t, err)
	require.Equal(t, search.Payload("no JSON"), a.Hits[0].Passages[0].Payload, "what is encoded stays as it is")
	back, err := DecodeAnswer(text)
	require.NoError(t, err)
	require.Equal(t, a, back)
	for _, n := range []int{1, 4, 20, len(text) / 2} {
		_, err := DecodeAnswer(text[:len(text)-n])
		require.ErrorIs(t, err, ErrMessage)
	}
	require.Error(t, takeDetails(back.Hits, []byte(`[{}]`)))
	require.Error(t, takeDetails(back.Hits, []byte(`[{"passages":[{"id":"x"}]},{}]`)))
}
