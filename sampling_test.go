package plaid_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/encode"
)

// A program's questions are sampled as those of a service are: over passages, whether hits are grouped
// or not, and without those that have a condition.
func TestSampling(t *testing.T) {
	ctx := t.Context()
	c := create(t, &plaid.Options{
		Model: model, Passages: &encode.Splitting{Window: 3}, Sampling: collection.Sampling{Rate: 1, Busy: 1},
	})
	_, err := c.Add(ctx, plaid.Document{ID: "a", Text: "owls hunt at night and sleep by day", Payload: []byte(`{"n":1}`)},
		plaid.Document{ID: "b", Text: "dogs bark", Payload: []byte(`{"n":2}`)})
	require.NoError(t, err)
	for _, q := range []plaid.Query{
		{Text: "owls"}, {Text: "dogs at night", Group: "sum"}, {Text: "owls", Where: "n = 1"}, {Text: "owls", Keywords: true},
	} {
		_, err := c.Search(ctx, q)
		require.NoError(t, err)
	}
	var st collection.Stats
	require.Eventually(t, func() bool {
		st, err = c.Stats(ctx)
		require.NoError(t, err)
		return st.Sampled != nil && st.Sampled.Measured == 2
	}, time.Minute, time.Millisecond)
	require.EqualValues(t, 2, st.Sampled.Offered)
	require.Equal(t, 1., st.Sampled.Classes[0].Recall)
	require.NoError(t, c.Close())
	_, err = c.Stats(ctx)
	require.ErrorIs(t, err, plaid.ErrClosed)

	_, err = plaid.Open(ctx, "nowhere.plaid", &plaid.Options{Sampling: collection.Sampling{Rate: 2}})
	require.ErrorIs(t, err, plaid.ErrOption)
}
