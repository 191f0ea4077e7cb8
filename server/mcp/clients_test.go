package mcp_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/pyenv"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/server/mcp"
)

// message is a request to the tools, as an agent sends it.
func message(t *testing.T, url, body string) *http.Request {
	r, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	require.NoError(t, err)
	r.Host = "localhost"
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	return r
}

// search is a call that asks a service three times.
const search = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search","arguments":{"index":"notes","query":"dogs"}}}`

// One request is one message: many in a list would each be answered, and be counted as one.
func TestLists(t *testing.T) {
	s := newService(t, false, nil)
	for _, body := range []string{`[{"jsonrpc":"2.0","id":1,"method":"tools/list"},{"jsonrpc":"2.0","id":2,"method":"tools/list"}]`, " \n[]"} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, message(t, "/mcp", body))
		require.Equal(t, http.StatusBadRequest, w.Code, w.Body.String())
	}
}

// There is nothing to listen to, and no stream goes on for ever.
func TestListening(t *testing.T) {
	s := newService(t, false, nil)
	web := httptest.NewServer(s)
	defer web.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	r := message(t, web.URL+"/mcp", `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`).WithContext(ctx)
	r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
	r.Header.Set("Mcp-Method", "subscriptions/listen")
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), "-32601")
}

// A service whose handler panics on its way out ends a call, and not the process.
func TestPanic(t *testing.T) {
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/indices" {
			panic("broken")
		}
	})
	c := connect(t, mcp.NewInProcess(h))
	_, err := c.CallTool(t.Context(), callOf("get"))
	require.ErrorContains(t, err, "internal error")
}

// Who leaves keeps nothing running.
func TestLeave(t *testing.T) {
	began, ended := make(chan struct{}), make(chan struct{})
	var once sync.Once
	inner := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		once.Do(func() { close(began) })
		<-r.Context().Done()
		close(ended)
	})
	web := httptest.NewServer(newService(t, false, &server.Options{Agents: func(http.Handler) http.Handler { return agents(inner) }}))
	defer web.Close()
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		answer, err := http.DefaultClient.Do(message(t, web.URL+"/mcp", search).WithContext(ctx))
		if err == nil {
			err = answer.Body.Close()
		}
		done <- err
	}()
	<-began
	leave()
	require.Error(t, <-done)
	select {
	case <-ended:
	case <-time.After(5 * time.Minute):
		t.Fatal("the call goes on")
	}
}

// A stranger cannot say behind a proxy whom its requests come from: of all lines of
// X-Forwarded-For the last counts.
func TestForwarded(t *testing.T) {
	var mu sync.Mutex
	lines := map[string]bool{}
	inner := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		lines[fmt.Sprint(r.Header.Values("X-Forwarded-For"))] = true
	})
	s := newService(t, false, &server.Options{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Agents: func(http.Handler) http.Handler { return agents(inner) },
	})
	r := message(t, "/mcp", search)
	r.RemoteAddr = "192.0.2.1:1"
	r.Header["X-Forwarded-For"] = []string{"10.9.9.9", "203.0.113.7"}
	s.ServeHTTP(httptest.NewRecorder(), r)
	require.Equal(t, map[string]bool{"[10.9.9.9 203.0.113.7]": true}, lines)
}

// What is refused is not read.
func TestRefusedBody(t *testing.T) {
	tokens, err := server.ParseTokens(strings.NewReader("all read read-read-read-read\n"), "tokens")
	require.NoError(t, err)
	s := newService(t, false, &server.Options{Tokens: tokens})
	web := httptest.NewServer(s)
	defer web.Close()
	c, err := net.Dial("tcp", web.Listener.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(5*time.Minute)))
	_, err = io.WriteString(c, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx")
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusUnauthorized, answer.StatusCode)
	require.True(t, answer.Close)
	_, err = io.Copy(io.Discard, answer.Body)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, c)
	require.NoError(t, err) // the end, and not the deadline
}

func callOf(tool string) *sdk.CallToolParams {
	return &sdk.CallToolParams{Name: tool, Arguments: map[string]any{"index": "notes", "ids": []string{"dog"}}}
}

// addressVariable tells the program that the client starts which service to ask.
const addressVariable = "PLAID_TEST_SERVICE"

func TestMain(m *testing.M) {
	if os.Getenv(testenv.ChildVariable) == "agent" {
		service, err := mcp.NewRemote(os.Getenv(addressVariable), "")
		if err == nil {
			err = mcp.New(service, "1").Run(context.Background(), io.NopCloser(os.Stdin), os.Stdout)
		}
		if err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	effort.Rapid(15, 100)
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
	web := httptest.NewServer(guarded)
	defer web.Close()
	open := httptest.NewServer(http.Handler(newService(t, true, nil)))
	defer open.Close()
	self, err := os.Executable()
	require.NoError(t, err)
	out, err := pyenv.Run([]string{"NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1"}, python, "testdata/agents/agent.py", web.URL+"/mcp", "read-read-read-read",
		"env", testenv.ChildVariable+"=agent", addressVariable+"="+open.URL, self)
	require.NoError(t, err, out)
	require.Contains(t, out, "ok")
}

// validator is the program of the protocol's own validator, which npm fetches into the user's
// cache, as package-lock.json says. The test is skipped where that is not possible.
func validator(t *testing.T) (program string) {
	t.Helper()
	skip := func(format string, args ...any) {
		t.Helper()
		fmt.Fprintf(os.Stderr, "%s skipped: %s\n", t.Name(), fmt.Sprintf(format, args...))
		t.Skipf(format, args...)
	}
	for _, name := range []string{"node", "npm"} {
		if _, err := exec.LookPath(name); err != nil {
			if os.Getenv(pyenv.Required) != "" {
				t.Fatalf("%s is set, and there is no %s", pyenv.Required, name)
			}
			skip("%s is not there", name)
		}
	}
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	lock, err := os.ReadFile("testdata/conformance/package-lock.json")
	require.NoError(t, err)
	sum := sha256.Sum256(lock)
	dir := filepath.Join(cache, "plaid-test", "mcp-conformance-"+hex.EncodeToString(sum[:8]))
	program = filepath.Join("node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js")
	if _, err := os.Stat(filepath.Join(dir, program)); err == nil {
		return filepath.Join(dir, program)
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o777))
	made, err := os.MkdirTemp(filepath.Dir(dir), "making-") // two runs may make it
	require.NoError(t, err)
	defer os.RemoveAll(made)
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := os.ReadFile(filepath.Join("testdata", "conformance", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(made, name), text, 0o666))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir, cmd.WaitDelay = made, time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		skip("npm cannot fetch the validator: %v\n%s", err, out)
	}
	if err := os.Rename(made, dir); err != nil {
		if _, err := os.Stat(filepath.Join(dir, program)); err != nil {
			dir = filepath.Join(t.TempDir(), "validator")
			require.NoError(t, os.Rename(made, dir))
		}
	}
	return filepath.Join(dir, program)
}

// The protocol's own validator finds that the tools by HTTP are as it says; what they do not
// have is in expected.yml.
func TestConformance(t *testing.T) {
	if !effort.Long() {
		t.Skip("installs packages of Node")
	}
	program := validator(t)
	s := newService(t, true, &server.Options{Hosts: []string{"localhost"}}) // as plaid serve has it
	web := httptest.NewServer(s)
	defer web.Close()
	expected, err := filepath.Abs("testdata/conformance/expected.yml")
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "node", program, "server", "--url", web.URL+"/mcp", "--expected-failures", expected)
	cmd.Dir = t.TempDir() // it leaves its results there
	cmd.Env = append(os.Environ(), "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	var passed []string
	for _, m := range regexp.MustCompile(`(?m)^✓ ([a-z0-9-]+): [1-9]\d* passed, 0 failed$`).FindAllStringSubmatch(string(out), -1) {
		passed = append(passed, m[1])
	}
	slices.Sort(passed)
	require.Equal(t, []string{"dns-rebinding-protection", "logging-set-level", "ping", "prompts-list", "resources-list", "server-initialize", "tools-list"}, passed, string(out))
}
