package flags

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/storage"
)

const nano = "../../../docs/examples/quickstart/colbert-nano"

// What an index says of its model holds where no flag says otherwise.
func TestEncoderOptions(t *testing.T) {
	of := &storage.Model{Name: "folder", Precision: "int8", Settings: `{"query_length":48,"document_length":200}`}
	var e Encoder
	parse(t, e.RegisterDocuments)
	require.Empty(t, e.FirstGiven())
	dir, o, err := e.Options(of, 3, nil)
	require.NoError(t, err)
	require.Equal(t, []any{"folder", encode.Int8, 3, 48, 200}, []any{dir, o.Precision, o.Threads, *o.Override.QueryLength, *o.Override.DocumentLength})

	e = Encoder{}
	parse(t, e.RegisterDocuments, "--model", "other", "--precision", "f32", "--document-length", "77", "--model-settings", file(t, "s.json", `{"expand": false}`))
	require.Equal(t, "model", e.FirstGiven())
	dir, o, err = e.Options(of, 0, nil)
	require.NoError(t, err)
	require.Equal(t, []any{"other", encode.F32, 77, false}, []any{dir, o.Precision, *o.Override.DocumentLength, *o.Override.Expand})
	require.Equal(t, 48, *o.Override.QueryLength, "what the file does not say is as for the index")

	// Questions may be asked in another way than those before.
	e = Encoder{}
	parse(t, e.RegisterQueries, "--query-length", "64", "--model-settings", file(t, "q.json", `{"expand": false, "query_length": 20}`))
	require.Equal(t, "model-settings", e.FirstGiven())
	_, o, err = e.Options(of, 0, nil)
	require.NoError(t, err)
	require.Equal(t, []any{64, 200, false}, []any{o.QueryLength, *o.Override.DocumentLength, *o.Override.Expand})
	for args, want := range map[string]string{
		"--query-length 100000": "--query-length 100000: the model takes 512 at most", "--query-length 2": "--query-length 2: 4 are the least",
		"--document-length 513": "--document-length 513: the model takes 512 at most",
	} {
		e := Encoder{}
		parse(t, func(f *pflag.FlagSet) { e.RegisterDocuments(f); e.RegisterQueryLength(f) }, strings.Fields(args+" --model "+nano)...)
		_, _, err := e.Open(t.Context(), Opening{Threads: 1, Logger: slog.New(slog.DiscardHandler)})
		usage(t, err, want)
	}

	_, _, err = new(Encoder).Options(&storage.Model{Name: "x", Precision: "f8"}, 0, nil)
	require.ErrorContains(t, err, `precision "f8", which this program does not have`)
	_, _, err = new(Encoder).Options(&storage.Model{Name: "x", Settings: "{"}, 0, nil)
	require.ErrorContains(t, err, "settings of model")
	_, _, err = new(Encoder).Open(t.Context(), Opening{Logger: slog.New(slog.DiscardHandler)})
	usage(t, err, "--model is missing")
	require.DirExists(t, filepath.Join("..", "..", "..", bundledModel))
}

func TestEncoderOpen(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	e := Encoder{Dir: nano}
	enc, m, err := e.Open(t.Context(), Opening{Threads: 1, Logger: log})
	require.NoError(t, err)
	require.NoError(t, enc.Close())
	abs, err := filepath.Abs(nano)
	require.NoError(t, err)
	require.Equal(t, &storage.Model{Name: abs, Fingerprint: enc.Config().Fingerprint, Precision: "f32"}, m)

	// The same again, from what the index keeps.
	enc, again, err := new(Encoder).Open(t.Context(), Opening{IndexModel: m, Threads: 1, Logger: log})
	require.NoError(t, err)
	require.NoError(t, enc.Close())
	require.Equal(t, m, again)

	short := Encoder{documentLength: 50}
	_, _, err = short.Open(t.Context(), Opening{IndexModel: m, Threads: 1, Logger: log})
	require.ErrorIs(t, err, storage.ErrModel)
	short.Dir = m.Name
	enc, other, err := short.Open(t.Context(), Opening{Threads: 1, Logger: log})
	require.NoError(t, err)
	require.NoError(t, enc.Close())
	require.Equal(t, `{"document_length":50}`, other.Settings)

	_, _, err = new(Encoder).Open(t.Context(), Opening{IndexModel: &storage.Model{Name: filepath.Join(t.TempDir(), "gone")}, Threads: 1, Logger: log})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "--model gives its new place")
}

// What computes is kept, and used again where no flag names another.
func TestEncoderIsKept(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	of := &storage.Model{Name: "dir", Settings: `{"document_length":50,"encoder":"onnxruntime","graph":"x.onnx"}`}
	dir, o, err := new(Encoder).Options(of, 1, log)
	require.NoError(t, err)
	require.Equal(t, []any{"dir", encode.ONNXRuntime, "x.onnx", 50}, []any{dir, o.Backend, o.Graph, *o.Override.DocumentLength})
	_, o, err = (&Encoder{backend: encode.Native}).Options(of, 1, log)
	require.NoError(t, err)
	require.Equal(t, []any{encode.Native, ""}, []any{o.Backend, o.Graph})
	_, o, err = (&Encoder{Dir: "moved", options: []string{"graph=y.onnx"}}).Options(of, 1, log)
	require.NoError(t, err)
	require.Equal(t, []any{encode.ONNXRuntime, "y.onnx"}, []any{o.Backend, o.Graph})
	_, _, err = new(Encoder).Options(&storage.Model{Name: "dir", Settings: `{"encoder":"nosuch"}`}, 1, log)
	usage(t, err, `--encoder "nosuch"`)
}

func TestParseModel(t *testing.T) {
	sum := strings.Repeat("0a", 32)
	for value, want := range map[string]*storage.Model{
		"":                   nil,
		sum:                  {Fingerprint: sum},
		strings.ToUpper(sum): {Name: strings.ToUpper(sum)},
		"jina":               {Name: "jina"},
		file(t, "model.json", `{"name": "a", "fingerprint": "b", "precision": "int8"}`): {Name: "a", Fingerprint: "b", Precision: "int8"},
	} {
		got, err := ParseModel(value)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for value, message := range map[string]string{
		file(t, "x.json", "{"): "not as plaid encode writes it", file(t, "y.json", "{}"): "without name and fingerprint",
		"nosuch.json": "no such file", "a\nb": "control character",
	} {
		_, err := ParseModel(value)
		require.ErrorContains(t, err, message)
	}
}

func TestTexts(t *testing.T) {
	list := func(args ...string) (texts []encode.Text) {
		var x Texts
		parse(t, func(f *pflag.FlagSet) { x.Register(f); x.RegisterDrop(f) }, args...)
		require.NoError(t, x.Check())
		for text, err := range x.Open(context.Background(), strings.NewReader(`{"text": "of stdin"}`)) {
			require.NoError(t, err)
			require.NotEmpty(t, text.From.Path)
			text.From = encode.Place{}
			texts = append(texts, text)
		}
		return texts
	}
	a := file(t, "a.jsonl", `{"_id": "a", "title": "T<", "text": "one two three", "year": 1999}`)
	b := file(t, "b.csv", "id,text\nb,four\n")
	require.Equal(t, []encode.Text{
		{ID: "a", Title: "T<", Text: "one two three", Payload: []byte(`{"title":"T<","text":"one two three","year":1999}`)},
		{ID: "b", Text: "four", Payload: []byte(`{"text":"four"}`)},
	}, list("--text", a, "--text", b))
	require.Equal(t, []encode.Text{
		{ID: "a#0", Title: "T<", Text: "one two", Payload: []byte(`{"_passage":{"of":"a","n":0,"start":0,"end":7},"year":1999}`)},
		{ID: "a#1", Title: "T<", Text: "two three", Payload: []byte(`{"_passage":{"of":"a","n":1,"start":4,"end":13},"year":1999}`)},
	}, list("--text", a, "--drop-text", "--window", "2", "--overlap", "1"))
	require.Equal(t, []encode.Text{{Text: "of stdin", Payload: []byte(`{"text":"of stdin"}`)}}, list("--text", "-"))
	require.Equal(t, []encode.Text{
		{ID: "0", Text: "x"}, {ID: "1#0", Text: "y", Payload: []byte(`{"_passage":{"of":"1","n":0,"start":0,"end":1}}`)},
		{ID: "1#1", Text: "z", Payload: []byte(`{"_passage":{"of":"1","n":1,"start":2,"end":3}}`)},
	},
		list("--text", file(t, "c", "x\ny z\n"), "--text-format", "lines", "--window", "1", "--drop-text"))

	own := file(t, "own.jsonl", `{"_id": "a", "title": "T", "text": "mine", "body": "theirs", "year": 1999}`)
	require.Equal(t, []encode.Text{{ID: "a", Title: "T", Text: "theirs", Payload: []byte(`{"title":"T","text":"theirs","year":1999}`)}},
		list("--text", own, "--text-field", "body"))
	require.Equal(t, []encode.Text{{ID: "a", Text: "T", Payload: []byte(`{"text":"T","body":"theirs","year":1999}`)}},
		list("--text", own, "--text-field", "title"))
	require.Equal(t, []encode.Text{{ID: "theirs", Title: "T", Text: "mine", Payload: []byte(`{"title":"T","text":"mine","year":1999}`)}},
		list("--text", own, "--id-field", "body"))
	require.Equal(t, []encode.Text{{ID: "theirs", Title: "T", Text: "mine", Payload: []byte(`{"year":1999}`)}},
		list("--text", own, "--id-field", "body", "--drop-text"))
	require.Equal(t, []encode.Text{{ID: "a", Title: "theirs", Text: "mine", Payload: []byte(`{"title":"theirs","text":"mine","year":1999}`)}},
		list("--text", own, "--title-field", "body"))

	for message, args := range map[string][]string{
		"stdin (-) can be read only once":          {"--text", "-", "--text", "-"},
		"--overlap and --window-by go with":        {"--text", "-", "--overlap", "2"},
		"--overlap 2 must be less than --window 2": {"--text", "-", "--overlap", "2", "--window", "2"},
	} {
		var x Texts
		parse(t, x.Register, args...)
		usage(t, x.Check(), message)
	}
	require.True(t, (&Texts{Paths: []string{a, t.TempDir()}}).Rereadable())
	require.False(t, (&Texts{Paths: []string{a, "-"}}).Rereadable())
	require.False(t, (&Texts{Paths: []string{os.DevNull}}).Rereadable())
}

// TestExplain checks that an error says which key of --model-settings decides.
func TestExplain(t *testing.T) {
	var e Encoder
	err := e.Explain(&modeldir.ModelError{Path: "m", Err: modeldir.ErrContradiction, Setting: "query_length"})
	require.ErrorIs(t, err, modeldir.ErrContradiction)
	require.ErrorContains(t, err, "; query_length in a file of --model-settings decides")
	require.NotContains(t, e.Explain(&modeldir.ModelError{Path: "m", Err: modeldir.ErrContradiction}).Error(), "--model-settings")
}
