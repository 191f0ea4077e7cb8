package node

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"

	"github.com/plaid-ir/plaid/cluster/topology"
)

// delivered is an order that was given out so often.
type delivered struct {
	jetstream.Msg
	times uint64
}

func (d delivered) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{NumDelivered: d.times}, nil
}

// A build that fails all the time is tried more and more seldom, and the lease has its last try.
func TestFailingBuildsAreTriedMoreSeldom(t *testing.T) {
	n := &Node{c: Config{BuildWait: 30 * time.Second}, announce: make(chan struct{}, 1)}
	var waits []time.Duration
	for _, times := range []uint64{1, 2, 3, 5, 6, 70} {
		waits = append(waits, n.failing(delivered{times: times}, &BuildOrder{Collection: "wiki", Shard: 3}, errOrder))
	}
	assert.Equal(t, []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute}, waits)
	assert.Equal(t, []uint64{70}, func() (tries []uint64) {
		for _, f := range n.inVain {
			tries = append(tries, f.Tries)
		}
		return tries
	}())
	for shard := range 2 * maxFailing {
		n.failing(delivered{times: 1}, &BuildOrder{Collection: "wiki", Shard: shard}, errOrder)
	}
	assert.Len(t, n.inVain, maxFailing)
	assert.False(t, (&topology.FailedBuild{Collection: "wiki"}).Awaited(&topology.Map{Collection: "wiki"}))
}
