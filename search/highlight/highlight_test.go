package highlight

import (
	"html"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/search"
)

// threes is a tokenizer whose tokens are three bytes of the text each, whatever these are.
type threes struct{}

func (threes) Tokenize(_ encode.Role, text string) (tokens []encode.Token, _ error) {
	tokens = append(tokens, encode.Token{Piece: "[CLS]", Kept: true})
	for i := 0; i < len(text); i += 3 {
		tokens = append(tokens, encode.Token{Start: i, End: min(i+3, len(text)), Kept: text[i] != '.'})
	}
	return tokens, nil
}

// placeless knows no tokens, as a server does not tell them.
type placeless struct{}

func (placeless) Tokenize(encode.Role, string) ([]encode.Token, error) { return nil, nil }

// pooling is an encoder whose model pools tokens.
type pooling struct{ threes }

func (pooling) Config() encode.Config { return encode.Config{Pool: 2} }

func TestSpans(t *testing.T) {
	payload := []byte(`{"title":"About birds","text":"Singing birds & <b>fish</b>, 鳥が鳴く","page_content":"x"}`)
	d, err := FindSourceText(threes{}, payload, nil, len(mustKept(t, "About birds Singing birds & <b>fish</b>, 鳥が鳴く")), 0)
	require.NoError(t, err)
	question := "singing bird?"
	asked := mustKept(t, question)
	at := func(part string) int { // the token that begins in the first three bytes of it
		i := strings.Index(d.Text, part)
		return slices.IndexFunc(d.Tokens, func(t encode.Token) bool { return t.Start >= i && t.End > t.Start })
	}
	spans := d.Spans(question, asked, []search.Match{
		{QueryToken: 0, DocToken: 0, Weight: 1, Score: 0.9}, // what models put around a text is no word
		{QueryToken: 1, DocToken: at("Singing"), Weight: 1, Score: 0.5},
		{QueryToken: 2, DocToken: at("Singing") + 1, Weight: 2, Score: 0.25}, // the same two words
		{QueryToken: 4, DocToken: at("birds"), Weight: 1, Score: 0.75},
		{QueryToken: 4, DocToken: at("鳥"), Weight: 1, Score: 0.5},
		{QueryToken: 99, DocToken: 1}, {QueryToken: 1, DocToken: 99}, // of another text
	})
	require.Equal(t, []Span{
		{Field: "title", Start: 6, End: 11, Text: "birds", Word: "bird", WordStart: 8, WordEnd: 12, Score: 0.75},
		{Field: "text", Start: 0, End: 7, Text: "Singing", Word: "singing", WordEnd: 7, Score: 1},
		spans[2],
	}, spans)
	require.True(t, strings.Contains("鳥が鳴く", spans[2].Text) && len(spans[2].Text) <= 9, spans[2].Text)
	text := "Singing birds & <b>fish</b>, 鳥が鳴く"
	require.Equal(t, "<mark>Singing</mark> birds &amp; &lt;b&gt;fish&lt;/b&gt;, ", HTML(text, "text", spans[:2])[:len("<mark>Singing</mark> birds &amp; &lt;b&gt;fish&lt;/b&gt;, ")])

	_, err = FindSourceText(threes{}, []byte(`{"n":1}`), nil, 1, 0)
	require.ErrorIs(t, err, ErrNoText)
	_, err = FindSourceText(threes{}, payload, nil, 999, 0)
	require.ErrorIs(t, err, ErrOtherText)
	require.True(t, IsUnknown(err))
	_, err = FindSourceText(threes{}, payload, nil, 2, 2)
	require.ErrorIs(t, err, ErrPooled, "whatever the number of tokens")
	_, err = FindSourceText(pooling{}, payload, nil, 2, 0)
	require.ErrorIs(t, err, ErrPooled, "by the model")
	_, err = KeptTokens(placeless{}, encode.Query, "birds")
	require.ErrorIs(t, err, ErrNoPieces)
	_, err = KeptTokens(placeless{}, encode.Query, " ")
	require.NoError(t, err)
	d, err = FindSourceText(threes{}, payload, []string{"page_content"}, 2, 0)
	require.NoError(t, err)
	require.Equal(t, "x", d.Text)
}

func mustKept(t *testing.T, text string) []encode.Token {
	kept, err := KeptTokens(threes{}, encode.Query, text)
	require.NoError(t, err)
	return kept
}

// Whatever a text is and whatever matched: spans are whole characters of their field, in
// order, and marks change nothing but where they are.
func TestSpansOfAnyText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "bird", " ", "鳥", "é", "\u0301", "<b>", "&", "\x1b[1m", ".", "🐦", "\n"}), 0, 20)
		d := &SourceText{}
		for _, name := range []string{"title", "text"} {
			if s := strings.Join(parts.Draw(t, name), ""); s != "" {
				if d.Text != "" {
					d.Text += " "
				}
				d.fields = append(d.fields, field{name, s, len(d.Text)})
				d.Text += s
			}
		}
		question := strings.Join(parts.Draw(t, "question"), "")
		d.Tokens, _ = KeptTokens(threes{}, encode.Document, d.Text)
		asked, _ := KeptTokens(threes{}, encode.Query, question)
		var matches []search.Match
		for i := range asked {
			matches = append(matches, search.Match{
				QueryToken: i, DocToken: rapid.IntRange(0, len(d.Tokens)-1).Draw(t, "token"), Weight: 1, Score: rapid.Float64Range(0, 1).Draw(t, "score"),
			})
		}
		spans := d.Spans(question, asked, matches)
		for _, f := range d.fields {
			last := -1
			for _, s := range spans {
				if s.Field != f.name {
					continue
				}
				require.GreaterOrEqual(t, s.Start, last)
				last = s.Start
				require.Equal(t, f.text[s.Start:s.End], s.Text)
				require.Equal(t, question[s.WordStart:s.WordEnd], s.Word)
				require.True(t, utf8.ValidString(s.Text) && utf8.ValidString(s.Word) && s.Text != "" && s.Word != "")
			}
			marked := HTML(f.text, f.name, spans)
			plain := strings.ReplaceAll(strings.ReplaceAll(marked, "<mark>", ""), "</mark>", "")
			require.NotContains(t, plain, "<")
			require.Equal(t, f.text, html.UnescapeString(plain))
			size := rapid.IntRange(1, 30).Draw(t, "size")
			start, end := BestWindow(f.text, f.name, spans, size)
			require.True(t, utf8.ValidString(f.text[start:end]))
		}
	})
}
