package node

import (
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// A replica that is never idle knows how much its log has by the entries that come: it does not
// look at the log meanwhile.
func TestBehindWhileEntriesCome(t *testing.T) {
	n := &Node{log: slog.New(slog.DiscardHandler), ctx: t.Context()}
	r := newReplica(n, key{"wiki@1", 1, 0})
	r.applied = 4
	msg := &nats.Msg{Sub: &nats.Subscription{}, Reply: "$JS.ACK.LOG.consumer.1.5.5.1700000000000000000.37", Data: []byte("no batch")}
	next, latest := uint64(5), time.Time{}
	require.ErrorIs(t, r.take(&puller{}, msg, &next, &latest), errNotOpen, "it comes to no end")
	require.EqualValues(t, 5+37-4, r.state().Behind)
}
