package encode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/vectors"
)

func parted(t require.TestingT, text Text, how Splitting) []Text {
	got, err := all(Passages(context.Background(), Texts(text), how))
	require.NoError(t, err)
	return got
}

func TestPassagesByWords(t *testing.T) {
	long := "one  two three\nfour five "
	got, err := all(Passages(context.Background(), Texts(
		Text{ID: "a", Text: long, Title: "T", Payload: []byte(`{"year":1}`)}, Text{ID: "b", Text: " two words "}, Text{ID: "c#1"},
	), Splitting{By: ByWords, Window: 3, Overlap: 1}))
	require.NoError(t, err)
	require.Equal(t, []Text{
		{ID: "a#0", Title: "T", Text: "one  two three", Payload: []byte(`{"_passage":{"of":"a","n":0,"start":0,"end":14},"year":1}`)},
		{ID: "a#1", Title: "T", Text: "three\nfour five", Payload: []byte(`{"_passage":{"of":"a","n":1,"start":9,"end":24},"year":1}`)},
		{ID: "b", Text: " two words "},
		{ID: "c#1"},
	}, got)
	again, err := all(Passages(context.Background(), Texts(got...), Splitting{By: ByWords, Window: 1}))
	require.NoError(t, err)
	require.Equal(t, []string{"a#0", "a#1", "b#0", "b#1", "c#1"}, ids(again), "passages stay")
}

func ids(texts []Text) (ids []string) {
	for _, t := range texts {
		ids = append(ids, t.ID)
	}
	return ids
}

func TestPassagesErrors(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		texts []Text
		how   Splitting
		want  string
	}{
		"overlap": {how: Splitting{By: ByWords, Window: 3, Overlap: 3}, want: "overlap by 3"},
		"unit":    {how: Splitting{By: "lines", Window: 3}, want: "lines"},
		"window":  {how: Splitting{}, want: "set how many words"},
		"id":      {[]Text{{Text: "a b c d"}}, Splitting{By: ByWords, Window: 3}, "has no id"},
		"payload": {[]Text{{ID: "x", Text: "a b c d", Payload: []byte("[1]")}}, Splitting{By: ByWords, Window: 3}, "JSON object"},
		"passage": {[]Text{{ID: "x", Text: "a", Payload: []byte(`{"_passage":{"of":"y","n":0}}`)}}, Splitting{By: ByWords, Window: 3}, `"y#0"`},
	} {
		_, err := all(Passages(context.Background(), Texts(c.texts...), c.how))
		require.ErrorContains(t, err, c.want, name)
	}
	_, err := all(Passages(context.Background(), func(yield func(Text, error) bool) { yield(Text{}, boom) }, Splitting{By: ByWords, Window: 3}))
	require.ErrorIs(t, err, boom)
}

func TestPassagesBySentences(t *testing.T) {
	text := "Dr. no stops here. It has 3.5 kg! \"Really?\" Yes\n\nA title\n\n一つ。二つ！ and a sentence that is much too long to stay whole"
	how := Splitting{By: BySentences, Window: 5}
	var got []string
	for _, p := range parted(t, Text{ID: "x", Text: text}, how) {
		got = append(got, p.Text)
	}
	require.Equal(t, []string{
		"Dr. no stops here.", "It has 3.5 kg! \"Really?\"", "Yes\n\nA title", "一つ。", "二つ！ and a", "sentence that is much too", "long to stay whole",
	}, got)
}

func TestPassagesByHeadings(t *testing.T) {
	text := "before\n# One\na b c d. E f g h.\n## Two #\n```\n# no heading\n```\n### \nx\n# Three\n#hash\n"
	var got [][2]string
	for _, p := range parted(t, Text{ID: "x", Title: "T", Text: text}, Splitting{By: ByHeadings, Window: 7}) {
		got = append(got, [2]string{p.Title, p.Text})
	}
	require.Equal(t, [][2]string{
		{"T", "before"},
		{"T", "# One\na b c d."},
		{"T › One", "E f g h."},
		{"T › One", "## Two #\n```\n# no heading"},
		{"T › One › Two", "```"},
		{"T › One › Two", "### \nx"},
		{"T", "# Three\n#hash"},
	}, got)
}

// Headings are those of CommonMark 0.31.2, sections 4.1 to 4.8, and a heading with nothing below it
// stays with what follows.
func TestHeadingsOfMarkdown(t *testing.T) {
	for text, want := range map[string][]string{
		"# C#\n## F# ##\n### a \t### \n#\tb\n":         {"1 C#", "2 F#", "3 a", "1 b"},
		"#5 bolt\n#hashtag\n\\## x\n####### seven\n":   nil,
		"# foo \\#\n## foo #\\##\n":                    {"1 foo \\#", "2 foo #\\##"},
		"## \n#\n### ###\n":                            {"2 ", "1 ", "3 "},
		" ### a\n  ## b\n   # c\n    # code\n\t# code": {"3 a", "2 b", "1 c"},
		"foo\n    # bar\n":                             nil,
		"Foo *bar*\n=========\n\nFoo\n bar\t \n---\n":  {"1 Foo *bar*", "2 Foo bar"},
		"Foo\n   ----  \n\nFoo\n=\nBar\n-\n":           {"2 Foo", "1 Foo", "2 Bar"},
		"Foo\n    ---\n\nFoo\n= =\n\nFoo\n--- -\n":     nil,
		"> Foo\n---\n> foo\nbar\n===\n- Foo\n---\n":    nil,
		"- a\nb\n---\n\n---\n\n    foo\n---\n":         nil,
		"a\n2) b\n---\n1) c\n---\n":                    {"2 a 2) b"},
		"a\n+\n---\n":                                  {"2 a +"},
		"***\na\n===\n***\n":                           {"1 a"},
		"````\n# a\n```\n# b\n`````\n# c\n":            {"1 c"},
		"```\n# a\n``` text\n# b\n   ```  \n# c\n":     {"1 c"},
		"```\n# a\n    ```\n# b":                       nil,
		"~~~ a ` b\n# a\n```\n# b\n~~~\n# c":           {"1 c"},
		"``` a`b\n# a\n``` b\n# c\n":                   {"1 a"},
		"    ```\n# a\n":                               {"1 a"},
		"<!--\n# a\n-->\n# b\n<pre>\n# c\n</PRE>\n# d": {"1 b", "1 d"},
		"<prefix>\n\n# a\n<!-- x --> y\n# b":           {"1 a", "1 b"},
		"---\ntitle: x\n# no\n---\n# a\n---\nb\n---\n": {"1 a", "2 b"},
		"---\n# a\n\nb\n---\n":                         {"1 a", "2 b"},
		"a\r\n===\r\n# b #\r\n":                        {"1 a", "1 b"},
	} {
		var got []string
		for h := range headings(text) {
			got = append(got, fmt.Sprint(h.level, " ", h.title))
		}
		require.Equal(t, want, got, "%q", text)
	}
	var got [][2]string
	text := "\n# One\n## Two\n\ntext a b. Text c d.\n# Three\n### Four\n## Five\nx\n\nSix\n===\ny\n\n# Last\n"
	for _, p := range parted(t, Text{ID: "x", Text: text}, Splitting{By: ByHeadings, Window: 8}) {
		got = append(got, [2]string{p.Title, p.Text})
	}
	require.Equal(t, [][2]string{
		{"", "# One\n## Two\n\ntext a b."},
		{"One › Two", "Text c d."},
		{"", "# Three\n### Four\n## Five\nx"},
		{"", "Six\n===\ny\n\n# Last"},
	}, got)
}

// Whatever a text is and however it is parted: each passage is the bytes that it says, no
// longer than it may be, and brings something; and nothing but white space is in none.
func TestPassagesCoverTheText(t *testing.T) {
	models := []*Config{nil}
	for _, name := range []string{"stanford", "xlmr", "sentence-modernbert"} {
		c := open(t, filepath.Join("testdata", "golden", name), nil).Config()
		models = append(models, &c)
	}
	rapid.Check(t, func(t *rapid.T) {
		how := Splitting{By: rapid.SampledFrom(Units()).Draw(t, "by"), Window: rapid.IntRange(1, 6).Draw(t, "size")}
		if c := rapid.SampledFrom(models).Draw(t, "model"); c != nil {
			how.Model, how.Window = c, rapid.IntRange(1, c.Document.Length/2).Draw(t, "tokens")
		}
		how.Overlap = rapid.IntRange(0, how.Window-1).Draw(t, "overlap")
		ready, err := how.resolveRules()
		require.NoError(t, err)
		piece := rapid.SampledFrom([]string{"a", "the cell", ".", "! ", " ", "\n", "\n\n", "# ", "## b", "```\n", "````", "    ", "===\n", "---\n", "-", "<!--", "-->", "> ", "。", "é", "\u00a0",
			"divides", "\"", "e\u0301\u0323", "ภาษาไทยไม่มี", "我们在这里，", "カタカナー", "aGVsbG8gd29ybGQ", strings.Repeat("x", 150), "👩\u200d👩\u200d👧", "🇩🇪🇫🇷"})
		title := rapid.SampledFrom([]string{"", "T", "The cell divides"}).Draw(t, "title")
		text := strings.Join(rapid.SliceOfN(piece, 0, 30).Draw(t, "text"), "")
		got := parted(t, Text{ID: "x", Title: title, Text: text}, how)
		reads := func(p Text) int {
			full := p.Full()
			if !ready.keepSpace {
				full = strings.TrimSpace(full)
			}
			n, err := ready.countTokens(ready.prompt + full)
			require.NoError(t, err)
			return n
		}
		if len(got) == 1 && got[0].ID == "x" {
			require.Equal(t, text, got[0].Text)
			if how.Model != nil {
				require.LessOrEqual(t, reads(got[0]), ready.maxTokens)
			}
			return
		}
		end := 0
		for n, p := range got {
			at, err := vectors.PassageFromPayload(p.ID, p.Payload)
			require.NoError(t, err)
			require.True(t, json.Valid(p.Payload))
			require.Equal(t, n, at.Number)
			require.Equal(t, text[at.Start:at.End], p.Text)
			require.Equal(t, strings.TrimSpace(p.Text), p.Text)
			require.Greater(t, at.End, end, "a passage of nothing new")
			require.Empty(t, strings.TrimFunc(text[end:max(at.Start, end)], unicode.IsSpace), "text that is in no passage")
			if utf8.RuneCountInString(p.Text) > 1 {
				size, err := ready.countTokens(p.Text)
				require.NoError(t, err)
				require.LessOrEqual(t, size, how.Window, "%q", p.Text)
				if how.Model != nil && title != "" && !strings.Contains(p.Title, "›") {
					require.LessOrEqual(t, reads(p), ready.maxTokens, "%q", p.Text)
				}
			}
			end = at.End
		}
		require.Empty(t, strings.TrimFunc(text[end:], unicode.IsSpace))
	})
}

// A long run of marks that ends no sentence is read once, not once for each mark.
func TestSentencesOfManyMarks(t *testing.T) {
	for _, text := range []string{strings.Repeat(".", 300_000) + "x", strings.Repeat("?!\"", 100_000) + "x", "a " + strings.Repeat("…)", 100_000) + "b. C"} {
		require.Len(t, parted(t, Text{ID: "x", Text: text}, Splitting{By: BySentences, Window: len(text)}), 1)
	}
	for text, want := range map[string]int{"..。x": 2, "a...\" b": 1, "a.\") B": 2, "!？\"x": 2, "…”x": 1, "a. b": 1, "a. B": 2} {
		require.Len(t, sentenceEnds(text), want, text)
	}
}

// Scripts without blanks between words are cut at characters, whatever is kept whole, and no
// passage has more than the window or what the model reads.
func TestPassagesWithoutBlanks(t *testing.T) {
	passagesWithoutBlanks(t, open(t, "testdata/golden/xlmr", nil), true)
	passagesWithoutBlanks(t, open(t, nano(t), nil), effort.Long())
}

func passagesWithoutBlanks(t *testing.T, e *Encoder, encoded bool) {
	c := e.Config()
	for name, text := range map[string]string{
		"commas":    strings.Repeat("我们在这里看到了许多不同的东西，", 400),
		"sentences": strings.Repeat("我们在这里看到了许多不同的东西。", 400),
		"thai":      strings.Repeat("ภาษาไทยไม่มีช่องว่างระหว่างคำ", 300),
		"base64":    strings.Repeat("aGVsbG8sIHdvcmxkIQ", 500),
		"marks":     strings.Repeat("e\u0301", 3000),
	} {
		for _, by := range Units() {
			for _, how := range []Splitting{{By: by, Window: 20}, {By: by, Model: &c}, {By: by, Window: 7, Overlap: 2, Model: &c}} {
				ready, err := how.resolveRules()
				require.NoError(t, err)
				parts := parted(t, Text{ID: "a", Title: "T", Text: text}, how)
				require.GreaterOrEqual(t, len(parts), 5, "%s by %s", name, by)
				for _, p := range parts {
					n, err := ready.countTokens(p.Text)
					require.NoError(t, err)
					require.LessOrEqual(t, n, ready.window, "%s by %s", name, by)
					first, _ := utf8.DecodeRuneInString(p.Text)
					require.False(t, unicode.Is(unicode.M, first), "%s by %s: %q begins within a character", name, by, p.Text)
				}
				if how.Model == nil || !encoded {
					continue
				}
				r := reported(t, e, parts)
				require.Equal(t, len(parts), r.Texts)
				require.Zero(t, r.Truncated, "%s by %s", name, by)
			}
		}
	}
}

// A word that is longer than the tokenizer reads would be one unknown token: it is taken apart, so
// that each passage has tokens that can be found.
func TestPassagesOfLongWords(t *testing.T) {
	e := open(t, nano(t), nil)
	c := e.Config()
	require.Equal(t, 100, c.Tokenizer.MaxWordLength())
	unknown, ok := c.Tokenizer.Unknown()
	require.True(t, ok)
	require.Equal(t, "[UNK]", c.Tokenizer.Piece(unknown))
	for _, by := range Units() {
		for _, window := range []int{50, 0} {
			how := Splitting{By: by, Window: window, Model: &c}
			for name, text := range map[string]string{
				"alone":   strings.Repeat("a", 1700),
				"spaced":  "  " + strings.Repeat("a", 101) + "\n",
				"between": "cats sleep by day " + strings.Repeat("acgt", 40) + " dogs bark at night",
			} {
				parts := parted(t, Text{ID: "a", Text: text}, how)
				require.Greater(t, len(parts), 1, "%s by %s", name, by)
				for _, p := range parts {
					ids, err := c.Tokenizer.EncodeIDs(nil, p.Text)
					require.NoError(t, err)
					require.NotContains(t, ids, unknown, "%s by %s: %q", name, by, p.Text)
				}
			}
			for _, short := range []string{strings.Repeat("a", 40), "cats sleep by day", strings.Repeat("☃", 40)} {
				require.Len(t, parted(t, Text{ID: "a", Text: short}, how), 1)
			}
		}
	}
	// A script that the model does not know is parted and counted.
	r := reported(t, e, []Text{{Text: strings.Repeat("a", 1700)}, {Text: "☃ ☃ ☃ cats ☃"}, {Text: "cats ☃"}, {Text: ""}})
	require.Equal(t, 2, r.Unknown)
	require.Contains(t, r.String(), "2 of unknown tokens")
}

// reported encodes texts, and returns the report.
func reported(t *testing.T, e *Encoder, texts []Text) (r Report) {
	for _, err := range e.DocumentsReport(t.Context(), Texts(texts...), &r) {
		require.NoError(t, err)
	}
	return r
}

// A window that the model does not read is refused by name, before a text is read, and a Window
// of 0 is all that it reads.
func TestWindowOfModel(t *testing.T) {
	e := open(t, "testdata/golden/xlmr", nil)
	c := e.Config()
	ready, err := Splitting{Model: &c}.resolveRules()
	require.NoError(t, err)
	most := ready.window
	require.Less(t, most, c.Document.Length)
	require.NoError(t, Splitting{Window: most, Model: &c}.Check())
	err = Splitting{Window: most + 1, Model: &c}.Check()
	require.ErrorContains(t, err, fmt.Sprintf("passages of %d tokens: the model reads at most %d", most+1, most))
	require.Error(t, Splitting{Overlap: most, Model: &c}.Check())
	// All that the model reads is used, and reported where a text has more.
	long := strings.Repeat("the cell divides ", 200)
	r := reported(t, e, []Text{{ID: "a", Text: long}})
	n, err := ready.countTokens(strings.TrimSpace(long))
	require.NoError(t, err)
	require.Equal(t, []int64{1, int64(n - most)}, []int64{int64(r.Truncated), r.Dropped})
	// A title that leaves no room is cut, and reported; the text is parted nevertheless.
	parts := parted(t, Text{ID: "a", Title: long, Text: long}, Splitting{Model: &c})
	r = reported(t, e, parts)
	require.Equal(t, len(parts), r.Truncated)
}

// Texts that are parted by many goroutines are the same, in the same order.
func TestPassagesOfThreads(t *testing.T) {
	var texts []Text
	for i := range 300 {
		texts = append(texts, Text{ID: fmt.Sprint(i), Text: strings.Repeat("one two three. ", i%9)})
	}
	one, err := all(Passages(t.Context(), Texts(texts...), Splitting{By: BySentences, Window: 4}))
	require.NoError(t, err)
	many, err := all(Passages(t.Context(), Texts(texts...), Splitting{By: BySentences, Window: 4, Threads: 4}))
	require.NoError(t, err)
	require.Equal(t, one, many)
	texts[200].ID = ""
	_, err = all(Passages(t.Context(), Texts(texts...), Splitting{By: BySentences, Window: 4, Threads: 4}))
	var te *TextError
	require.ErrorAs(t, err, &te)
	require.Equal(t, 200, te.Row)
}
