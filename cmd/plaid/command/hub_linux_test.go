package command

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/hubtest"
)

// On a terminal a download is shown in the line of other progress.
func TestFetchOnTerminal(t *testing.T) {
	server := hubtest.New()
	t.Cleanup(server.Close)
	_, err := server.AddFolder("org/nano", "main", "../../../docs/examples/quickstart/colbert-nano")
	require.NoError(t, err)
	t.Setenv("HF_ENDPOINT", server.URL)
	t.Setenv("HF_HUB_CACHE", t.TempDir())
	t.Setenv("HF_HUB_OFFLINE", "")
	code, text := terminal(t, "model", "org/nano", "--fetch")
	require.Equal(t, exitOK, code, text)
	require.Contains(t, text, "\rfetch tokenizer.json 0%, 0 B of 200.8 KiB")
	require.Regexp(t, `\rfetch model.safetensors \d+%, [\d.]+ \w+ of 8.1 MiB`, text)
	lines := screen(t, text)
	require.Regexp(t, "^org/nano@[0-9a-f]{40}: bert, 4 layers", lines[0])
}
