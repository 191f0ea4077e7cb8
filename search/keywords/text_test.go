package keywords

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"

	"github.com/plaid-ir/plaid/internal/testing/effort"
)

func TestValues(t *testing.T) {
	for _, x := range []struct {
		payload string
		fields  []string
		want    []string
	}{
		{"plain text, {not} JSON", nil, []string{"plain text, {not} JSON"}},
		{"plain text", []string{"title"}, []string{"plain text"}},
		{"", nil, []string{""}},
		{"\xff\xfe", nil, nil},
		{`"a string"`, []string{"title"}, []string{"a string"}},
		{`12.50`, nil, []string{"12.50"}},
		{`null`, nil, nil},
		{`{}`, nil, nil},
		{`{"a": "x", "b": [1, true, false, null, {"c": "y", "d": ""}], "e": {"f": {"g": "z"}}}`, nil, []string{"x", "1", "true", "false", "y", "z"}},
		{`{"a": "x", "b": [1, {"c": "y"}], "e": {"f": {"g": "z"}}}`, []string{"b.c", "e"}, []string{"y", "z"}},
		{`{"a": "x", "ab": "y"}`, []string{"a"}, []string{"x"}},
		{`{"a": {"a": "x"}, "b": "y"}`, []string{"b"}, []string{"y"}},
		{`[{"a": "x"}, "y"]`, []string{"b"}, []string{"x", "y"}},
		{`{"a": "caf\u00e9"}`, nil, []string{"café"}},
		{`{"text": "x", "_passage": {"of": "y", "n": 1}, "z": {"_passage": 2}, "l": ["_passage", 3]}`, nil, []string{"x", "2", "_passage", "3"}},
		{`{"text": "x", "_passage": {"of": "y", "n": 1}}`, []string{"_passage.of"}, []string{"y"}},
	} {
		require.Equal(t, x.want, payloadTexts(nil, []byte(x.payload), x.fields), x.payload)
	}
}

func terms(s Settings, text string) string {
	var out []string
	for _, t := range newAnalyzer(s).documentTokens(nil, []string{text}) {
		out = append(out, fmt.Sprintf("%s@%d", t.term, t.pos))
	}
	return strings.Join(out, " ")
}

// Fields have one rule, that of conditions.
func TestFieldsAreThoseOfConditions(t *testing.T) {
	payload := []byte(`{"Author": {"NAME": "one"}, "author.name": ["two"], "authors": [{"Name": "three"}],
		"Publication Date": "four", "in": "five", "É": "six"}`)
	for field, want := range map[string][]string{
		"author.name": {"one", "two"}, `"Author.Name"`: {"one", "two"}, "AUTHORS.name": {"three"}, "authors": {"three"},
		"publication date": {"four"}, `"Publication Date"`: {"four"}, "in": {"five"}, `"in"`: {"five"}, "É": {"six"}, "é": nil,
	} {
		s, err := Settings{Fields: []string{field}}.Check()
		require.NoError(t, err)
		require.Equal(t, want, payloadTexts(nil, payload, s.Fields), field)
	}
}

func TestWordsOfTexts(t *testing.T) {
	words := Settings{Tokenizer: Unicode61}
	stemmed := Settings{Tokenizer: Unicode61, Stemmer: English, StopWords: English}
	for _, x := range []struct {
		s          Settings
		text, want string
	}{
		{words, "Don't PANIC: 42, x_y—z!", "don@0 t@1 panic@2 42@3 x@4 y@5 z@6"},
		{words, "Crème BRÛLÉE Ångström e\u0301", "creme@0 brulee@1 angstrom@2 e@3"},
		{words, "ΣΊΣΥΦΟΣ σίσυφος", "σισυφοσ@0 σισυφοσ@1"},
		{words, "Straße ﬁne m²", "straße@0 fine@1 m2@2"},
		{words, "co\u00adop zero\u200bwidth", "coop@0 zerowidth@1"},
		{words, "हिन्दी が", "ह\u093fन\u094dद\u0940@0 が@1"}, // marks that are vowels, or make another letter
		{words, "שָׁלוֹם", "שלום@0"},
		{words, "broken \xff bytes", "broken@0 bytes@1"},
		{words, "", ""},
		{words, strings.Repeat("é", 200), strings.Repeat("e", maxTermBytes) + "@0"},
		{words, "東京都 x 茶", "東@0 東京@0 京@1 京都@1 都@2 x@3 茶@4"},
		{words, "iPhone15を買う。", "iphone15@0 を@1 を買@1 買@2 買う@2 う@3"},
		{words, "ｶﾞｽ ガス ㍿", "ガ@0 ガス@0 ス@1 ガ@2 ガス@2 ス@3 株@4 株式@4 式@5 式会@5 会@6 会社@6 社@7"},
		{words, "葛\U000e0100城 \U00020bb7野 \uf9d1", "葛@0 葛城@0 城@1 𠮷@2 𠮷野@2 野@3 六@4"},
		{words, "한국어 \u1112\u1161\u11ab ㅋㅋ", "한@0 한국@0 국@1 국어@1 어@2 한@3 ᄏ@4 ᄏᄏ@4 ᄏ@5"},
		{words, "ที่นี่ コーヒー", "ที\u0e48@0 ที\u0e48นี\u0e48@0 นี\u0e48@1 コ@2 コー@2 ー@3 ーヒ@3 ヒ@4 ヒー@4 ー@5"},
		{words, "ང་ཚོ", "ང@0 ཚ\u0f7c@1"},
		{stemmed, "The running of the cells", "run@1 cell@4"},
		{Settings{Tokenizer: Trigram}, " Größe  x ", "gro@0 roß@1 oße@2 ße @3 e x@4  x @5 x  @6"},
		{Settings{Tokenizer: Trigram}, "  ", ""},
	} {
		require.Equal(t, x.want, terms(x.s, x.text), x.text)
	}
	for _, token := range newAnalyzer(words).documentTokens(nil, []string{"字" + strings.Repeat("\u3099", 200) + "字"}) {
		require.LessOrEqual(t, len(token.term), maxTermBytes)
	}
}

func TestTrigrams(t *testing.T) {
	kw, _ := made(t, Settings{Tokenizer: Trigram}, texts(
		"func ReadAll(r io.Reader)", "the reader of books", "東京都に住む", "ab", "xyz ab cd",
	)...)
	for _, x := range []struct {
		text string
		mode Mode
		want []uint32
	}{
		{"reader", Words, []uint32{0, 1}},
		{"eade", Words, []uint32{0, 1}},
		{"(io.Reader?!", Words, []uint32{0, 1}}, // words in it: io, reader
		{`"io.Read"`, Expression, []uint32{0}},
		{`"all(r io"`, Expression, []uint32{0}},
		{"io.read", Expression, []uint32{0}},
		{"京都", Words, []uint32{2}},
		{"東京都の天気は？", Words, []uint32{2}}, // no word of it is known
		{"む", Words, []uint32{2}},
		{"ab", Words, []uint32{3, 4}},
		{`"z ab c"`, Expression, []uint32{4}},
		{"read* -books", Expression, []uint32{0}},
		{"nowhere", Words, []uint32{}},
		{"?", Words, []uint32{}},
	} {
		require.ElementsMatch(t, x.want, ordinals(search1(t, kw, Query{Text: x.text, Mode: x.mode})), x.text)
	}
}

// A sentence is words, whatever signs are in it.
func TestPlainSentences(t *testing.T) {
	kw, _ := made(t, Settings{}, texts("what makes cells divide", "red cells", "nothing")...)
	for _, text := range []string{
		`what makes cells divide?`, `"cells`, `cells AND (divide OR`, `-cells +divide*`, `NOT cells ^2 ~ : \ /`, "cells\x00divide",
	} {
		require.Contains(t, ordinals(search1(t, kw, Query{Text: text})), uint32(0), text)
	}
	once, twice := search1(t, kw, Query{Text: "cells divide"}), search1(t, kw, Query{Text: "cells cells divide"})
	require.Greater(t, twice[1].Score, once[1].Score, "a word that is there twice counts twice")
}

func TestExpressions(t *testing.T) {
	kw, _ := made(t, Settings{}, texts("red fox", "red dog", "a fox and a dog", "foxes", "dog red")...)
	for _, x := range []struct {
		text string
		want []uint32
	}{
		{"red", []uint32{0, 1, 4}},
		{"fox*", []uint32{0, 2, 3}},
		{"+red dog", []uint32{0, 1, 4}},
		{"+red +dog", []uint32{1, 4}},
		{"red -dog", []uint32{0}},
		{`"red dog"`, []uint32{1}},
		{`+"red dog" fox`, []uint32{1}},
		{`dog -"red dog"`, []uint32{2, 4}},
		{"red-dog", []uint32{1}}, // a word with signs in it is a phrase
		{"+nothing red", []uint32{}},
		{"fox* -foxes", []uint32{0, 2}},
		{"  ", []uint32{}},
		{"?!", []uint32{}},
	} {
		require.ElementsMatch(t, x.want, ordinals(search1(t, kw, Query{Text: x.text, Mode: Expression})), x.text)
	}
}

func TestSyntaxErrors(t *testing.T) {
	kw, _ := made(t, Settings{}, texts("red fox")...)
	for _, x := range []struct {
		text, message string
		offset        int
	}{
		{`red "fox`, "the quotation mark is not closed", 4},
		{`red ""`, "there is nothing between the quotation marks", 4},
		{`"red"fox`, "a blank is missing after the quotation mark", 5},
		{`re"d fox"`, "a quotation mark within a word", 2},
		{`red +`, `"+" stands alone`, 4},
		{`- red`, `"-" stands alone`, 0},
		{`*`, `"*" stands alone`, 0},
		{`r*d`, `"*" is for the end of a word`, 1},
		{`red a.b*`, "a prefix is one word of letters and digits", 4},
		{`-red`, "it has excluded items only", 0},
		{"red \xff", "the text is not UTF-8", 0},
	} {
		_, err := kw.Search(context.Background(), Query{Text: x.text, Mode: Expression, K: 1})
		require.ErrorIs(t, err, ErrSyntax, x.text)
		var syntax *SyntaxError
		require.ErrorAs(t, err, &syntax)
		require.Equal(t, SyntaxError{Query: x.text, Offset: x.offset, Reason: x.message}, *syntax, x.text)
	}
}

func TestBadQueries(t *testing.T) {
	kw, _ := made(t, Settings{}, texts("red fox")...)
	for _, q := range []Query{
		{Text: "red"}, {Text: "red", K: -1}, {Text: "red", K: 1, Mode: 7},
		{Text: "red", K: 1, BM25: &BM25{K1: -1}}, {Text: "red", K: 1, BM25: &BM25{K1: 1, B: 1.5}},
	} {
		_, err := kw.Search(context.Background(), q)
		require.ErrorIs(t, err, ErrOption, "%+v", q)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := kw.Search(ctx, Query{Text: "red", K: 1})
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, search1(t, kw, Query{Text: "red", Filter: roaring.New()}))
	for _, s := range []Settings{
		{Tokenizer: "words"}, {Stemmer: "klingon"}, {StopWords: "klingon"}, {Tokenizer: Trigram, Stemmer: English}, {Fields: []string{""}},
	} {
		_, err := Open(context.Background(), "x", &Options{Settings: &s})
		require.ErrorIs(t, err, ErrOption, "%+v", s)
	}
	for _, o := range []Options{{Memory: -1}, {LockTimeout: -1}} {
		_, err := Open(context.Background(), "x", &o)
		require.ErrorIs(t, err, ErrOption)
	}
}

// Any text is a query: it is answered, or its fault is named within it.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"red fox", `+"a b" -c* d`, `"`, "*", "-", "é\u0301 東京 \xff", `a"b"`, "+ -", "\u00ad*", `"?" x`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range []Settings{{Tokenizer: Unicode61}, {Tokenizer: Unicode61, Stemmer: English, StopWords: English}, {Tokenizer: Trigram}} {
			units, err := parse(Query{Text: text}, s)
			if errors.Is(err, ErrTooLong) {
				continue
			}
			require.NoError(t, err)
			for _, u := range units {
				require.Equal(t, may, u.occur)
			}
			more, err := parse(Query{Text: text, Mode: Expression}, s)
			if err != nil && !errors.Is(err, ErrTooLong) {
				var syntax *SyntaxError
				require.ErrorAs(t, err, &syntax)
				require.True(t, syntax.Offset >= 0 && syntax.Offset <= len(text))
			}
			for _, u := range append(units, more...) {
				require.NotEmpty(t, u.terms)
				require.GreaterOrEqual(t, u.weight, 1.)
				require.True(t, len(u.positions) == len(u.terms) || len(u.positions) == 0 && len(u.terms) == 1)
				for i, term := range u.terms {
					require.NotEmpty(t, term)
					if i > 0 {
						require.Greater(t, u.positions[i], u.positions[i-1])
					}
				}
			}
		}
	})
}

// What is found with the words of a text is that text.
func FuzzTexts(f *testing.F) {
	f.Add([]byte(`{"a": ["Über den Wolken", 12]}`), "a")
	f.Add([]byte("plain é\u0301 text"), "")
	f.Fuzz(func(t *testing.T, payload []byte, field string) {
		var fields []string
		if field != "" {
			fields = []string{field}
		}
		for _, s := range []Settings{{Tokenizer: Unicode61, Fields: fields}, {Tokenizer: Trigram}} {
			a := newAnalyzer(s)
			tokens := a.documentTokens(nil, payloadTexts(nil, payload, s.Fields))
			b := newBatch()
			b.add(0, 0, a, payloadTexts(nil, payload, s.Fields))
			require.Equal(t, uint32(len(tokens)), b.docs[0].length)
			src := b.sortedSource()
			n := 0
			for src.current() != nil {
				ps, err := src.postings(nil)
				require.NoError(t, err)
				var e encoder
				l, err := openList([]byte("k"), e.encode([]byte("k"), ps))
				require.NoError(t, err)
				back, err := l.appendPostings(nil, []byte("k"), 1)
				require.NoError(t, err)
				require.Equal(t, ps, back)
				n += int(ps[0].tf)
				require.NoError(t, src.advance())
			}
			require.Equal(t, len(tokens), n)
		}
	})
}

// Bytes that are no list are found out.
func FuzzList(f *testing.F) {
	var e encoder
	f.Add(e.encode([]byte("k"), []posting{{0, 1, []byte{3}}, {200, 2, []byte{1, 0x80, 1}}}))
	f.Fuzz(func(t *testing.T, value []byte) {
		l, err := openList([]byte("k"), value)
		if err == nil {
			_, _ = l.appendPostings(nil, []byte("k"), 300)
		}
		raw := storedList{docs: 300, blocks: value, positions: withChecksum([]byte("k"), nil)}
		_, _ = raw.appendPostings(nil, []byte("k"), 300)
		if s, err := decodeDocs(value); err == nil {
			require.Equal(t, value, encodeDocs(s.docs)[:len(value)])
		}
	})
}

// A long text is decomposed in pieces, which changes nothing, and is given up in the middle.
func TestLongTexts(t *testing.T) {
	defer func(n int) { bytesPerCheck = n }(bytesPerCheck)
	bytesPerCheck = effort.Cases(1<<9, bytesPerCheck)
	for name, unit := range map[string]string{
		"words": "Größe cafe\u0301 ", "no blanks": "漢字ｶﾞ", "marks": "e\u0301\u0323", "Hangul": "각\u1100\u1161\u11a8", "bad bytes": "a\xc3\xe2\x82", "letters": "é",
	} {
		for shift := range 4 {
			text := strings.Repeat("x", shift) + strings.Repeat(unit, 3*bytesPerCheck/len(unit))
			a := newAnalyzer(Settings{Tokenizer: Unicode61})
			require.Equal(t, norm.NFKD.String(text), a.decompose(text), name)
		}
		for _, s := range []Settings{{Tokenizer: Unicode61}, {Tokenizer: Trigram}} {
			text := strings.Repeat(unit, 4*bytesPerCheck/len(unit))
			a, asked := newAnalyzer(s), 0
			a.stopRequested = func() bool { asked++; return false }
			whole := a.documentTokens(nil, []string{text, "end"})
			require.GreaterOrEqual(t, asked, 4, name)
			all := asked
			for last := 1; last < all; last += 1 + all/4 {
				a, asked = newAnalyzer(s), 0
				a.stopRequested = func() bool { asked++; return asked >= last }
				require.LessOrEqual(t, len(a.documentTokens(nil, []string{text})), len(whole))
				require.LessOrEqual(t, asked, last+3)
			}
		}
	}
}
