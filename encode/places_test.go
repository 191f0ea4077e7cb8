package encode

import (
	"io"
	"iter"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/vectors"
)

// Each text knows where it was read, through whatever it went.
func TestPlaces(t *testing.T) {
	dir := t.TempDir()
	placesOf := func(texts iter.Seq2[Text, error]) (places []Place) {
		for text, err := range texts {
			require.NoError(t, err)
			places = append(places, text.From)
		}
		return places
	}
	for name, content := range map[string]string{
		"a.jsonl": `{"text":"x"}` + "\n\n" + `{"text":"y"}`, "a.csv": "text\n\"x\ny\"\nz\n", "a.tsv": "id\ttext\n1\tx\n\n2\ty\n", "a.txt": "x\ny",
	} {
		path := write(t, dir, name, content)
		lines := map[string][]int{"a.jsonl": {1, 3}, "a.csv": {2, 4}, "a.tsv": {2, 4}, "a.txt": {1, 2}}[name]
		want := []Place{{Path: path, Line: lines[0]}, {Path: path, Line: lines[1]}}
		require.Equal(t, want, placesOf((&Reader{}).Texts(t.Context(), path)), name)
		want[0].Path, want[1].Path = "stdin", "stdin"
		require.Equal(t, want, placesOf((&Reader{Format: formatByName(name)}).Read(t.Context(), strings.NewReader(content), "stdin")), name)
	}
	page := write(t, dir, "d/p.html", "<p>x")
	require.Equal(t, []Place{{Path: page}}, placesOf((&Reader{}).Texts(t.Context(), dir+"/d")))
	parts := Passages(t.Context(), Texts(Text{ID: "a", Text: "one two three", From: Place{Path: "f", Line: 9}}), Splitting{Window: 2})
	require.Equal(t, []Place{{Path: "f", Line: 9}, {Path: "f", Line: 9}}, placesOf(parts))
}

// The survey names file and line of what cannot be stored, and of both of two with one id.
func TestSurveyPlaces(t *testing.T) {
	dir := t.TempDir()
	good := write(t, dir, "good.jsonl", `{"_id":"a","text":"x"}`+"\n\n"+`{"_id":"b","text":"y"}`+"\n")
	read := func(paths ...string) error {
		_, err := SurveyTexts(func(yield func(Text, error) bool) {
			for _, path := range paths {
				for t, err := range JSONL(t.Context(), path) {
					if !yield(t, err) {
						return
					}
				}
			}
		})
		return err
	}
	require.NoError(t, read(good))
	for content, want := range map[string]string{
		`{"_id":"x"}` + "\n" + `{"_id":"x"}`:                                    `line 2: id "x": line 1 has this id too`,
		"\n" + `{"_id":"b","text":"z"}`:                                         `line 2: id "b": ` + good + `: line 3 has this id too`,
		`{"_id":"c"}` + "\n\n" + `{"_id":"x\ty"}`:                               `line 3: bad id: control character`,
		`{"_id":"` + strings.Repeat("x", vectors.MaxIDBytes+1) + `","text":""}`: `line 1: bad id: 4097 bytes`,
	} {
		bad := write(t, dir, "bad.jsonl", content)
		err := read(good, bad)
		require.ErrorContains(t, err, bad+": "+want)
		require.Less(t, len(err.Error()), 500)
	}
	s, err := SurveyTexts(Texts(Text{From: Place{Path: "f", Line: 3}}, Text{From: Place{Path: "g", Row: 4}}, Text{}))
	require.NoError(t, err)
	for row, want := range []string{"f: line 3: EOF", "g: text 4: EOF", "text 3: EOF"} {
		require.EqualError(t, s.ErrorAt(row, "", io.EOF), want)
	}
}
