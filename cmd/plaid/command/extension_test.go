package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/searchtest"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

var errExtension = errors.New("an error of the extension")

// A program with more commands has them beside those of plaid, with the same flags,
// results and exit codes.
func TestExtension(t *testing.T) {
	maker := searchtest.New(1, 8, 4)
	ix := searchtest.Build(t, 8, maker.Docs("d", 30, 6), nil)
	var lines bytes.Buffer
	w := vectors.NewJSONLWriter(&lines)
	require.NoError(t, w.Write(vectors.Document{ID: "q", Tokens: maker.Tokens(3)}, 8))
	require.NoError(t, w.Flush())
	queries := filepath.Join(t.TempDir(), "queries.jsonl")
	require.NoError(t, os.WriteFile(queries, lines.Bytes(), 0o644))
	x := Extension{
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
	call := func(args ...string) (code int, out, errs string) {
		var o, e bytes.Buffer
		code = run(t.Context(), args, streams{in: strings.NewReader(""), out: &o, err: &e}, x)
		return code, o.String(), e.String()
	}
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
	code, _, _ = call("find", "here")
	assert.Equal(t, exitUsage, code)
}
