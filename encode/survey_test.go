package encode

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/vectors"
)

func TestSurvey(t *testing.T) {
	texts := []Text{{ID: "a", Title: "T", Text: "xy"}, {ID: "b", Text: "z"}}
	s, err := SurveyTexts(Texts(texts...))
	require.NoError(t, err)
	require.Equal(t, []any{2, int64(4)}, []any{s.Texts, s.Bytes})
	require.Len(t, s.Sum, 64)
	again, err := SurveyTexts(Texts(texts...))
	require.NoError(t, err)
	require.Equal(t, s, again)
	// What moves from one part to the next is another text.
	for _, other := range [][]Text{
		{{ID: "a", Title: "Tx", Text: "y"}, texts[1]}, {texts[1], texts[0]}, texts[:1],
		{{ID: "a", Title: "T", Text: "xy", Payload: []byte{}}, {ID: "b", Payload: []byte(`{"z":1}`)}},
	} {
		o, err := SurveyTexts(Texts(other...))
		require.NoError(t, err)
		require.NotEqual(t, s.Sum, o.Sum)
	}
	for message, bad := range map[string][]Text{
		`text 2: id "a": text 1 has this id too`:                     {texts[0], texts[0]},
		`text 2: some texts have an id and others have none`:         {texts[0], {Text: "x"}},
		`text 2: id "a": some texts have an id and others have none`: {{Text: "x"}, texts[0]},
	} {
		_, err := SurveyTexts(Texts(bad...))
		require.EqualError(t, err, message)
	}
}

// Texts that are gone through once more are the same, or an error that says which is not:
// also where neither an id nor a number of tokens has changed.
func TestSurveyNoticesChanges(t *testing.T) {
	texts := []Text{{ID: "a", Text: "cells divide"}, {ID: "b", Title: "T", Text: "z", Payload: []byte("{}")}}
	s, err := SurveyTexts(Texts(texts...))
	require.NoError(t, err)
	got, err := all(s.VerifyUnchanged(Texts(texts...)))
	require.NoError(t, err)
	require.Equal(t, texts, got)
	for message, other := range map[string][]Text{
		`text 1: id "a": changed while it was read: this is another text than when all were read`: {{ID: "a", Text: "divide cells"}, texts[1]},
		`text 2: id "b": changed while it was read: this is another text than when all were read`: {texts[0], {ID: "b", Title: "T", Text: "z", Payload: []byte("[]")}},
		`text 3: id "c": changed while it was read: there were 2 texts`:                           append(texts[:2:2], Text{ID: "c"}),
		`changed while it was read: there are 1 texts, there were 2`:                              texts[:1],
	} {
		got, err := all(s.VerifyUnchanged(Texts(other...)))
		require.ErrorIs(t, err, vectors.ErrChanged)
		require.EqualError(t, err, message)
		require.Equal(t, append([]Text{}, texts[:len(got)]...), append([]Text{}, got...))
	}
	got = nil
	for text, err := range s.VerifyUnchanged(Texts(texts...)) { // its user may have enough
		require.NoError(t, err)
		got = append(got, text)
		break
	}
	require.Equal(t, texts[:1], got)
}

func TestTexts(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"a.jsonl": `{"id": "1", "text": "x"}`, "a.csv": "id,text\n1,x\n", "a.TSV": "id\ttext\n1\tx\n", "d/1": "", "d/1.txt": "x", "a": `{"id": "1", "text": "x"}`,
	} {
		path := write(t, dir, name, content)
		if strings.HasPrefix(name, "d/") {
			path = dir + "/d"
		}
		if name == "d/1" {
			continue
		}
		for range 2 { // it can be gone through again
			got, err := all((&Reader{Format: ""}).Texts(t.Context(), path))
			require.NoError(t, err, name)
			want := []Text{{ID: "1", Text: "x"}}
			if strings.HasPrefix(name, "d/") {
				want[0].ID = "1.txt"
			}
			require.Equal(t, want, got, name)
		}
	}
	path := write(t, dir, "a.txt", "x\n\ny\n")
	got, err := all((&Reader{Format: ""}).Texts(t.Context(), path))
	require.NoError(t, err)
	require.Equal(t, []Text{{Text: "x"}, {}, {Text: "y"}}, got)
	path = write(t, dir, "b.unknown", `{"text": "x"}`)
	_, err = all((&Reader{}).Texts(t.Context(), path))
	require.ErrorIs(t, err, ErrSuffix)
	got, err = all((&Reader{Format: FormatJSONL}).Texts(t.Context(), path))
	require.NoError(t, err)
	require.Equal(t, []Text{{Text: "x"}}, got)
	for _, f := range Formats() {
		_, err = all((&Reader{Format: f}).Read(t.Context(), strings.NewReader("\xff"), "stdin"))
		require.ErrorContains(t, err, "stdin: ", f)
	}
	_, err = all((&Reader{}).Texts(t.Context(), dir+"/nosuch"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A file that is written while it is read gives no texts of two states.
func TestChangedWhileRead(t *testing.T) {
	path := write(t, t.TempDir(), "a.jsonl", `{"text": "x"}`+"\n"+`{"text": "y"}`+"\n")
	var err error
	for _, e := range (&Reader{}).Texts(t.Context(), path) {
		if err = e; err == nil {
			require.NoError(t, os.WriteFile(path, []byte("{}"), 0o600))
		}
	}
	require.ErrorIs(t, err, vectors.ErrChanged)
	require.ErrorContains(t, err, path+": changed while it was read: it had ")
}

// A file that is replaced by the same bytes while it is read has not changed. Other bytes are noticed
// before the file ends, and what was read until then was of the file as it was.
func TestReplacedWhileRead(t *testing.T) {
	defer func(every time.Duration) { files.LookInterval = every }(files.LookInterval)
	files.LookInterval = time.Microsecond
	content := strings.Repeat(`{"text": "x"}`+"\n", 20_000)
	for _, name := range []string{"a.jsonl", "a.txt", "a.csv"} {
		dir := t.TempDir()
		content := content
		if name == "a.csv" {
			content = "text\n" + strings.Repeat("x\n", 20_000)
		}
		for _, other := range []bool{false, true} {
			path := write(t, dir, name, content)
			read := 0
			var failed error
			for _, err := range (&Reader{}).Texts(t.Context(), path) {
				if failed = err; err != nil {
					break
				}
				if other && read > 100 { // a look that took long is followed by a pause ten times as long
					time.Sleep(time.Millisecond)
				}
				if read++; read == 100 {
					now := []byte(content)
					if other {
						now[len(now)-2] ^= 1
					}
					require.NoError(t, os.WriteFile(path+".new", now, 0o600))
					require.NoError(t, os.Rename(path+".new", path))
				}
			}
			if !other {
				require.NoError(t, failed, name)
				require.Equal(t, 20_000, read)
				continue
			}
			require.ErrorIs(t, failed, vectors.ErrChanged)
			require.ErrorContains(t, failed, path+": changed while it was read: another file took its place")
			require.Less(t, read, 2_000, name)
		}
	}
}

func TestSpoolProgress(t *testing.T) {
	e := open(t, nano(t), nil)
	var seen []Report
	s, r, err := Spool(t.Context(), e, Texts(Text{Text: "cell"}, Text{}, Text{Text: "cell"}), "", &SpoolOptions{
		Progress: func(r Report) { seen = append(seen, r) },
	})
	require.NoError(t, err)
	require.Len(t, seen, 2)
	require.Equal(t, Report{Texts: 1, Tokens: 4, Vectors: 4}, seen[0])
	require.Equal(t, Report{Texts: 2, Empty: 1, Tokens: 4, Vectors: 4}, seen[1])
	require.Equal(t, Report{Texts: 3, Empty: 1, Equal: 1, Tokens: 4, Vectors: 4}, *r)
	require.Equal(t, []int64{3, 8}, []int64{int64(s.Len()), s.Tokens()})
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())

	long, err := e.Query(t.Context(), strings.Repeat("cell ", 40))
	require.NoError(t, err)
	require.Positive(t, long.Dropped)
	short, err := e.Query(t.Context(), "cell")
	require.NoError(t, err)
	require.Zero(t, short.Dropped)
}
