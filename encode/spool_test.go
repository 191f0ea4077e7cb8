package encode

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/vectors"
)

const (
	spoolChild   = "PLAID_TEST_SPOOL"
	spoolVectors = "PLAID_TEST_SPOOL_VECTORS"
)

// TestSpoolChild is the process that TestSpoolKilled kills: it encodes some
// texts, says so, and waits for the end.
func TestSpoolChild(t *testing.T) {
	path := os.Getenv(spoolChild)
	if path == "" {
		t.Skip("only as a child")
	}
	docs := short(load(t, "scifact-sample").docs)
	e := chunked(open(t, nano(t), &Options{Threads: 1}), 50)
	Spool(t.Context(), e, func(yield func(Text, error) bool) {
		for i, d := range docs {
			if i == 2*spoolFlush { // of which some are still in the queue
				fmt.Println("ready")
				select {}
			}
			yield(d, nil)
		}
	}, path, &SpoolOptions{Vectors: os.Getenv(spoolVectors)})
}

// TestSpoolKilled: what was encoded before a kill is not encoded again, and the
// file is then as if nothing had happened; also where the vectors are in another file.
func TestSpoolKilled(t *testing.T) {
	effort.SkipBrief(t, "processes are killed")
	docs := short(load(t, "scifact-sample").docs[:2*spoolFlush+4])
	e := open(t, nano(t), nil)
	for _, apart := range []bool{false, true} {
		if !apart && !effort.Long() {
			continue
		}
		t.Run(fmt.Sprintf("apart=%v", apart), func(t *testing.T) { spoolKilled(t, e, docs, apart) })
	}
}

func spoolKilled(t *testing.T, e *Encoder, docs []Text, apart bool) {
	options := func(path string) *SpoolOptions {
		o := &SpoolOptions{}
		if apart {
			o.Vectors = path + ".vectors"
		}
		return o
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "killed")
	cmd := exec.Command(os.Args[0], "-test.run=^TestSpoolChild$", "-test.v")
	cmd.Env = append(os.Environ(), spoolChild+"="+path, spoolVectors+"="+options(path).Vectors)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "ready"; {
	}
	require.NoError(t, cmd.Process.Kill())
	cmd.Wait()

	s, r, err := Spool(t.Context(), e, Texts(docs...), path, options(path))
	require.NoError(t, err)
	require.Positive(t, r.Resumed)
	require.Equal(t, len(docs), r.Resumed+r.Texts)
	require.Equal(t, len(docs), s.Len())
	require.NoError(t, s.Close())
	t.Logf("%d of %d documents were there", r.Resumed, len(docs))

	whole := filepath.Join(dir, "whole")
	s, r, err = Spool(t.Context(), e, Texts(docs...), whole, options(whole))
	require.NoError(t, err)
	require.Equal(t, []int{0, len(docs)}, []int{r.Resumed, r.Texts})
	require.NoError(t, s.Close())
	a, err := os.ReadFile(path)
	require.NoError(t, err)
	b, err := os.ReadFile(whole)
	require.NoError(t, err)
	require.Equal(t, b, a)
	if apart {
		a, err = os.ReadFile(path + ".vectors")
		require.NoError(t, err)
		b, err = os.ReadFile(whole + ".vectors")
		require.NoError(t, err)
		require.Equal(t, b, a)
	}

	// All is there: nothing is left to do.
	s, r, err = Spool(t.Context(), e, Texts(docs...), path, options(path))
	require.NoError(t, err)
	require.Equal(t, []int{len(docs), 0}, []int{r.Resumed, r.Texts})
	require.NoError(t, s.Close())

	_, _, err = Spool(t.Context(), open(t, nano(t), &Options{Precision: Int8}), Texts(docs...), path, options(path))
	require.ErrorIs(t, err, vectors.ErrSpool)
	_, _, err = Spool(t.Context(), open(t, nano(t), &Options{DocumentLength: 100}), Texts(docs...), path, options(path))
	require.ErrorIs(t, err, vectors.ErrSpool)
}

func TestBlocks(t *testing.T) {
	const code = `package a

import "fmt"

// A says a.
func A() {
	fmt.Println("a")

	fmt.Println("b")
}

// B says
// nothing.
func B() {
}
`
	for size, want := range map[int][]string{
		7: {"package a\n\nimport \"fmt\"", "// A says a.\nfunc A() {", "fmt.Println(\"a\")\n\n\tfmt.Println(\"b\")\n}\n\n// B says", "// nothing.\nfunc B() {\n}"}, // lines, since a block is too long
		10: {"package a\n\nimport \"fmt\"", "// A says a.\nfunc A() {\n\tfmt.Println(\"a\")\n\n\tfmt.Println(\"b\")\n}",
			"// B says\n// nothing.\nfunc B() {\n}"},
	} {
		var got []string
		for _, x := range parted(t, Text{ID: "x", Text: code}, Splitting{By: ByBlocks, Window: size}) {
			got = append(got, x.Text)
		}
		require.Equal(t, want, got, size)
	}
}
