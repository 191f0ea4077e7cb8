package encode

import (
	"bytes"
	"errors"
	"iter"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/tokenizer"
	"github.com/plaid-ir/plaid/internal/testing/modeltest"
)

// FuzzTexts: whatever a file of texts has, reading it gives texts or names the
// file and the place.
func FuzzTexts(f *testing.F) {
	for i := range 4 {
		f.Add(uint8(i), []byte("{\"_id\": \"a\", \"title\": \"t\", \"text\": \"x\", \"metadata\": {\"y\": 1}}\n{\"id\": 7, \"text\": \"\\u00e9\"}\n"))
		f.Add(uint8(i), []byte("id,title,text,year\n1,a,\"b, \"\"c\"\"\",2020\n2,,\xff\n"))
		f.Add(uint8(i), []byte("0\tThe \"ferry\n1\twas\" late.\n"))
		f.Add(uint8(i), []byte("{\"text\": NaN}"))
		f.Add(uint8(i), []byte("\x28\xb5\x2f\xfd\x00"))
		f.Add(uint8(i), []byte("\xfd7zXZ\x00"))
		f.Add(uint8(i), []byte("\xef\xbb\xbfid\ttext\r\n1\ta\r\n\r\n"))
	}
	f.Fuzz(func(t *testing.T, kind uint8, content []byte) {
		name := filepath.Join(t.TempDir(), []string{"t.jsonl", "t.csv", "t.tsv", "lines"}[kind%4])
		modeltest.WriteFile(t, name, content)
		var texts iter.Seq2[Text, error]
		switch kind % 4 {
		case 0:
			texts = JSONL(t.Context(), name)
		case 1, 2:
			texts = new(Reader).Texts(t.Context(), name)
		default:
			texts = (&Reader{Format: FormatLines}).Read(t.Context(), bytes.NewReader(content), name)
		}
		ended := false
		for text, err := range Passages(t.Context(), texts, Splitting{By: Units()[int(kind/4)%4], Window: 3, Overlap: 1}) {
			require.False(t, ended, "there is something after an error")
			if err != nil {
				var te *TextError
				require.True(t, errors.As(err, &te), "%v", err)
				ended = true
				continue
			}
			require.True(t, utf8.ValidString(text.Title+text.Text))
		}
	})
}

// FuzzSequence: tokens of any text lie within it and in order, and what the
// model is given has the length that was promised.
func FuzzSequence(f *testing.F) {
	dir := f.TempDir()
	modeltest.MultiVector(f, dir)
	e := open(f, dir, nil)
	for _, s := range []string{"the cell!", " \u00e9 [MASK] ", "", "\xff", "[Q] [D] a\u0301"} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, text string, query bool) {
		role, most := Document, e.config.Document.Length
		if query {
			role, most = Query, e.config.Query.Length
		}
		tokens, err := e.Tokenize(role, text)
		if err != nil {
			require.ErrorIs(t, err, tokenizer.ErrText)
			return
		}
		require.LessOrEqual(t, len(tokens), most)
		at := 0
		for _, k := range tokens {
			require.True(t, k.Start >= 0 && k.Start <= k.End && k.End <= len(text))
			if k.End > 0 {
				require.GreaterOrEqual(t, k.Start, at)
				at = k.Start
			}
		}
	})
}
