package encode

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/engine"
	"github.com/plaid-ir/plaid/vectors"
)

// TestNano: a folder of Stanford's kind, from text to vectors, against PyTorch.
func TestNano(t *testing.T) {
	dir := nano(t)
	b, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	require.NoError(t, err)
	var texts []string
	require.NoError(t, json.Unmarshal(b, &texts))
	z, err := vectors.OpenNPZ(filepath.Join(dir, "golden.npz"))
	require.NoError(t, err)
	defer z.Close()
	e := open(t, dir, nil)
	require.Equal(t, 128, e.Dim())
	whole := open(t, dir, nil)
	localOf(whole).config.Document.Skip = false // the goldens have vectors of punctuation too
	for i, text := range texts {
		for role, name := range map[Role]string{Query: "query", Document: "document"} {
			// The goldens have vectors of the empty text too.
			s, err := localOf(e).sequence(role, text, false)
			require.NoError(t, err)
			require.Equal(t, intsOf(t, z, fmt.Sprintf("%s%d.ids", name, i)), s.ids)
			want := floatsOf(t, z, fmt.Sprintf("%s%d.vectors", name, i))
			var got []float32
			switch {
			case text == "":
				got = make([]float32, len(s.ids)*128)
				batch := engine.Batch{IDs: s.ids, Offsets: []int{0, len(s.ids)}, Attended: []int{s.attended}}
				require.NoError(t, localOf(e).engine.Encode(t.Context(), got, batch))
			case role == Query:
				em, err := e.Query(t.Context(), text)
				require.NoError(t, err)
				require.Len(t, em.Tokens, 32)
				got = em.Vectors
			default:
				for doc, err := range whole.Documents(t.Context(), Texts(Text{Text: text})) {
					require.NoError(t, err)
					got = append(got, doc.Tokens...)
				}
			}
			d := difference(t, want, got)
			t.Logf("%s %d: %d vectors, largest difference %.3g", name, i, len(want)/128, d)
			require.Less(t, d, 3e-6)
		}
	}
}

func TestTokenize(t *testing.T) {
	e := open(t, nano(t), nil)
	text := "  Cells (of \u00e9lan).\n"
	tokens, err := e.Tokenize(Document, text)
	require.NoError(t, err)
	var shown []string
	for _, k := range tokens {
		mark := "-"
		if k.Kept {
			mark = "+"
		}
		shown = append(shown, mark+k.Piece+"="+text[k.Start:k.End])
	}
	require.Equal(t, "+[CLS]= +[unused1]= +cells=Cells -(=( +of=of +elan=\u00e9lan -)=) -.=. +[SEP]=",
		strings.ReplaceAll(strings.Join(shown, " "), "+el=\u00e9l +##an=an", "+elan=\u00e9lan"))
	for doc, err := range e.Documents(t.Context(), Texts(Text{Text: text})) {
		require.NoError(t, err)
		require.Len(t, doc.Tokens, 6*128+128*strings.Count(strings.Join(shown, " "), "##"))
	}
	tokens, err = e.Tokenize(Query, "cells")
	require.NoError(t, err)
	require.Len(t, tokens, 32)
	require.Equal(t, "[unused0]", tokens[1].Piece)
	require.Equal(t, Token{ID: 6, Piece: "[MASK]", Kept: true}, tokens[31])
	tokens, err = e.Tokenize(Document, " \n\u3000")
	require.NoError(t, err)
	require.Empty(t, tokens)
}

// TestCut: what is too long loses its end, but not the token that ends it.
func TestCut(t *testing.T) {
	e := open(t, nano(t), &Options{DocumentLength: 10})
	var r Report
	texts := []Text{{Text: strings.Repeat("cell ", 50)}, {Text: ""}, {Text: "cell"}, {Title: "cell"}}
	var lengths []int
	for doc, err := range e.DocumentsReport(t.Context(), Texts(texts...), &r) {
		require.NoError(t, err)
		lengths = append(lengths, len(doc.Tokens)/128)
	}
	require.Equal(t, []int{10, 0, 4, 4}, lengths)
	require.Equal(t, Report{Texts: 4, Empty: 1, Truncated: 1, Tokens: 18, Vectors: 18}, r)
	tokens, err := e.Tokenize(Document, texts[0].Text)
	require.NoError(t, err)
	require.Equal(t, "[SEP]", tokens[9].Piece)
	require.Equal(t, "cell", texts[0].Text[tokens[8].Start:tokens[8].End])
}
