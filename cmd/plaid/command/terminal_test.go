package command

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cmd/plaid/daemon"
)

// Who starts a service, or the tools of agents, at a terminal is told how to go on.
func TestAtTerminal(t *testing.T) {
	var out, errs bytes.Buffer
	asked := streams{in: strings.NewReader(""), out: &out, err: &errs, errWidth: 80, interactive: true}
	require.Zero(t, run(t.Context(), []string{"mcp", "--data", t.TempDir()}, asked))
	require.Contains(t, errs.String(), "waiting for an agent (an MCP client) on stdin")
	require.Contains(t, errs.String(), `{"mcpServers":{"plaid":{"args":["mcp","--data",`)
	require.Empty(t, out.String())
	errs.Reset()
	asked.interactive = false
	asked.in = strings.NewReader("")
	require.Zero(t, run(t.Context(), []string{"mcp", "--data", t.TempDir()}, asked))
	require.Empty(t, errs.String())

	// Words that are no message are told so, and are no end.
	asked.in = strings.NewReader("hello\n")
	require.Zero(t, run(t.Context(), []string{"mcp", "--data", t.TempDir()}, asked))
	require.Contains(t, out.String(), "no MCP message")

	ctx, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	says, lines := io.Pipe()
	go func() {
		defer lines.Close()
		run(ctx, []string{"serve", "--data", t.TempDir(), "--listen", "127.0.0.1:0"}, streams{in: strings.NewReader(""), out: io.Discard, err: lines, errWidth: 80})
	}()
	text := ""
	for part := make([]byte, 1000); !strings.Contains(text, "/ui\n"); {
		n, err := says.Read(part)
		text += string(part[:n])
		require.NoError(t, err, text)
	}
	require.Regexp(t, `plaid: open http://127\.0\.0\.1:\d+/ui\n`, text)
	end()
	_, _ = io.Copy(io.Discard, says)

	c := daemon.NewConfig()
	require.Equal(t, "http://localhost:8080/ui", pageAt("[::]:8080", c))
	require.Equal(t, "", pageAt("/run/plaid.sock", c))
	c.TLSCert, c.BasePath = "cert.pem", "/plaid"
	require.Equal(t, "https://127.0.0.1:443/plaid/ui", pageAt("127.0.0.1:443", c))

	errs.Reset()
	require.Equal(t, 2, run(t.Context(), []string{"serve", "--data", t.TempDir(), "--listen", "8099"}, streams{in: strings.NewReader(""), out: &out, err: &errs}))
	require.Contains(t, errs.String(), `want HOST:PORT`)
}
