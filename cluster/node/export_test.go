package node

import "testing"

// FarFrom has replicas begin with the object of their shard from a few entries on.
func FarFrom(t testing.TB, entries uint64) {
	before := farEntries
	t.Cleanup(func() { farEntries = before })
	farEntries = entries
}
