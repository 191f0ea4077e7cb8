package formats_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/vectors"
	"github.com/plaid-ir/plaid/vectors/formats"
)

// readTexts reads texts as every command does.
func readTexts(ctx context.Context, path string, fields encode.Fields) (all []encode.Text, err error) {
	register()
	for t, err := range (&encode.Reader{Fields: fields}).Texts(ctx, path) {
		if err != nil {
			return all, err
		}
		if want := (encode.Place{Path: path, Row: len(all) + 1}); t.From != want {
			return all, fmt.Errorf("it is from %+v, not %+v", t.From, want)
		}
		t.From = encode.Place{}
		all = append(all, t)
	}
	return all, nil
}

// Files that pyarrow and datasets wrote: vectors stay out of payloads, a null is no text.
func TestTextsOfOthers(t *testing.T) {
	want := []encode.Text{{ID: "a", Text: "A", Payload: []byte(`{"year":1}`)}, {ID: "b", Payload: []byte(`{"year":2}`)}, {ID: "c", Text: "C é", Payload: []byte(`{"year":3}`)}}
	for _, name := range []string{"f32.parquet", "fixed64.parquet", "large.parquet", "lz4.feather", "hub", "hub/data"} {
		got, err := readTexts(ctx, filepath.Join("testdata", name), encode.Fields{Text: "title"})
		require.NoError(t, err)
		require.Equal(t, want, got, name)
	}
	got, err := readTexts(ctx, "testdata/saved", encode.Fields{Text: "title"})
	require.NoError(t, err)
	require.Equal(t, []encode.Text{{ID: "7", Text: "A"}, {ID: "8"}, {ID: "9", Text: "C é"}}, got)
	got, err = readTexts(ctx, "testdata/saved", encode.Fields{Text: "title", ID: "title"})
	require.NoError(t, err)
	require.Equal(t, encode.Text{ID: "A", Text: "A", Payload: []byte(`{"id":7}`)}, got[0])
}

// Whatever is written comes back, from each format and however rows are put in blocks,
// as often as it is read; who wants no more gets no more.
func TestTextsModel(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		count := rapid.IntRange(0, 12).Draw(t, "texts")
		ids, titles, bodies, notes := make([]string, count), make([]string, count), make([]string, count), make([]string, count)
		for i := range count {
			ids[i] = fmt.Sprint("d", i)
			for _, to := range []*string{&titles[i], &bodies[i], &notes[i]} {
				*to = rapid.StringN(0, 6, 24).Draw(t, "text")
			}
		}
		format := rapid.SampledFrom([]string{"parquet", "file", "stream"}).Draw(t, "format")
		path := filepath.Join(dir, fmt.Sprint("t", n, map[string]string{"parquet": ".parquet"}[format]))
		if format != "parquet" {
			path += ".arrow"
		}
		vector := matrices("x", arrow.PrimitiveTypes.Float32, 2, false, make([][]float32, count))
		write(t, path, format, rapid.IntRange(1, 5).Draw(t, "chunk"), texts("note", notes), vector, texts("text", bodies), texts("id", ids), texts("title", titles))
		stop := rapid.IntRange(1, count+1).Draw(t, "stop")
		for range 2 {
			i := 0
			for got, err := range formats.Texts(ctx, path, encode.Fields{}) {
				require.NoError(t, err)
				note, err := json.Marshal(map[string]string{"note": notes[i]})
				require.NoError(t, err)
				require.JSONEq(t, string(note), string(got.Payload))
				require.Equal(t, []string{ids[i], titles[i], bodies[i]}, []string{got.ID, got.Title, got.Text})
				if i++; i == stop {
					break
				}
			}
			require.Equal(t, min(stop, count), i)
		}
	})
}

// What is wrong is named, with its place.
func TestTextFaults(t *testing.T) {
	numbers := column{"text", arrow.PrimitiveTypes.Int64, func(b array.Builder) { b.(*array.Int64Builder).Append(1) }}
	for says, c := range map[string]struct {
		is      error
		fields  encode.Fields
		columns []column
	}{
		"no text field: there is no column text, only id, body": {encode.ErrNoTextField, encode.Fields{}, []column{texts("id", []string{"a"}), texts("body", []string{"x"})}},
		"no such field: there is no column head, only text":     {encode.ErrNoField, encode.Fields{Title: "head"}, []column{texts("text", []string{"x"})}},
		"no such field: there is no column key, only text":      {encode.ErrNoField, encode.Fields{ID: "key"}, []column{texts("text", []string{"x"})}},
		"column text is of int64, not text":                     {encode.ErrNoTextField, encode.Fields{}, []column{numbers}},
		`two columns are named "text"`:                          {vectors.ErrShape, encode.Fields{}, []column{texts("text", []string{"x"}), texts("text", []string{"x"})}},
		`text 2: id "b": is not valid UTF-8: byte 0xff`:         {nil, encode.Fields{}, []column{texts("id", []string{"a", "b"}), texts("text", []string{"x", "\xff"})}},
	} {
		for _, format := range []string{"parquet", "file", "stream"} {
			path := filepath.Join(t.TempDir(), map[string]string{"parquet": "x.parquet"}[format])
			if format != "parquet" {
				path = filepath.Join(path, "x.arrow")
			}
			write(t, path, format, 1, c.columns...)
			_, err := readTexts(ctx, path, c.fields)
			require.ErrorContains(t, err, says)
			require.ErrorContains(t, err, path+": ")
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
		}
	}
	_, err := readTexts(ctx, "testdata/none.parquet", encode.Fields{})
	require.ErrorIs(t, err, os.ErrNotExist)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = readTexts(ended, "testdata/f32.parquet", encode.Fields{Text: "title"})
	require.ErrorIs(t, err, context.Canceled)

	// A file that changes while it is read, one with a name of another format, and a damaged one.
	whole, err := os.ReadFile("testdata/f32.parquet")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "x.parquet")
	require.NoError(t, os.WriteFile(path, whole, 0o666))
	for _, err = range formats.Texts(ctx, path, encode.Fields{Text: "title"}) {
		if err == nil {
			require.NoError(t, os.WriteFile(path, append(whole, 0), 0o666))
		}
	}
	require.ErrorIs(t, err, vectors.ErrChanged)
	path = filepath.Join(t.TempDir(), "x.jsonl")
	require.NoError(t, os.WriteFile(path, whole, 0o666))
	_, err = readTexts(ctx, path, encode.Fields{})
	require.ErrorContains(t, err, "it is of the format .parquet: its name has to end so")
	path = filepath.Join(t.TempDir(), "x.parquet")
	for at := range whole {
		require.NoError(t, os.WriteFile(path, append(append(append([]byte{}, whole[:at]...), whole[at]^0xff), whole[at+1:]...), 0o666))
		_, _ = readTexts(ctx, path, encode.Fields{Text: "title"}) // an error, or not; no panic
		if at > 300 {
			break
		}
	}
}
