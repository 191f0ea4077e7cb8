package keywords

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/internal/testing/effort"
)

// Texts of scripts without blanks are found by any part of them, and by whole questions.
func TestScriptsWithoutBlanks(t *testing.T) {
	kw, _ := made(t, Settings{}, texts(
		"東京都の天気", "京都の大学", "東、京", "お茶を飲む。", "ｶﾞｽﾀﾝｸとガソリン", "서울에서 물을 마신다", "ฉันรักประเทศไทย",
		"葛\U000e0100城市 \U00020bb7野家", "iPhone15を買う 2024年夏 tokyo", "我喜欢北京的秋天", "今日の東京の天気は晴れ", "ភាសា។ខ្មែរ မြန်မာ။")...)
	for _, x := range []struct {
		text string
		mode Mode
		want []uint32
	}{
		{"東京", Words, []uint32{0, 10}},
		{"京都", Words, []uint32{0, 1}},
		{"茶", Words, []uint32{3}},
		{"京", Words, []uint32{0, 1, 2, 9, 10}},
		{"ガス", Words, []uint32{4}},
		{"ﾀﾝｸ", Words, []uint32{4}},
		{"서울", Words, []uint32{5}},
		{"물", Words, []uint32{5}},
		{"ประเทศ", Words, []uint32{6}},
		{"葛城", Words, []uint32{7}},
		{"\U00020bb7", Words, []uint32{7}},
		{"iphone15", Words, []uint32{8}},
		{"2024", Words, []uint32{8}},
		{"北京的秋天怎么样？", Words, []uint32{9}},
		{"東京都", Expression, []uint32{0}},
		{`"東京の天気"`, Expression, []uint32{10}},
		{`"2024年"`, Expression, []uint32{8}},
		{`"買う 2024年夏 tokyo"`, Expression, []uint32{8}},
		{"+東京 -都", Expression, []uint32{10}},
		{"東*", Expression, []uint32{0, 2, 10}},
		{"東京*", Expression, []uint32{0, 10}},
		{`"ភាសា។"`, Expression, []uint32{11}},
		{`"ភាសា ខ្មែរ"`, Expression, []uint32{11}},
		{"។", Words, []uint32{}},
		{"မြန်မာ", Words, []uint32{11}},
		{"大阪", Words, []uint32{}},
		{"？。", Words, []uint32{}},
	} {
		require.ElementsMatch(t, x.want, ordinals(search1(t, kw, Query{Text: x.text, Mode: x.mode})), x.text)
	}
	require.Equal(t, uint32(10), search1(t, kw, Query{Text: "東京の天気は？"})[0].Ordinal)
	require.Equal(t, uint32(0), search1(t, kw, Query{Text: "東京都の天気は？"})[0].Ordinal)
	_, err := kw.Search(t.Context(), Query{Text: "x東*", Mode: Expression, K: 1})
	require.ErrorIs(t, err, ErrSyntax)
	_, err = kw.Search(t.Context(), Query{Text: strings.Repeat("京", MaxWords+2), K: 1})
	require.ErrorIs(t, err, ErrTooLong)
	info, err := kw.Info()
	require.NoError(t, err)
	require.EqualValues(t, 6+5+2+5+10+9+13+6+8+8+11+3+2+3, info.Tokens, "characters, words and numbers count once")
}

// scriptAlphabet has characters in the forms in which texts have them, by the form that is stored.
var scriptAlphabet = map[string][]string{
	"東": {"東"}, "京": {"京", "京\ufe00"}, "の": {"の"}, "ガ": {"ガ", "ｶﾞ", "カ\u3099"}, "カ": {"カ", "ｶ"}, "ー": {"ー", "ｰ"},
	"한": {"한", "\u1112\u1161\u11ab"}, "하": {"하"}, "𠮷": {"𠮷"}, "六": {"六", "\uf9d1"}, "ก": {"ก"},
}

// scriptRun is a run of characters, or a word of Latin letters.
type scriptRun []string

// drawScripts draws runs, and how they are written.
func drawScripts(t *rapid.T, label string, most int) (text string, runs []scriptRun) {
	keys := []string{"東", "京", "の", "ガ", "カ", "ー", "한", "하", "𠮷", "六", "ก"}
	latin := false
	for range rapid.IntRange(0, most).Draw(t, label) {
		if rapid.IntRange(0, 3).Draw(t, "latin") == 0 {
			if latin {
				text += " "
			}
			word := rapid.SampledFrom([]string{"ab", "b2"}).Draw(t, "word")
			text, runs, latin = text+word, append(runs, scriptRun{word}), true
			continue
		}
		var run scriptRun
		for range rapid.IntRange(1, 6).Draw(t, "characters") {
			c := rapid.SampledFrom(keys).Draw(t, "character")
			run = append(run, c)
			text += rapid.SampledFrom(scriptAlphabet[c]).Draw(t, "form")
		}
		text, runs, latin = text+rapid.SampledFrom([]string{" ", "、", "\n", "!"}).Draw(t, "end"), append(runs, run), false
	}
	return text, runs
}

// Documents in scripts without blanks score as brute force says: by the pairs of a question's
// characters, and by those that stand alone; and phrases are in documents that have them.
func TestScriptsModel(t *testing.T) {
	ram := ramDir(t)
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		var docs []oracleDoc
		var payloads []string
		for i := range rapid.IntRange(1, 12).Draw(r, "documents") {
			text, runs := drawScripts(r, "runs", 5)
			d := oracleDoc{ordinal: uint32(i)}
			for _, run := range runs {
				d.values = append(d.values, run)
			}
			docs, payloads = append(docs, d), append(payloads, text)
		}
		path := fmt.Sprintf("%s/%d.plaid", ram, n)
		ix := build(t, path, texts(payloads...)...)
		kw := open(t, Path(path), &Options{Settings: &Settings{}, Write: true})
		syncWith(r, kw, ix)
		for range effort.Cases(3, 6) {
			text, runs := drawScripts(r, "question", 3)
			var parts []part
			for _, run := range runs {
				switch {
				case len(run) == 1:
					parts = append(parts, part{terms: run, weight: 1})
				default:
					for i := range len(run) - 1 {
						parts = append(parts, part{terms: run[i : i+2], weight: 1})
					}
				}
			}
			require.Equal(r, oracle(r, docs, parts, DefaultBM25, nil, 1000), append([]ScoredDocument{}, search1(r, kw, Query{Text: text})...), text)
			for _, run := range runs {
				phrase := strings.Join(run, "")
				want := []uint32{}
				for _, d := range docs {
					p := part{terms: run}
					if p.count(&d) > 0 {
						want = append(want, d.ordinal)
					}
				}
				got := ordinals(search1(r, kw, Query{Text: `"` + phrase + `"`, Mode: Expression}))
				slices.Sort(got)
				require.Equal(r, want, got, phrase)
			}
		}
	})
}
