package encode

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/internal/testing/modeltest"
)

// shown is a text as the model sees it: pieces, in brackets those that are not
// kept, and how many are attended to.
func shown(t *testing.T, e *Encoder, r Role, text string) string {
	t.Helper()
	tokens, err := e.Tokenize(r, text)
	require.NoError(t, err)
	s, err := localOf(e).buildSequence(r, text, false)
	require.NoError(t, err)
	var list []string
	for _, k := range tokens {
		p := strings.TrimSpace(k.Piece)
		if !k.Kept {
			p = "(" + p + ")"
		}
		list = append(list, p)
	}
	return fmt.Sprint(strings.Join(list, " "), " /", s.attended)
}

// TestSequences: what the kinds of folders make of a text.
func TestSequences(t *testing.T) {
	dir := t.TempDir()
	modeltest.PyLate(t, dir, "bert")
	e := open(t, dir, nil)
	masks := strings.Repeat(" [MASK]", 10)
	require.Equal(t, "[CLS] [Q] the cell ! [SEP]"+masks+" /6", shown(t, e, Query, "the cell!"))
	require.Equal(t, "[CLS] [D] the cell (!) (,) . [SEP] /8", shown(t, e, Document, "the cell!,."))
	require.Equal(t, "[CLS] [Q]"+strings.Repeat(" a", 13)+" [SEP] /16", shown(t, e, Query, strings.Repeat("a ", 40)))
	// What users write may be a token too, as in the Python package.
	require.Equal(t, "[CLS] [D] [MASK] [D] a [SEP] /6", shown(t, e, Document, "[MASK] [D] a"))
	attend := true
	e = open(t, dir, &Options{Override: &modeldir.Override{Attend: &attend}, QueryLength: 8})
	require.Equal(t, "[CLS] [Q] a [SEP] [MASK] [MASK] [MASK] [MASK] /8", shown(t, e, Query, "a"))
	no := false
	e = open(t, dir, &Options{Override: &modeldir.Override{Expand: &no}})
	require.Equal(t, "[CLS] [Q] a [SEP] /4", shown(t, e, Query, "a"))

	dir = t.TempDir()
	modeltest.MultiVector(t, dir)
	e = open(t, dir, nil)
	require.Equal(t, "[CLS] [Q] query : the [SEP] [MASK] [MASK] [MASK] [MASK] [MASK] [MASK] /6", shown(t, e, Query, "the"))
	// Longer queries are not cut at the length that shorter ones are filled up to.
	require.Equal(t, "[CLS] [Q] query :"+strings.Repeat(" a", 20)+" [SEP] /25", shown(t, e, Query, strings.Repeat("a ", 20)))
	require.Equal(t, "[CLS] [D] a , (!) [SEP] /6", shown(t, e, Document, "a,!"))
	text := "  \u00e9 a"
	tokens, err := e.Tokenize(Query, text)
	require.NoError(t, err)
	require.Equal(t, []string{"", "", "", "", "\u00e9", "a", ""}, func() (spans []string) {
		for _, k := range tokens[:7] {
			spans = append(spans, text[k.Start:k.End])
		}
		return spans
	}())
	// What queries are filled up with may be skipped, too.
	mask := filepath.Join(dir, "2_MultiVectorMask", "config.json")
	modeltest.Edit(t, mask, map[string]any{"skiplist_words": []string{"[MASK]"}, "skiplist_tasks": "query"})
	require.Equal(t, "[CLS] [Q] query : the [SEP]"+strings.Repeat(" ([MASK])", 6)+" /6", shown(t, open(t, dir, nil), Query, "the"))
	// Ids that alone are kept of documents are not of queries.
	modeltest.Edit(t, mask, map[string]any{"skiplist_words": []string{","}, "skiplist_tasks": "document", "keep_only_token_ids": []int{3, 10, 14}})
	require.Equal(t, "([CLS]) ([D]) (a) (,) [SEP] /5", shown(t, open(t, dir, nil), Document, "a,"))
	require.Equal(t, "[CLS] [Q] query : a [SEP]"+strings.Repeat(" [MASK]", 6)+" /6", shown(t, open(t, dir, nil), Query, "a"))
	// Without a marker of documents there is none, and no room for it is kept.
	none := ""
	e = open(t, dir, &Options{Override: &modeldir.Override{DocumentPrompt: &none}, DocumentLength: 4})
	require.Equal(t, "([CLS]) (a) (a) [SEP] /4", shown(t, e, Document, "a a a"))

	em, err := e.Query(t.Context(), "the")
	require.NoError(t, err)
	require.Len(t, em.Vectors, 12*90)
	require.Equal(t, 90, e.Dim())

	long := 64
	_, err = Open(dir, &Options{QueryLength: 65})
	require.ErrorIs(t, err, modeldir.ErrConfig)
	require.ErrorContains(t, err, "query_length: 65: the model takes 64 at most")
	_, err = Open(dir, &Options{QueryLength: 3})
	require.ErrorIs(t, err, modeldir.ErrConfig)
	_, err = Open(dir, &Options{Tier: "none"})
	require.Error(t, err)
	open(t, dir, &Options{QueryLength: long})
}

// TestUnsupportedSizes are errors of the folder.
func TestUnsupportedSizes(t *testing.T) {
	dir := t.TempDir()
	modeltest.PyLate(t, dir, "bert")
	modeltest.Edit(t, dir+"/config.json", map[string]any{"num_attention_heads": 8})
	_, err := Open(dir, nil)
	require.ErrorIs(t, err, modeldir.ErrFamily)
	require.ErrorContains(t, err, "heads of 8 dimensions: want a multiple of 16")
}

// A text that is cut keeps no memory of the tokens beyond its length.
func TestCutTextsKeepFewTokens(t *testing.T) {
	dir := t.TempDir()
	modeltest.PyLate(t, dir, "bert")
	e := open(t, dir, nil)
	for _, role := range []Role{Query, Document} {
		for _, places := range []bool{false, true} {
			s, err := localOf(e).buildSequence(role, strings.Repeat("a ", 100_000), places)
			require.NoError(t, err)
			require.Positive(t, s.dropped)
			require.Less(t, cap(s.ids), 1000)
			require.Less(t, cap(s.pieceTokens), 1000)
		}
	}
}
