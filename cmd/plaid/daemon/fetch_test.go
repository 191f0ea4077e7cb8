package daemon

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/hub"
)

// A long download is a line of the log every ten seconds, and a short one none.
func TestLogFetching(t *testing.T) {
	var log bytes.Buffer
	at := time.Unix(1000, 0)
	listen := logFetching(slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return at })
	for done := range int64(25) {
		listen(hub.Progress{Model: "org/model@c", File: "model.safetensors", Done: done, Total: 25})
		at = at.Add(time.Second)
	}
	require.Equal(t, 2, strings.Count(log.String(), "\n"))
	require.Contains(t, log.String(), `msg="fetching the model" model=org/model@c file=model.safetensors bytes=10 of=25`)
}
