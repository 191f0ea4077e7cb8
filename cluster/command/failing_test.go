package command

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/topology"
)

// Status says of a build that fails why, and when it is tried again, as the node has it that
// tried it last; and no more once the build is given up.
func TestFailingBuildInWords(t *testing.T) {
	m, err := topology.New("wiki", 2, 1, 1, []topology.Member{{Name: "a"}, {Name: "b"}})
	require.NoError(t, err)
	m.Last, m.Next = 3, &topology.Generation{Number: 3, Dim: 8, Start: make([]uint64, 2), Shards: make([]topology.Shard, 2)}
	build := func(shard int, tries uint64, text string) topology.FailedBuild {
		return topology.FailedBuild{Collection: m.ID(), Generation: 3, Shard: shard, Error: text, Tries: tries, Again: time.Now().Add(time.Minute)}
	}
	s := &status{maps: []*topology.Map{m}, Nodes: []*topology.Lease{
		{Node: "a", Failing: []topology.FailedBuild{build(1, 1, "the disk is full"), build(0, 4, "no such object")}},
		{Node: "b", Failing: []topology.FailedBuild{build(1, 2, "no such object")}},
	}}
	var b bytes.Buffer
	s.print(&b)
	assert.Contains(t, b.String(), "wiki: the build of shard 0 of generation 3 has failed 4 times, on a the last time: no such object; it is tried again at ")
	assert.Contains(t, b.String(), "shard 1 of generation 3 has failed 2 times, on b the last time")
	assert.NotContains(t, b.String(), "the disk is full")
	m.Next = nil
	assert.Empty(t, s.failing())
}

// A replica that answers and is far behind its log, or behind others, is not well.
func TestBehindInWords(t *testing.T) {
	m, err := topology.New("wiki", 2, 2, 1, []topology.Member{{Name: "a"}, {Name: "b"}})
	require.NoError(t, err)
	m.Last, m.Current = 1, &topology.Generation{Number: 1, Dim: 8, Start: make([]uint64, 2), Shards: make([]topology.Shard, 2)}
	serving := func(shard int, applied, behind uint64) topology.Serving {
		return topology.Serving{Collection: m.ID(), Generation: 1, Shard: shard, Ready: true, Applied: applied, Behind: behind}
	}
	for _, c := range []struct {
		of    string
		b     []topology.Serving
		words string
	}{
		{"as far as others", []topology.Serving{serving(0, 5000, 0), serving(1, 5000, 10)}, ""},
		{"a little behind", []topology.Serving{serving(0, 4500, 500), serving(1, 5000, 999)}, ""},
		{"it says so itself", []topology.Serving{serving(0, 5000, 3000), serving(1, 5000, 2000)}, "2 shards behind the log, by up to 3000 entries"},
		{"others have more", []topology.Serving{serving(0, 3500, 0), serving(1, 5000, 0)}, "1 shard behind the log, by up to 1500 entries"},
	} {
		s := &status{maps: []*topology.Map{m}, Nodes: []*topology.Lease{
			{Node: "a", Shards: []topology.Serving{serving(0, 5000, 0), serving(1, 5000, 0)}},
			{Node: "b", Shards: c.b},
		}}
		s.furthest = furthestOf(s.Nodes)
		_, _, words := s.stateOf(s.Nodes[0])
		require.Empty(t, words, c.of)
		_, _, words = s.stateOf(s.Nodes[1])
		if c.words == "" {
			require.Empty(t, words, c.of)
		} else {
			require.Equal(t, []string{c.words}, words, c.of)
			require.Contains(t, s.amiss(), "b: "+c.words, c.of)
		}
	}
}

// A collection whose map is of a later program is named, and all is not well.
func TestStrangeMapInWords(t *testing.T) {
	c := clustertest.New(t, 1)
	_, err := c.Bus.Maps.Put(c.Ctx, "later", []byte(`{"format": 1, "collection": "later", "version": 1, "invented": true}`))
	require.NoError(t, err)
	c.Await(func() bool { return len(c.Op.Watcher().Faults()) == 1 })
	s := look(c.Op.Watcher())
	require.False(t, s.Well)
	var b bytes.Buffer
	s.print(&b)
	require.Contains(t, b.String(), "later: this program does not understand its map")
	require.Contains(t, b.String(), "invented")
	require.NoError(t, c.Bus.Maps.Purge(c.Ctx, "later"))
	c.Await(func() bool { return len(c.Op.Watcher().Faults()) == 0 })
	require.True(t, look(c.Op.Watcher()).Well)
}
