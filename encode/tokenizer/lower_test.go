package tokenizer

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLowerFirst: Python's str.lower gave the second column; places stay those of the given text.
func TestLowerFirst(t *testing.T) {
	for text, want := range map[string]string{
		"Cells [MASK]": "cells [mask]", "ΟΔΟΣ": "οδος", "ΟΔΟΣ.": "οδος.", "ΟΔΟΣ.Σ": "οδοσ.ς", "Σ": "σ", "ΣΑΣ ΣΑ": "σας σα",
		"A\u0345Σ": "a\u0345ς", "aΣ\u2019b": "aσ\u2019b", "İx": "i\u0307x", "ǅ": "ǆ", "\u2160Σ": "\u2170ς", "1Σ": "1σ", "": "",
		"A" + strings.Repeat("\u0301", 2000) + "Σ": "a" + strings.Repeat("\u0301", 2000) + "σ", // farther than is looked
	} {
		w := &scratch{track: true}
		w.input.reset(true)
		for i, r := range text {
			w.input.appendRune(r, span{int32(i), int32(i + len(string(r)))})
		}
		w.lowerInput()
		require.Equal(t, want, string(w.input.text), "%q", text)
		require.Len(t, w.input.sources, len(want))
	}
	tok, err := Parse([]byte(tinyWordPiece))
	require.NoError(t, err)
	same, err := tok.Encode("[UNK] CAFES")
	require.NoError(t, err)
	tok.LowerFirst()
	lower, err := tok.Encode("[UNK] CAFES")
	require.NoError(t, err)
	require.Equal(t, []Token{{0, 0, 5}, {3, 6, 10}, {4, 10, 11}}, same)
	require.Equal(t, []Token{{0, 0, 1}, {0, 1, 4}, {0, 4, 5}, {3, 6, 10}, {4, 10, 11}}, lower)
}
