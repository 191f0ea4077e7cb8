//go:build unix

package reliability

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/bus"
)

// A log that is cut off is what it was up to some entry, and then what others have written since.
func TestCut(t *testing.T) {
	ctx := t.Context()
	s, err := bus.StartServer(ctx, bus.ServerOptions{Name: "one", Dir: filepath.Join(t.TempDir(), "nats")})
	require.NoError(t, err)
	defer s.Close()
	conn, err := s.Connect("operator")
	require.NoError(t, err)
	defer conn.Close()
	b, err := bus.Setup(ctx, conn, 1, time.Minute)
	require.NoError(t, err)
	for _, c := range []struct {
		last    int
		foreign uint64 // before which entry somebody else writes; 0: nobody does
		purge   bool   // in place of writing, passes over the number, as healing does
		want    []string
	}{
		{2, 0, false, []string{"4", "5", "6", "7"}},
		{0, 0, false, []string{"4", "5", "6", "7", "8", "9"}},
		{0, 6, false, []string{"4", "5", "new"}},
		{0, 9, false, []string{"4", "5", "6", "7", "8", "new"}},
		{3, 5, true, nil},
	} {
		id := fmt.Sprint("wiki-", c.last, "-", c.foreign)
		require.NoError(t, b.MakeLog(ctx, id, 0, 3))
		for n := 4; n < 10; n++ {
			_, err := b.JS.Publish(ctx, bus.LogSubject(id, 0), fmt.Append(nil, n))
			require.NoError(t, err)
		}
		require.True(t, cut(ctx, b, id, 0, c.last, func(n uint64) {
			if n != c.foreign {
				return
			}
			_, err := b.JS.Publish(ctx, bus.LogSubject(id, 0), []byte("new"))
			require.NoError(t, err)
			if c.purge {
				stream, err := b.JS.Stream(ctx, bus.LogStream(id, 0))
				require.NoError(t, err)
				require.NoError(t, stream.Purge(ctx))
			}
		}))
		stream, err := b.JS.Stream(ctx, bus.LogStream(id, 0))
		require.NoError(t, err)
		state := stream.CachedInfo().State
		var has []string
		for n := state.FirstSeq; n <= state.LastSeq; n++ {
			msg, err := stream.GetMsg(ctx, n)
			require.NoError(t, err)
			has = append(has, string(msg.Data))
		}
		require.Equal(t, c.want, has, "%+v", c)
	}
}
