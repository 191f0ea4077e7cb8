package flags

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

func parse(t *testing.T, register func(*pflag.FlagSet), args ...string) {
	t.Helper()
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	register(f)
	require.NoError(t, f.Parse(args))
}

func usage(t *testing.T, err error, text string) {
	t.Helper()
	var u UsageError
	require.ErrorAs(t, err, &u)
	require.ErrorContains(t, err, text)
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

func TestFormat(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "table"}, {[]string{"--format", "trec"}, "trec"}, {[]string{"--json"}, "jsonl"}, {[]string{"--json=false"}, "table"},
	} {
		var format Format
		cmd := &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error { return nil }}
		format.Register(cmd, "results", "table", "jsonl", "trec")
		cmd.SetArgs(append([]string{}, c.args...))
		require.NoError(t, cmd.Execute())
		require.Equal(t, c.want, format.Word())
	}
}

// The limit on memory holds as long as it is asked for, and does not raise one
// that is lower.
func TestResources(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(8 << 30))
	var r Resources
	parse(t, r.Register, "--memory", "4GiB", "--threads", "2")
	require.Equal(t, 2, r.Threads)
	lift := r.LimitMemory()
	require.Equal(t, int64(4<<30), debug.SetMemoryLimit(-1))
	lift()
	require.Equal(t, int64(8<<30), debug.SetMemoryLimit(-1))
	r.Memory = 16 << 30
	defer r.LimitMemory()()
	require.Equal(t, int64(8<<30), debug.SetMemoryLimit(-1))
}

const twoDocs = `{"_id": "a", "vectors": [[1, 0], [0, 1]]}
{"_id": "b", "vectors": [[1, 0]]}
`

func TestInputs(t *testing.T) {
	a, b := file(t, "a.jsonl", twoDocs), file(t, "b.jsonl", `{"_id": "c", "vectors": [[1, 0]]}`+"\n")
	var d Documents
	parse(t, d.Register, "--vectors", a, "--vectors", b)
	src, err := d.Open(t.Context(), nil, nil)
	require.NoError(t, err)
	require.Equal(t, 3, src.Len())
	require.Equal(t, "c", src.ID(2))
	require.NoError(t, src.Close())

	_, err = new(Documents).Open(t.Context(), nil, nil)
	usage(t, err, "--vectors is missing")
	d = Documents{}
	parse(t, func(f *pflag.FlagSet) { d.RegisterOriginals(f, "x") }, "--vectors", a, "--vectors", b, "--ids", "x")
	_, err = d.Open(t.Context(), nil, nil)
	usage(t, err, "1 --ids for 2 --vectors: give one for each")

	_, err = new(Queries).AreTexts(nil)
	usage(t, err, "which queries? give --questions")
	_, err = new(Queries).AreTexts([]string{})
	usage(t, err, "which queries? give questions as arguments")
	var plain Queries
	parse(t, plain.RegisterVectors)
	_, err = plain.AreTexts(nil)
	usage(t, err, "--queries is missing")
	var q Queries
	parse(t, q.Register, "--queries", file(t, "text.jsonl", `{"_id": "a", "text": "b"}`+"\n"))
	_, err = q.Open(t.Context(), nil, nil)
	require.ErrorIs(t, err, vectors.ErrFormat)
	require.ErrorContains(t, err, "texts go to --text and --questions")
}

func TestStdin(t *testing.T) {
	open := func(stdin string, args ...string) (vectors.Source, error) {
		var d Documents
		parse(t, d.Register, args...)
		return d.Open(t.Context(), strings.NewReader(stdin), nil)
	}
	src, err := open(twoDocs, "--vectors", "-")
	require.NoError(t, err)
	copied := src.(*copiedSource).copyPath
	require.FileExists(t, copied)
	n := 0
	for d, err := range src.Docs(t.Context(), 0, 2) {
		require.NoError(t, err)
		require.Equal(t, src.ID(n), d.ID)
		n++
	}
	require.Equal(t, 2, n)
	require.NoError(t, src.Close())
	require.NoError(t, src.Close())
	require.NoFileExists(t, copied)

	_, err = open(twoDocs, "--vectors", "-", "--vectors", "-")
	usage(t, err, "stdin (-) can be read only once")
	_, err = open("no vectors\n", "--vectors", "-")
	require.ErrorContains(t, err, "stdin: line 1")
	src, err = open(`{"_id": "a", "vectors": [[1e99, 2]]}`+"\n", "--vectors", "-")
	require.NoError(t, err)
	for _, err := range src.Docs(t.Context(), 0, 1) {
		require.ErrorContains(t, err, "stdin: line 1")
	}
	require.NoError(t, src.Close())
	// The first bytes say how vectors are written.
	for head, want := range map[string]string{"\x93NUMPY\x01\x00": "npy", "PK\x03\x04": "npz", "\x10\x01\x00\x00\x00\x00\x00\x00{": "safetensors", "{": "jsonl", "": "jsonl"} {
		require.Equal(t, want, vectorFormat([]byte(head)))
	}
	// So do those of questions: a text a line needs no name.
	for stdin, want := range map[string]string{"what is it?\n": "what is it?", `{"text": "a"}` + "\n": "a"} {
		var q Queries
		parse(t, q.Register, "--questions", "-")
		for text, err := range q.Texts(t.Context(), nil, strings.NewReader(stdin)) {
			require.NoError(t, err)
			require.Equal(t, want, text.Text)
		}
	}
}

func TestSearch(t *testing.T) {
	run := file(t, "run", "a Q0 d1 1 9 t\na Q0 d2 2 8 t\n")
	var s Search
	parse(t, s.Register, "--candidates", run, "-k", "3", "--exact", "7", "--ids", file(t, "ids", "d1\n\nd1\n"))
	o, err := s.Options(t.Context())
	require.NoError(t, err)
	require.Equal(t, search.Candidates, o.Mode)
	require.Equal(t, 3, o.K)
	require.Equal(t, 7, o.Exact)
	require.Equal(t, []string{"d1", "d1"}, o.Filter.IDs)
	require.True(t, o.Filter.AllowMissing)
	require.True(t, s.PerQuery())
	require.Equal(t, []string{"d1", "d2"}, s.ForQuery(o, "a").Candidates)
	require.Equal(t, []string{}, s.ForQuery(o, "b").Candidates, "none at all, not any")
	src, err := vectors.Open(t.Context(), vectors.Files{Vectors: file(t, "q.jsonl", twoDocs+`{"_id": "c", "vectors": [[1, 0]]}`)})
	require.NoError(t, err)
	defer src.Close()
	n, first := s.CountWithoutCandidates(src)
	require.Equal(t, 2, n)
	require.Equal(t, "b", first)

	s = Search{}
	parse(t, s.Register, "--exhaustive", "--candidates", run)
	_, err = s.Options(t.Context())
	usage(t, err, "give one of them")
	s = Search{}
	parse(t, s.Register)
	o, err = s.Options(t.Context())
	require.NoError(t, err)
	require.Equal(t, search.Options{K: 10, AllowMissing: true}, o)
	require.False(t, s.PerQuery())
}

func TestJudging(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "qrels"), 0o755))
	for _, split := range []string{"test", "dev"} {
		text := "query-id\tcorpus-id\tscore\n" + split + "\td\t1\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, "qrels", split+".tsv"), []byte(text), 0o644))
	}
	for _, c := range []struct {
		args  []string
		query string
	}{
		{[]string{"--qrels", dir}, "test"}, {[]string{"--qrels", dir, "--split", "dev"}, "dev"},
		{[]string{"--qrels", filepath.Join(dir, "qrels", "dev.tsv")}, "dev"},
	} {
		var j Judging
		parse(t, func(f *pflag.FlagSet) { j.Register(f) }, c.args...)
		qrels, err := j.Load(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{c.query}, qrels.Queries())
	}
	none, err := new(Judging).LoadIfGiven(t.Context())
	require.NoError(t, err)
	require.Nil(t, none)
	_, err = new(Judging).Load(t.Context())
	usage(t, err, "--qrels is missing")
	j := Judging{split: "dev"}
	_, err = j.LoadIfGiven(t.Context())
	usage(t, err, "--split goes with --qrels")
	j.Qrels = filepath.Join(dir, "qrels", "dev.tsv")
	_, err = j.LoadIfGiven(t.Context())
	usage(t, err, "--split is for a folder")
}

func TestWhere(t *testing.T) {
	register := func(w *Where) func(*pflag.FlagSet) {
		return func(f *pflag.FlagSet) { w.Register(f, "what is done") }
	}
	var w Where
	parse(t, register(&w))
	c, err := w.Condition()
	require.NoError(t, err)
	require.Nil(t, c)
	w = Where{}
	parse(t, register(&w), "--where", "a = ? AND b = ?", "--param", "x,y", "--param=3")
	c, err = w.Condition()
	require.NoError(t, err)
	require.True(t, c.Match(new(condition.Evaluation).Document([]byte(`{"a": "x,y", "b": 3}`), "", 0)))
	for says, args := range map[string][]string{
		"--param goes with --where":           {"--param", "3"},
		"--where: condition: not a condition": {"--where", ""},
		"1 parameter for 2 question marks":    {"--where", "a IN (?, ?)", "--param", "3"},
	} {
		w = Where{}
		parse(t, register(&w), args...)
		_, err = w.Condition()
		usage(t, err, says)
	}
	var s Search
	parse(t, s.Register, "--where", "a = 3")
	o, err := s.Options(t.Context())
	require.NoError(t, err)
	require.Nil(t, o.Filter.IDs)
	require.Equal(t, "a = 3", o.Filter.Where.String())
}
