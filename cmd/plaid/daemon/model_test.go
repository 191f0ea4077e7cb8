package daemon_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cmd/plaid/daemon"
)

const nano = "../../../docs/examples/quickstart/colbert-nano"

// ask sends a request and reads the answer, once the model is loaded.
func ask(t *testing.T, method, url, body string) (status int, answer map[string]any) {
	t.Helper()
	require.Eventually(t, func() bool {
		r, err := http.NewRequest(method, url, bytes.NewBufferString(body))
		require.NoError(t, err)
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		status, answer = resp.StatusCode, map[string]any{}
		_ = json.Unmarshal(text, &answer) // some answers are a string
		return answer["code"] != "MODEL_LOADING"
	}, time.Minute, 10*time.Millisecond)
	return status, answer
}

// A service whose texts another server encodes finds what one with the model finds.
func TestEncoderServer(t *testing.T) {
	local, _, _ := run(t, nil, "--model", nano)
	remote, _, _ := run(t, nil, "--encoder", "http://"+local, "--encoder-option", "batch=2", "--encoder-option", "api=pylate")
	var scores []any
	for _, address := range []string{local, remote} {
		status, _ := ask(t, "POST", "http://"+address+"/indices", `{"name": "a"}`)
		require.Equal(t, 200, status)
		status, answer := ask(t, "POST", "http://"+address+"/indices/a/update_with_encoding?wait=true", `{"documents": ["cats sleep all day", "dogs bark"], "metadata": [{"_id": "c"}, {"_id": "d"}]}`)
		require.Equal(t, 202, status, answer)
		status, answer = ask(t, "POST", "http://"+address+"/indices/a/search_with_encoding", `{"queries": ["what do dogs do?"]}`)
		require.Equal(t, 200, status, answer)
		result := answer["results"].([]any)[0].(map[string]any)
		require.Equal(t, "d", result["metadata"].([]any)[0].(map[string]any)["_id"])
		scores = append(scores, result["scores"])
	}
	require.Equal(t, scores[0], scores[1])
}

// What says how to encode needs something that encodes, and is checked.
func TestBadModelSettings(t *testing.T) {
	for _, flags := range [][]string{
		{"--encoder", "onnxruntime"}, {"--encoder-option", "graph=x"}, {"--model-settings", "x.json"}, {"--precision", "int8"},
	} {
		_, err := config(t, nil, flags...)
		require.ErrorIs(t, err, daemon.ErrConfig, flags)
	}
	_, err := config(t, nil, "--encoder-option", "graph")
	require.Error(t, err)
	c, err := config(t, []string{"PLAID_SERVE_ENCODER_OPTION=query-prefix=[Q], ,batch=2"}, "--encoder", "http://localhost")
	require.NoError(t, err)
	require.Equal(t, []string{"query-prefix=[Q], ", "batch=2"}, c.EncoderOptions)
	c, err = config(t, nil, "--model", nano, "--encoder", "nosuch")
	require.NoError(t, err)
	require.ErrorContains(t, daemon.Run(t.Context(), c, io.Discard, nil, nil), "nosuch")
}
