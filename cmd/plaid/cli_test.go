package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
)

func TestCommandTreeIsDocumented(t *testing.T) {
	a := &app{console: &console{}, now: time.Now}
	root := a.rootCommand()
	n := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		n++
		path := c.CommandPath()
		require.NotEmpty(t, c.Short, path)
		require.NotEmpty(t, c.Example, path)
		for line := range strings.Lines(c.Example) {
			require.True(t, strings.HasPrefix(line, "  plaid"), "%s: example %q", path, line)
		}
		require.Contains(t, c.Long, "EXIT STATUS", path)
		for _, e := range exitTable {
			require.Contains(t, c.Long, e.what, path)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			require.NotEmpty(t, f.Usage, "%s --%s", path, f.Name)
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	require.GreaterOrEqual(t, n, 14)
}

// The examples in the help must be understood: they may fail for want of
// files, not for their flags.
func TestExamplesParse(t *testing.T) {
	t.Chdir(t.TempDir())
	a := &app{console: &console{}, now: time.Now}
	var examples []string
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " >")
			examples = append(examples, line)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(a.rootCommand())
	for _, e := range examples {
		code, _, stderr := try(t, strings.Fields(e)[1:]...)
		if e != "plaid" {
			require.NotEqual(t, exitUsage, code, "%s: %s", e, stderr)
		}
	}
}

// try runs a command line in this process.
func try(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, streams{in: strings.NewReader(""), out: &out, err: &errs})
	return code, out.String(), errs.String()
}

func TestCompletionsGoToStdout(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		code, stdout, stderr := try(t, "completion", shell)
		require.Equal(t, exitOK, code)
		require.Contains(t, stdout, "plaid", shell)
		require.Empty(t, stderr)
	}
	code, stdout, _ := try(t, "__complete", "sea")
	require.Equal(t, exitOK, code)
	require.Contains(t, stdout, "search")
}

func TestExitCodes(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("x: %w", err) }
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, exitOK},
		{errors.New("x"), exitFailed},
		{wrap(storage.ErrNotIndex), exitFailed},
		{wrap(storage.ErrExists), exitFailed},
		{wrap(fs.ErrExist), exitFailed},
		{usagef("x"), exitUsage},
		{wrap(usagef("x")), exitUsage},
		{wrap(index.ErrOption), exitUsage},
		{wrap(search.ErrOption), exitUsage},
		{wrap(errPartial), exitPartial},
		{wrap(errNotFound), exitNotFound},
		{wrap(fs.ErrNotExist), exitNotFound},
		{wrap(index.ErrNotFound), exitNotFound},
		{wrap(search.ErrUnknownID), exitNotFound},
		{&storage.CorruptError{Path: "x"}, exitCorrupt},
		{errors.Join(fs.ErrNotExist, wrap(storage.ErrCorrupt)), exitCorrupt},
		{wrap(storage.ErrLocked), exitLocked},
		{errors.Join(wrap(context.Canceled), storage.ErrLocked), exitInterrupted},
	} {
		require.Equal(t, c.want, exitCode(c.err), "%v", c.err)
	}
}

func TestInterruptedBuildLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	docs, lens, out := filepath.Join(dir, "d.npy"), filepath.Join(dir, "l.npy"), filepath.Join(dir, "x.plaid")
	require.NoError(t, writeNPY(docs, make([]float32, 4*8), 8))
	require.NoError(t, writeInts(lens, []int64{4}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	code := run(ctx, []string{"index", out, "--vectors", docs, "--lengths", lens}, streams{out: &stdout, err: &stderr})
	require.Equal(t, exitInterrupted, code, stderr.String())
	require.Equal(t, "plaid: interrupted\n", stderr.String())
	require.Empty(t, stdout.String())
	require.NoFileExists(t, out)
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// A result that cannot be written is a failure, not a success.
func TestOutputErrors(t *testing.T) {
	dir := t.TempDir()
	docs, lens, ix := filepath.Join(dir, "d.npy"), filepath.Join(dir, "l.npy"), filepath.Join(dir, "x.plaid")
	values := make([]float32, 4*8)
	for i := range values {
		values[i] = float32(i%5) - 1.5
	}
	require.NoError(t, writeNPY(docs, values, 8))
	require.NoError(t, writeInts(lens, []int64{2, 2}))
	code, _, stderr := try(t, "index", ix, "--vectors", docs, "--lengths", lens)
	require.Equal(t, exitOK, code, stderr)
	for _, args := range []string{
		"info IX", "info IX --json", "verify IX", "get IX 0", "version",
		"search IX --queries Q --query-lengths L", "search IX --queries Q --query-lengths L --format trec",
		"search IX --queries Q --query-lengths L --format jsonl", "explain IX --queries Q --query-lengths L --query 0 --doc 0",
		"compact IX", "delete IX 0",
	} {
		args = strings.NewReplacer("IX", ix, "Q", docs, "L", lens).Replace(args)
		var errs bytes.Buffer
		code := run(t.Context(), strings.Fields(args), streams{out: failingWriter{}, err: &errs})
		require.Equal(t, exitFailed, code, args)
		require.Contains(t, errs.String(), "disk full", args)
	}
}

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "1073741824": 1 << 30, "1GiB": 1 << 30, "1gib": 1 << 30, "256MiB": 256 << 20, "1GB": 1e9, "500M": 500 << 20,
		"1.5GiB": 3 << 29, "64 KiB": 64 << 10, "7B": 7, "2k": 2048, "2kB": 2000, "1TiB": 1 << 40,
	} {
		got, err := parseSize(s)
		require.NoError(t, err, s)
		require.Equal(t, want, got, s)
	}
	for _, s := range []string{"", "GiB", "-1", "1XB", "1GiBs", "1 2", "NaN", "Inf", "1e30", "9999999TiB", "0x1p70", "1b b"} {
		_, err := parseSize(s)
		require.Error(t, err, s)
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"1GiB", "500M", "1.5kB", "-3", "b", " B", "１MiB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := parseSize(s); err == nil && n < 0 {
			t.Fatalf("%q is %d", s, n)
		}
	})
}

func TestFormats(t *testing.T) {
	require.Equal(t, "0", formatCount(0))
	require.Equal(t, "999", formatCount(999))
	require.Equal(t, "1,234,567", formatCount(1234567))
	require.Equal(t, "1 token", plural(1, "token"))
	require.Equal(t, "2,000 tokens", plural(2000, "token"))
	require.Equal(t, "1023 B", formatBytes(1023))
	require.Equal(t, "1 GiB", formatBytes(1<<30))
	require.Equal(t, "2.5 KiB", formatBytes(2560))
	require.Equal(t, "950", formatRate(950))
	require.Equal(t, "12.3k", formatRate(12345))
	require.Equal(t, "4.5M", formatRate(4.5e6))
	require.Equal(t, "1m30s", formatSeconds(90))
	require.Equal(t, "a b …", printable("a\n\tb cdef", 5))
	require.Equal(t, "\ufffd[31mred", printable("\x1b[31mred", 20), "escapes do not reach the terminal")
	require.Equal(t, "T: text", snippet([]byte(`{"title": "T", "text": "text"}`)))
	require.Equal(t, "text", snippet([]byte(`{"title": "", "text": "text"}`)))
	require.Equal(t, `{"n": 1}`, snippet([]byte(`{"n": 1}`)))
	require.Equal(t, `{"title": 1}`, snippet([]byte(`{"title": 1}`)))
	require.Equal(t, "no JSON", snippet([]byte("no JSON")))
}

func TestPayloadJSON(t *testing.T) {
	for payload, want := range map[string]string{
		`{"a": "<b>"}`: `{"a":"<b>"}`, "3": "3", "no json": `"no json"`, "": `""`,
	} {
		b, err := encodeJSON(payloadJSON([]byte(payload)))
		require.NoError(t, err)
		require.Equal(t, want+"\n", string(b))
	}
	require.Nil(t, payloadJSON(nil))
}

func TestProgressLines(t *testing.T) {
	now := time.Unix(1000, 0)
	var b bytes.Buffer
	a := &app{now: func() time.Time { return now }, console: &console{w: &b}}
	report := a.progress()
	step := func(d time.Duration, stage string, done, total int64) {
		now = now.Add(d)
		report(index.Progress{Stage: stage, Done: done, Total: total, Unit: "tokens"})
	}
	step(0, "train", 0, 100)
	step(9*time.Second, "train", 90, 100)
	require.Empty(t, b.String(), "nothing before ten seconds have passed")
	step(time.Second, "train", 100, 100)
	require.Equal(t, "train 100%, 100 of 100 tokens, 10/s\n", b.String())
	b.Reset()
	step(time.Second, "encode", 1000, 1_000_000)
	step(9*time.Second, "encode", 91_000, 1_000_000)
	require.Equal(t, "encode 9%, 91,000 of 1,000,000 tokens, 10.0k/s, 1m31s left\n", b.String())
	a.quiet = true
	require.Nil(t, a.progress())
}

func TestProgressOnTerminal(t *testing.T) {
	now := time.Unix(1000, 0)
	var b bytes.Buffer
	a := &app{now: func() time.Time { return now }, console: &console{w: &b, width: 20}}
	report := a.progress()
	for i := range 4 {
		now = now.Add(60 * time.Millisecond)
		report(index.Progress{Stage: "encode", Done: int64(i), Total: 3, Unit: "tokens"})
	}
	a.warn("careful")
	a.console.clear()
	require.Equal(t, "\rencode 33%, 1 of 3…\x1b[K\rencode 100%, 3 of …\x1b[K\r\x1b[Kplaid: warning: careful\n", b.String())
}

func TestReadIDs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ids.txt")
	require.NoError(t, os.WriteFile(path, []byte("\ufeffa\r\nb c\n\nd"), 0o666))
	ids, err := readIDs(path)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b c", "d"}, ids)
	require.NoError(t, os.WriteFile(path, nil, 0o666))
	ids, err = readIDs(path)
	require.NoError(t, err)
	require.NotNil(t, ids)
	require.Empty(t, ids)
	require.NoError(t, os.WriteFile(path, []byte("a\n"+strings.Repeat("x", 9999)), 0o666))
	_, err = readIDs(path)
	require.ErrorContains(t, err, "line 2")
}

func FuzzObjects(f *testing.F) {
	for _, s := range []string{`{"_id": "a"}`, `{"id": 7, "x": []}` + "\n\n" + `{"_id": "b"}`, "[1]", `{"_id": null}`, `{"_id": ""}`, "{\"id\": 1}\r\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "objects.jsonl")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
		o, err := openObjects(path)
		if err != nil {
			return
		}
		defer o.Close()
		for id := range o.at {
			b, err := o.get(id)
			require.NoError(t, err)
			got, err := objectID(b)
			require.NoError(t, err)
			require.Equal(t, id, got)
		}
	})
}
