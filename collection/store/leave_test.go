package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// A change whose condition takes long ends with who asked for it, as long as nothing is
// changed: the writer goes on with the next one.
func TestConditionsOfLeavers(t *testing.T) {
	c := declare(t, openStore(t, t.TempDir(), nil), "docs", collection.Config{})
	var docs []collection.Document
	for i := range 500 {
		d := randomDoc(fmt.Sprint("d", i), 1)
		d.Metadata = json.RawMessage(`{"t":"` + strings.Repeat("cats and dogs ", 200) + `","n":1}`)
		docs = append(docs, d)
	}
	_, err := c.Update(t.Context(), docs, collection.UpdateOptions{})
	require.NoError(t, err)
	// This is a minute of work.
	expr, err := condition.Parse(strings.Repeat(`t LIKE '%a%b%c%d%e%zzz' OR `, 4000) + `n = -1`)
	require.NoError(t, err)
	where, err := expr.Bind()
	require.NoError(t, err)
	long := collection.Selection{Where: where}
	for name, change := range map[string]func(ctx context.Context) (int, error){
		"delete": func(ctx context.Context) (int, error) { return c.Delete(ctx, long) },
		"metadata update": func(ctx context.Context) (int, error) {
			return c.UpdateMetadata(ctx, long, map[string]json.RawMessage{"n": json.RawMessage("2")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			left := make(chan error, 1)
			go func() { _, err := change(ctx); left <- err }()
			require.Eventually(t, func() bool { // it has begun
				c.queue.mu.Lock()
				defer c.queue.mu.Unlock()
				return c.queue.running > 0
			}, time.Minute, time.Millisecond)
			leave()
			select {
			case err := <-left:
				require.ErrorIs(t, err, context.Canceled)
			case <-time.After(20 * time.Second):
				t.Fatal("the writer goes on")
			}
			n, err := c.Delete(t.Context(), collection.Selection{IDs: []string{"none"}})
			require.NoError(t, err)
			require.Zero(t, n)
		})
	}
	st, err := c.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 500, st.Documents)
}
