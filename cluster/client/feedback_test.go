package client

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/search"
)

// SmallFeedback has feedback take as many messages as there may be for very many centroids.
func SmallFeedback(t testing.TB) {
	codes, ids := maxFeedbackCodes, maxFeedbackIDs
	t.Cleanup(func() { maxFeedbackCodes, maxFeedbackIDs = codes, ids })
	maxFeedbackCodes, maxFeedbackIDs = 3, 4
}

// No message for feedback has more than a megabyte, however many centroids there are.
func TestFeedbackMessages(t *testing.T) {
	codes, docs := slices.Repeat([]uint32{math.MaxUint32}, maxFeedbackCodes), slices.Repeat([]uint64{math.MaxUint32}, maxFeedbackCodes)
	tokens := search.FeedbackTokens(1) // and as many centroids, at most
	for what, m := range map[string]any{
		"frequencies of":  wire.Look{Feedback: &wire.FeedbackLook{Centroids: codes}},
		"frequencies are": wire.Found{Feedback: &wire.FeedbackFound{Docs: docs, Live: math.MaxInt64}},
		"counts are":      wire.Found{Feedback: &wire.FeedbackFound{Centroids: slices.Repeat([]uint32{math.MaxUint32}, tokens), Docs: slices.Repeat([]uint64{100}, tokens)}},
		"documents":       wire.Look{Feedback: &wire.FeedbackLook{IDs: []string{strings.Repeat("d", maxFeedbackIDs)}}},
	} {
		text, err := json.Marshal(m)
		require.NoError(t, err)
		require.Less(t, len(text), 1<<20, what)
	}
}
