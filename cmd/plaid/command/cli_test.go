package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/journal"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/storage/objects"
)

func TestCommandTreeIsDocumented(t *testing.T) {
	for _, c := range commands(newApp(streams{}, nil)) {
		if !c.Runnable() {
			continue // a topic
		}
		require.NotEmpty(t, c.Short, c.Name())
		require.NotEmpty(t, c.Example, c.Name())
		require.True(t, c.Parent() != c.Root() || c.GroupID != "", c.Name())
		for line := range strings.Lines(c.Example) {
			require.True(t, strings.HasPrefix(line, "  plaid"), "%s: example %q", c.Name(), line)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { require.NotEmpty(t, f.Usage, "%s --%s", c.Name(), f.Name) })
	}
}

// The examples in the help must be understood: they may fail for want of
// files, not for their flags.
func TestExamplesParse(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("plaid.yaml", []byte("data: ./data\n"), 0o644))
	var examples strings.Builder
	for _, c := range commands(newApp(streams{}, nil)) {
		examples.WriteString(c.Example + "\n")
	}
	for e := range strings.FieldsFuncSeq(examples.String(), func(r rune) bool { return r == '\n' }) {
		e = strings.TrimSpace(e)
		words := testenv.ShellWords(e)[1:]
		if len(words) > 0 && words[0] == "serve" && !slices.Contains(words, "--print-config") {
			words = append(words, "--print-config") // or it would serve
		}
		code, _, stderr := try(t, words...)
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
		{flags.Usagef("x"), exitUsage},
		{wrap(flags.Usagef("x")), exitUsage},
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
		{errors.Join(context.Canceled, wrap(storage.ErrCorrupt)), exitCorrupt},
		{errors.Join(context.Canceled, wrap(storage.ErrOutcomeUnknown)), exitUnknown},
		{wrap(files.ErrOutcomeUnknown), exitUnknown},
		{wrap(journal.ErrUnknown), exitUnknown},
		{errors.Join(wrap(journal.ErrFork), collection.ErrUnknown), exitCorrupt},
		{wrap(objects.ErrDamaged), exitCorrupt},
		{wrap(objects.ErrName), exitUsage},
		{wrap(collection.ErrConfig), exitUsage},
		{wrap(collection.ErrName), exitUsage},
		{wrap(collection.ErrUnknown), exitNotFound},
		{wrap(collection.ErrExists), exitFailed},
		{&storage.PanicError{Path: "x", Value: "y"}, exitFailed},
	} {
		require.Equal(t, c.want, exitCode(c.err), "%v", c.err)
	}
}

// source writes documents of some numbers of tokens, and returns the flags that name them.
func source(t *testing.T, dir string, dim int, values []float32, lengths ...int64) []string {
	docs, lens := filepath.Join(dir, "d.npy"), filepath.Join(dir, "l.npy")
	require.NoError(t, writeNPY(docs, values, dim))
	require.NoError(t, writeInts(lens, lengths))
	return []string{"--vectors", docs, "--lengths", lens}
}

// built makes an index x.plaid of documents in a folder.
func built(t *testing.T, dir string, docs []string) string {
	path := filepath.Join(dir, "x.plaid")
	code, _, stderr := try(t, append([]string{"index", path}, docs...)...)
	require.Equal(t, exitOK, code, stderr)
	return path
}

// oneDocument builds an index with a document "0" of one token.
func oneDocument(t *testing.T) string {
	dir := t.TempDir()
	return built(t, dir, source(t, dir, 8, []float32{1, 0, 0, 0, 0, 0, 0, 0}, 1))
}

func TestUnknownOutcome(t *testing.T) {
	path := oneDocument(t)
	real, err := filepath.EvalSymlinks(path)
	require.NoError(t, err)
	files.HookSynced = func(p string) error {
		if p == real {
			return errors.New("no answer")
		}
		return nil
	}
	t.Cleanup(func() { files.HookSynced = nil })
	code, _, stderr := try(t, "delete", path, "0")
	require.Equal(t, exitUnknown, code, stderr)
	require.Contains(t, stderr, "outcome unknown, open again: a change failed in its last step: no answer")
	files.HookSynced = nil
	code, _, stderr = try(t, "verify", path)
	require.Equal(t, exitOK, code, stderr)
}

// An index that is complete but larger than it need be: a warning, also without -v.
func TestSpaceThatWasNotFreed(t *testing.T) {
	path := oneDocument(t)
	folder, err := filepath.EvalSymlinks(filepath.Dir(path))
	require.NoError(t, err)
	t.Cleanup(func() { files.HookSynced = nil })
	for _, json := range []bool{false, true} {
		syncs := 0
		files.HookSynced = func(p string) error {
			if p == folder {
				syncs++
			}
			if syncs == 2 { // the first is that of opening
				return errors.New("no answer")
			}
			return nil
		}
		args := []string{"index", path, "--vectors", filepath.Join(folder, "d.npy"), "--lengths", filepath.Join(folder, "l.npy"), "--force"}
		if json {
			args = append(args, "--json")
		}
		code, stdout, stderr := try(t, args...)
		require.Equal(t, exitOK, code, stderr)
		require.Contains(t, stderr, "the space of the old one was not freed (plaid compact "+path+" frees it): ")
		require.Equal(t, json, strings.Contains(stdout, `"not_freed":"`))
		files.HookSynced = nil
		code, _, stderr = try(t, "verify", path)
		require.Equal(t, exitOK, code, stderr)
	}
}

// What is found out about an index is told although the program was interrupted.
func TestCorruptAlthoughInterrupted(t *testing.T) {
	path := oneDocument(t)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	data[30] ^= 1
	require.NoError(t, os.WriteFile(path, data, 0o644))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	code := run(ctx, []string{"info", path}, streams{out: &stdout, err: &stderr})
	require.Equal(t, exitCorrupt, code, stderr.String())
	require.Contains(t, stderr.String(), "index is corrupt")
}

// A flipped bit in the key of an id: nothing takes the document for absent.
func TestDamagedIDIsNotAbsent(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	docs := source(t, dir, 8, []float32{1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}, 1, 1)
	require.NoError(t, writeNPY(at("q.npy"), []float32{1, 0, 0, 0, 0, 0, 0, 0}, 8))
	require.NoError(t, writeInts(at("ql.npy"), []int64{1}))
	require.NoError(t, os.WriteFile(at("ids"), []byte("the first document\nthe second document\n"), 0o644))
	require.NoError(t, os.WriteFile(at("filter"), []byte("the second document\n"), 0o644))
	data, err := os.ReadFile(built(t, dir, append(docs, "--ids", at("ids"))))
	require.NoError(t, err)
	again := []string{"--vectors", at("q.npy"), "--lengths", at("ql.npy"), "--ids", at("filter")}
	damaged := 0
	for i := range data {
		if !bytes.HasPrefix(data[i:], []byte("the second document")) {
			continue
		}
		bad := bytes.Clone(data)
		bad[i+4] ^= 1
		for n, args := range [][]string{
			{"verify", at("x.plaid")},
			{"get", at("x.plaid"), "the second document"},
			{"delete", at("x.plaid"), "the second document"},
			append([]string{"add", at("x.plaid")}, again...),
			append([]string{"add", at("x.plaid"), "--replace"}, again...),
			{"search", at("x.plaid"), "--queries", at("q.npy"), "--query-lengths", at("ql.npy"), "--ids", at("filter")},
		} {
			require.NoError(t, os.WriteFile(at("x.plaid"), bad, 0o644))
			code, _, stderr := try(t, args...)
			if n == 0 && code == exitOK {
				break // these bytes belong to no live page
			}
			require.Equal(t, exitCorrupt, code, "%v: %s", args, stderr)
			damaged++
		}
	}
	require.Equal(t, 12, damaged) // the key, and the table of documents
}

func TestPanicsAreToBeReported(t *testing.T) {
	err := error(&storage.PanicError{Path: "x.plaid", Value: "out of range", Stack: []byte("goroutine 1: f.go:3\n")})
	for _, json := range []bool{false, true} {
		var stderr bytes.Buffer
		a := newApp(streams{err: &stderr}, nil)
		a.json = json
		a.reportError(nil, err)
		require.Contains(t, stderr.String(), "x.plaid: internal error: out of range")
		require.Contains(t, stderr.String(), "f.go:3")
		require.Equal(t, !json, strings.Contains(stderr.String(), "please report it"))
	}
}

func TestInterruptedBuildLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	out, docs := filepath.Join(dir, "x.plaid"), source(t, dir, 8, make([]float32, 4*8), 4)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	code := run(ctx, append([]string{"index", out}, docs...), streams{out: &stdout, err: &stderr})
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
	values := make([]float32, 4*8)
	for i := range values {
		values[i] = float32(i%5) - 1.5
	}
	docs := source(t, dir, 8, values, 2, 2)
	ix, judged := built(t, dir, docs), filepath.Join(dir, "judged")
	require.NoError(t, os.WriteFile(judged, []byte("q d 1\nr d 1\n"), 0o644))
	found := filepath.Join(dir, "found")
	require.NoError(t, os.WriteFile(found, []byte("q Q0 d 1 9 t\nr Q0 d 1 9 t\n"), 0o644))
	for _, args := range []string{
		"info IX", "info IX --json", "verify IX", "get IX 0", "version",
		"search IX --queries Q --query-lengths L", "search IX --queries Q --query-lengths L --format trec",
		"search IX --queries Q --query-lengths L --format jsonl", "explain IX 0 --queries Q --query-lengths L --query 0",
		"compact IX", "delete IX 0", "eval --qrels JUDGED FOUND FOUND",
	} {
		args = strings.NewReplacer("IX", ix, "JUDGED", judged, "FOUND", found, "Q", docs[1], "L", docs[3]).Replace(args)
		var errs bytes.Buffer
		code := run(t.Context(), strings.Fields(args), streams{out: failingWriter{}, err: &errs})
		require.Equal(t, exitFailed, code, args)
		require.Contains(t, errs.String(), "disk full", args)
	}
}

func TestQuietHasNoProgress(t *testing.T) {
	a := newApp(streams{}, nil)
	require.NotNil(t, a.progress())
	a.quiet = true
	require.Nil(t, a.progress())
}
