package mcp_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/pyenv"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/server/mcp"
)

// addressVariable tells the program that the client starts which service to ask.
const addressVariable = "PLAID_TEST_SERVICE"

func TestMain(m *testing.M) {
	if os.Getenv(testenv.ChildVariable) == "agent" {
		service, err := mcp.At(os.Getenv(addressVariable), "")
		if err == nil {
			err = mcp.New(service, "1", nil).Run(context.Background(), io.NopCloser(os.Stdin), os.Stdout)
		}
		if err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// The official client for Python takes every tool, by HTTP and by pipes, and finds that
// answers are what the tools say.
func TestOfficialClient(t *testing.T) {
	if !effort.Long() {
		t.Skip("installs Python packages")
	}
	python := pyenv.Python(t, "testdata/agents/requirements.txt")
	tokens, err := server.ParseTokens(strings.NewReader("all read read-read-read-read\n"), "tokens")
	require.NoError(t, err)
	guarded := newService(t, true, &server.Options{Tokens: tokens})
	web := httptest.NewServer(mcp.New(mcp.In(guarded), "1", nil).Handler(guarded, nil))
	defer web.Close()
	open := httptest.NewServer(http.Handler(newService(t, true, nil)))
	defer open.Close()
	self, err := os.Executable()
	require.NoError(t, err)
	out, err := pyenv.Run([]string{"NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1"}, python, "testdata/agents/agent.py", web.URL, "read-read-read-read",
		"env", testenv.ChildVariable+"=agent", addressVariable+"="+open.URL, self)
	require.NoError(t, err, out)
	require.Contains(t, out, "ok")
}
