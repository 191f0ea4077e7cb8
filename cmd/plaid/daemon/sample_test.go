package daemon_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Flags, environment and file say which questions are sampled, and the service does it.
func TestSampling(t *testing.T) {
	c, err := config(t, nil)
	require.NoError(t, err)
	require.Zero(t, c.Sampling.Rate, "it is off")
	file := filepath.Join(t.TempDir(), "plaid.yaml")
	require.NoError(t, os.WriteFile(file, []byte("sample-rate: 0.5\n"), 0o600))
	c, err = config(t, nil, "--config", file)
	require.NoError(t, err)
	require.InDelta(t, .5, c.Sampling.Rate, 0)
	c, err = config(t, []string{"PLAID_SERVE_SAMPLE_RATE=0.25"}, "--config", file)
	require.NoError(t, err)
	require.InDelta(t, .25, c.Sampling.Rate, 0)
	for _, bad := range []string{"--sample-rate=-1", "--sample-rate=1.5", "--sample-rate=x"} {
		_, err := config(t, nil, bad)
		require.Error(t, err, bad)
	}

	address, _, _ := run(t, nil, "--sample-rate", "1")
	send := func(method, path, body string) string {
		r, err := http.NewRequest(method, "http://"+address+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Less(t, answer.StatusCode, 300, string(text))
		return string(text)
	}
	send("POST", "/indices", `{"name": "pets"}`)
	send("POST", "/indices/pets/update", `{"documents": [{"embeddings": [[1, 0]]}]}`)
	send("POST", "/indices/pets/search", `{"queries": [{"embeddings": [[1, 0]]}]}`)
	require.Eventually(t, func() bool {
		return strings.Contains(send("GET", "/metrics", ""), `plaid_index_sampled_total{index="pets",result="measured"} 1`)
	}, time.Minute, 10*time.Millisecond)
}
