package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cmd/plaid/daemon"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

var errExtension = errors.New("an error of the extension")

// A program with more commands has them beside those of plaid, with the same flags,
// results and exit codes.
func TestExtension(t *testing.T) {
	maker := searchtest.New(1, 8, 4)
	ix := searchtest.Build(t, 8, maker.Docs("d", 30, 6), nil)
	queries := filepath.Join(t.TempDir(), "queries.jsonl")
	require.NoError(t, os.WriteFile(queries, searchtest.Lines(8, vectors.Document{ID: "q", Tokens: maker.Tokens(3)}), 0o644))
	x := Extension{
		Name: "afar",
		Commands: func(a App) []*cobra.Command {
			find := a.Search(&cobra.Command{Use: "find NAME", Args: a.Takes("NAME", "…")}, func(ctx context.Context, name string) (search.Searcher, error) {
				if name != "here" {
					return nil, errExtension
				}
				return search.New(ctx, ix, nil)
			})
			count := a.Vectors(&cobra.Command{Use: "count NAME", Args: a.Takes("NAME")}, func(_ context.Context, name string, src vectors.Source, m *storage.Model) error {
				return a.Report(map[string]int{name: src.Len()}, func(b *bytes.Buffer) { fmt.Fprintf(b, "%s: %d\n", name, src.Len()) })
			})
			fail := &cobra.Command{Use: "fail", Long: a.Help("It fails."), RunE: a.RunE(func(context.Context, []string) error { return index.ErrNotFound })}
			return []*cobra.Command{find, count, fail}
		},
		Exit: func(err error) int {
			if errors.Is(err, errExtension) {
				return ExitPartial
			}
			return 0
		},
	}
	call := func(args ...string) (code int, out, errs string) { return tryWith(t, []Extension{x}, args...) }
	code, out, _ := call("find", "here", "--queries", queries, "-k", "2", "--format", "jsonl")
	assert.Equal(t, exitOK, code)
	assert.Equal(t, 2, strings.Count(out, `"score"`))
	code, _, errs := call("find", "elsewhere", "--queries", queries)
	assert.Equal(t, exitPartial, code)
	assert.Contains(t, errs, errExtension.Error())
	code, out, _ = call("count", "queries", "--vectors", queries)
	assert.Equal(t, exitOK, code)
	assert.Equal(t, "queries: 1\n", out)
	code, _, _ = call("fail")
	assert.Equal(t, exitNotFound, code)
	code, out, _ = call("fail", "--help")
	assert.Equal(t, exitOK, code)
	assert.Contains(t, out, "It fails.")
	code, out, _ = call("version")
	assert.Equal(t, exitOK, code)
	assert.Contains(t, out, "\nextensions: afar\n")
	code, _, _ = call("find", "here")
	assert.Equal(t, exitUsage, code)
}

// A flag of a command may name another command, which takes the whole line.
func TestInstead(t *testing.T) {
	var got []string
	x := Extension{
		Commands: func(a App) []*cobra.Command {
			far := &cobra.Command{Use: "far COMMAND", RunE: func(*cobra.Command, []string) error { return nil }}
			find := &cobra.Command{Use: "find NAME", Args: a.Takes("NAME", "…")}
			at := find.Flags().String("at", "", "where")
			find.RunE = a.RunE(func(_ context.Context, args []string) error {
				got = append([]string{*at}, args...)
				return nil
			})
			far.AddCommand(find)
			return []*cobra.Command{far}
		},
		Instead: []Instead{{Command: "search", Flag: "far", Usage: "search `ELSEWHERE`", To: []string{"far", "find"}, As: "at"}},
	}
	call := func(args ...string) (code int, out, errs string) {
		got = nil
		return tryWith(t, []Extension{x}, args...)
	}
	for _, args := range [][]string{
		{"search", "--far", "there", "name", "question"}, {"search", "name", "--far=there", "question"}, {"-q", "search", "name", "question", "--far", "there"},
	} {
		code, _, errs := call(args...)
		assert.Equal(t, exitOK, code, errs)
		assert.Equal(t, []string{"there", "name", "question"}, got, args)
	}
	code, out, _ := call("search", "--help")
	assert.Equal(t, exitOK, code)
	assert.Contains(t, out, "--far ELSEWHERE")
	code, _, errs := call("search", "nothing.plaid", "--", "--far")
	assert.NotEqual(t, exitOK, code)
	assert.Nil(t, got, errs)
	code, _, _ = call("search", "name", "--far")
	assert.Equal(t, exitUsage, code)
	code, _, _ = call("get", "--far", "there", "name")
	assert.Equal(t, exitUsage, code)

	// The commands of a command have manual pages too.
	dir := t.TempDir()
	require.NoError(t, doc.GenManTree(Root(x), nil, dir))
	for page, text := range map[string]string{"plaid-far.1": `plaid-far-find(1)`, "plaid-far-find.1": `--at`} {
		page, err := os.ReadFile(filepath.Join(dir, page))
		require.NoError(t, err)
		assert.Contains(t, string(page), text)
	}
}

// nowhere has no indexes.
type nowhere struct {
	collection.Set
	name string
	err  error
}

func (n *nowhere) Check() (bool, error) { return n.name != "", n.err }

func (n *nowhere) Open(context.Context, *daemon.Config, *slog.Logger) (collection.Set, func() error, error) {
	return nil, nil, fmt.Errorf("%w: %s", errExtension, n.name)
}

// A program may serve indexes that are in no folder, with settings of its own.
func TestServeElsewhere(t *testing.T) {
	there := &nowhere{}
	x := Extension{
		Commands: func(App) []*cobra.Command { return nil },
		Serve: func(_ App, c *daemon.Config) {
			c.Elsewhere = there
			c.TextSetting("there", &there.name, "`NAME` of the place")
		},
	}
	call := func(args ...string) (code int, out, errs string) {
		there.name = ""
		return tryWith(t, []Extension{x}, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	}
	code, _, errs := call("--there", "a place")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, errs, "an error of the extension: a place")
	code, out, _ := call("--there", "a place", "--print-config")
	assert.Equal(t, exitOK, code)
	assert.Contains(t, out, "there: a place # from flag")
	code, _, errs = call("--there", "a place", "--data", "folder")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, "of indexes in a folder")
	code, _, errs = call()
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, "data is missing")
	there.err = errExtension
	code, _, _ = call("--there", "a place")
	assert.Equal(t, exitUsage, code)
}
