package vectors

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/countdown"
)

// Whatever is read line by line when a collection is opened can be broken off: that
// is no fault of the file.
func TestOpenCancelled(t *testing.T) {
	var lines, ids, payload strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&lines, `{"_id": "d%d", "vectors": [[0.125, 0.25, 0.5, 1]]}`+"\n", i)
		fmt.Fprintf(&ids, "other %d %s\n", i, strings.Repeat("x", 40))
		fmt.Fprintf(&payload, `{"_id": "d%d", "text": "some text of it that fills the lines of this file"}`+"\n", i)
	}
	files := Files{
		Vectors: tempFile(t, "d.jsonl", []byte(lines.String())),
		Payload: tempFile(t, "p.jsonl", []byte(payload.String())),
	}
	withIDs := files
	withIDs.IDs, withIDs.Payload = tempFile(t, "ids.txt", []byte(ids.String())), ""
	for what, open := range map[string]func(context.Context) error{
		"lines and payload": func(ctx context.Context) error { return closed(Open(ctx, files)) },
		"lines and ids":     func(ctx context.Context) error { return closed(Open(ctx, withIDs)) },
		"payloads":          func(ctx context.Context) error { return closed(OpenPayloads(ctx, files.Payload)) },
	} {
		n := 0
		for ; ; n++ {
			err := open(countdown.New(n))
			if err == nil {
				break
			}
			require.ErrorIs(t, err, context.Canceled, what)
			require.NotErrorIs(t, err, ErrFormat, what)
			require.NotErrorIs(t, err, ErrID, what)
		}
		require.Greater(t, n, 3, what)
	}
}

func closed[S interface{ Close() error }](s S, err error) error {
	if err != nil {
		return err
	}
	return s.Close()
}
