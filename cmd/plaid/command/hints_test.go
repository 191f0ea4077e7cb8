package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWordsOfOtherTools checks that commands and flags of other tools lead to those that do the same,
// all of which there are.
func TestWordsOfOtherTools(t *testing.T) {
	root := Root()
	has := func(name string) bool {
		for _, c := range root.Commands() {
			if c.Name() == name {
				return true
			}
		}
		return false
	}
	for typed, name := range commandsElsewhere {
		require.True(t, has(name), name)
		require.False(t, has(typed), "%s is a command", typed)
		code, _, stderr := try(t, typed)
		require.Equal(t, exitUsage, code)
		require.Contains(t, stderr, "\nDid you mean 'plaid "+name+"'?\n", typed)
	}
	for typed, remark := range remarksElsewhere {
		_, _, stderr := try(t, typed)
		require.Contains(t, stderr, "\n"+capitalized(remark)+"\n")
	}
	all := map[string]bool{}
	for _, c := range root.Commands() {
		for _, name := range flagNames(c) {
			all[name] = true
		}
	}
	for typed, names := range flagsElsewhere {
		for _, name := range names {
			require.True(t, all[name], "--%s leads to --%s", typed, name)
		}
	}
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"search", "x", "y", "--top-k", "3"}, "-k says how many"},
		{[]string{"search", "x", "y", "--topk=3"}, "-k says how many"},
		{[]string{"search", "x", "y", "--limit", "3"}, "-k says how many"},
		{[]string{"search", "x", "y", "-n", "3"}, "-k says how many"},
		{[]string{"explain", "x", "y", "z", "--top_k", "3"}, "-k says how many"},
		{[]string{"mcp", "x", "--top-k", "3"}, "The agent says how many: k is an argument of its tools"},
		{[]string{"mcp", "x", "-k", "3"}, "The agent says how many: k is an argument of its tools"},
		{[]string{"serve", "--limit", "3"}, "Each search says how many: params.top_k"},
		{[]string{"eval", "x", "--top-k", "3"}, "A measure says how many: --measures nDCG@10,R@100"},
		{[]string{"get", "x", "--limit", "3"}, "All documents that meet --where are shown; plaid search -k N shows the best"},
		{[]string{"index", "x", "--payload", "y"}, "Did you mean --metadata?"},
		{[]string{"search", "x", "y", "--query-len", "3"}, "Did you mean --query-length?"},
		{[]string{"encode", "x", "--questions"}, "Did you mean --queries?"},
		{[]string{"index", "x", "--input", "y"}, "Did you mean --text?"},
		{[]string{"search", "x", "--input", "y"}, "Did you mean --questions?"},
		{[]string{"serve", "--port", "80"}, "--listen takes HOST:PORT"},
	} {
		code, _, stderr := try(t, x.args...)
		require.Equal(t, exitUsage, code)
		require.Contains(t, stderr, "\n"+x.want+"\n", x.args)
		if x.args[0] == "serve" || x.args[0] == "mcp" {
			continue // they have no --json
		}
		_, _, stderr = try(t, append([]string{"--json"}, x.args...)...)
		require.Contains(t, stderr, "; "+strings.ToLower(x.want[:1])+x.want[1:]+`"`, x.args)
	}
}

// TestArgumentsInOtherPlaces checks that files where no argument belongs, and an INDEX that comes
// late, are told of with the cure.
func TestArgumentsInOtherPlaces(t *testing.T) {
	path := oneDocument(t)
	texts := filepath.Join(filepath.Dir(path), "corpus.jsonl")
	require.NoError(t, os.WriteFile(texts, []byte(`{"_id":"a","text":"b"}`), 0o600))
	for _, x := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"index", path + "2", texts}, exitUsage, `unexpected argument "` + texts + `": did you mean --text ` + texts + `?`},
		{[]string{"add", path, "-"}, exitUsage, `unexpected argument "-": did you mean --text -?`},
		{[]string{"add", path, "nosuch"}, exitUsage, "unexpected argument \"nosuch\"\n"},
		{[]string{"info", path, texts}, exitUsage, "unexpected argument \"" + texts + "\"\n"},
		{[]string{"search", "sugar", path}, exitNotFound, "INDEX comes first: plaid search " + path + " …"},
		{[]string{"search", path, "-", "--model", "x"}, exitUsage, `"-" is not a question: --questions - reads stdin`},
		{[]string{"delete", path, "nosuch"}, exitNotFound, `plaid: not found: ["nosuch"]`},
		{[]string{"serve", "--data", t.TempDir(), "--listen", "8099"}, exitUsage, `listen is "8099"; want HOST:PORT`},
		{[]string{"beir", filepath.Dir(path), "--model", "x"}, exitNotFound, filepath.Dir(path) + " is not a BEIR folder: no queries.jsonl"},
	} {
		code, stdout, stderr := try(t, x.args...)
		require.Equal(t, x.code, code, "%v: %s", x.args, stderr)
		require.Contains(t, stderr, x.want, x.args)
		require.Empty(t, stdout, x.args)
	}
}
