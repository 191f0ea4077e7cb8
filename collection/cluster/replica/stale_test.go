package replica

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection/cluster/journal"
	"github.com/plaid-ir/plaid/internal/testing/objectstest/memory"
	"github.com/plaid-ir/plaid/storage"
)

// A change whose entry was put in the place of one that was cut, by a writer that slept, is not taken for one that
// is in the log when it is sent again, and neither is one that the cut entry may have had taken for new.
func TestStaleEntryIsNotFound(t *testing.T) {
	s := memory.New()
	awake, sleeper := openReplica(t, s, t.TempDir(), shardOf(flat)), openReplica(t, s, t.TempDir(), shardOf(flat))
	for i := range 3 {
		_, err := put1(t, awake, Batch{}, fmt.Sprint(i))
		require.NoError(t, err)
	}
	require.NoError(t, sleeper.Poll(t.Context()))
	_, err := put1(t, awake, Batch{ID: "cut"}, "x")
	require.NoError(t, err)
	for i := range 3 {
		_, err := put1(t, awake, Batch{}, fmt.Sprint("after", i))
		require.NoError(t, err)
	}
	require.NoError(t, awake.Checkpoint(t.Context()))
	s.AdvanceClock(3 * time.Hour)
	log := journal.New(s, "notes.x1", 0, journal.Options{})
	_, err = log.Cut(t.Context(), 5)
	require.NoError(t, err)

	_, err = put1(t, sleeper, Batch{ID: "late", After: 3}, "late") // entry 4 is free
	_, docs := content(t, awake, 0)
	if err == nil {
		require.Contains(t, docs, "late")
	} else {
		require.NotContains(t, docs, "late")
	}
	other := openReplica(t, s, t.TempDir(), shardOf(flat))
	_, err = put1(t, other, Batch{ID: "late", After: 3, Sent: true}, "late")
	require.ErrorIs(t, err, storage.ErrOutcomeUnknown)
	_, err = put1(t, other, Batch{ID: "cut", After: 3, Sent: true}, "x")
	require.ErrorIs(t, err, storage.ErrOutcomeUnknown, "it may have been done, or not")
	_, docs = content(t, other, 0)
	require.Len(t, docs, 7)
}
