package plaid_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/encode/remote"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/countdown"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/keywords"
	"github.com/plaid-ir/plaid/vectors"
)

// Each mistake is an error that says what to do.
func TestMistakes(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	path := filepath.Join(dir, "docs.plaid")
	c, err := plaid.Create(ctx, path, &plaid.Options{Model: model})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Add(ctx, plaid.Document{ID: "a", Text: "one", Payload: []byte(`{"year": 1}`)})
	require.NoError(t, err)
	plain, err := plaid.Create(ctx, filepath.Join(dir, "plain.plaid"), &plaid.Options{Dim: 2})
	require.NoError(t, err)
	defer plain.Close()
	parted, err := plaid.Create(ctx, filepath.Join(dir, "parted.plaid"), &plaid.Options{Model: model, Passages: &encode.Splitting{By: encode.BySentences, Window: 3}})
	require.NoError(t, err)
	defer parted.Close()
	_, err = parted.Add(ctx, plaid.Document{ID: "a", Text: "Owls hunt at night. Bees make honey from nectar."})
	require.NoError(t, err)
	whole, err := plaid.Create(ctx, filepath.Join(dir, "whole.plaid"), &plaid.Options{Model: model, Whole: true})
	require.NoError(t, err)
	defer whole.Close()
	endless := strings.Repeat("owls hunt at night ", 500)
	unknown, err := plaid.Create(ctx, filepath.Join(dir, "unknown.plaid"), &plaid.Options{Dim: 128})
	require.NoError(t, err)
	require.NoError(t, unknown.Close())
	unknown, err = plaid.Open(ctx, filepath.Join(dir, "unknown.plaid"), &plaid.Options{Model: model})
	require.NoError(t, err)
	defer unknown.Close()
	closed, err := plaid.Create(ctx, filepath.Join(dir, "closed.plaid"), &plaid.Options{Dim: 4})
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	reading, err := plaid.Open(ctx, filepath.Join(dir, "closed.plaid"), &plaid.Options{ReadOnly: true})
	require.NoError(t, err)
	defer reading.Close()
	add := func(d plaid.Document) error { _, err := c.Add(ctx, d); return err }
	addAll := func(c *plaid.Collection, docs ...plaid.Document) error { _, err := c.Add(ctx, docs...); return err }
	remove := func(c *plaid.Collection, s plaid.Selection) error { _, err := c.Delete(ctx, s); return err }
	set := func(c *plaid.Collection, fields map[string]any) error {
		_, err := c.UpdatePayload(ctx, plaid.Selection{IDs: []string{"a"}}, fields)
		return err
	}
	encoder := func(c *plaid.Collection) error { _, err := c.Encoder(ctx); return err }
	long := "Cats sleep most of the day. Owls hunt at night. Bees make honey from nectar."
	search := func(q plaid.Query) error { _, err := c.Search(ctx, q); return err }
	create := func(o plaid.Options) error {
		_, err := plaid.Create(ctx, filepath.Join(dir, "new.plaid"), &o)
		return err
	}
	for _, m := range []struct {
		name string
		err  error
		is   error
		says string
	}{
		{"no model", create(plaid.Options{}), plaid.ErrOption, "set Model, Encoder or Dim"},
		{"two dimensions", create(plaid.Options{Model: model, Dim: 3}), plaid.ErrOption, "the model has 128"},
		{"no folder of a model", create(plaid.Options{Model: "nosuch"}), fs.ErrNotExist, "nosuch"},
		{"bits", create(plaid.Options{Dim: 4, Bits: 3}), plaid.ErrOption, "nbits is 3"},
		{"keywords", create(plaid.Options{Dim: 4, Keywords: &keywords.Settings{Tokenizer: "nosuch"}}), plaid.ErrOption, `tokenizer "nosuch"`},
		{"read only", create(plaid.Options{Dim: 4, ReadOnly: true}), plaid.ErrOption, "ReadOnly"},
		{"payload", add(plaid.Document{ID: "b", Text: "x", Payload: []byte(`[1]`)}), plaid.ErrPayload, "no JSON object"},
		{"broken payload", add(plaid.Document{ID: "b", Text: "x", Payload: []byte(`{"a":`)}), plaid.ErrPayload, "document 0"},
		{"text twice", add(plaid.Document{ID: "b", Text: "x", Payload: []byte(`{"text": 1}`)}), plaid.ErrPayload, `field "text"`},
		{"passage", add(plaid.Document{ID: "b", Text: "x", Payload: []byte(`{"_Passage": 1}`)}), plaid.ErrPayload, `field "_Passage"`},
		{"title in capitals", add(plaid.Document{ID: "b", Text: "x", Payload: []byte(`{"TITLE": "y"}`)}), plaid.ErrPayload, `field "TITLE"`},
		{"id", add(plaid.Document{ID: "a\n", Text: "x"}), plaid.ErrID, "control character"},
		{"not UTF-8", add(plaid.Document{ID: "b", Text: "\xff"}), plaid.ErrText, `document 0 (id "b"): bad text: text: byte 0, 0xff, is not UTF-8`},
		{"half a character in a payload", add(plaid.Document{ID: "b", Text: "x", Payload: []byte(`{"note":"\ud83d"}`)}), plaid.ErrPayload, `document 0 (id "b"): bad metadata: note: \ud83d is half of a character`},
		{"no number in a payload", add(plaid.Document{ID: "b", Text: "x", Payload: []byte(`{"n":NaN}`)}), plaid.ErrPayload, "n: NaN is not a number in JSON: write null"},
		{"an id without room for passages", add(plaid.Document{ID: strings.Repeat("x", vectors.MaxIDBytes), Text: "x"}), plaid.ErrID, "leave room for the numbers of passages"},
		{"not UTF-8 beside vectors", addAll(plain, plaid.Document{ID: "b", Title: "\xff", Vectors: []float32{1, 0}}), plaid.ErrText, "document 0"},
		{"duplicate", add(plaid.Document{ID: "a", Text: "x"}), plaid.ErrDuplicateID, `document 0 (id "a")`},
		{"duplicate of passages", addAll(parted, plaid.Document{ID: "b", Text: long}, plaid.Document{ID: "a", Text: "x"}), plaid.ErrDuplicateID, `document 1 (id "a")`},
		{"duplicate within", addAll(parted, plaid.Document{ID: "b", Text: long}, plaid.Document{ID: "c", Text: long}, plaid.Document{ID: "b", Text: "x"}), plaid.ErrDuplicateID, `document 2 (id "b"): id is taken: document 0 has the same`},
		{"passages and whole", create(plaid.Options{Model: model, Whole: true, Passages: &encode.Splitting{}}), plaid.ErrOption, "Passages and Whole"},
		{"a window that is not read", create(plaid.Options{Model: model, Passages: &encode.Splitting{Window: 9999}}), plaid.ErrOption, "passages of 9999 tokens: the model reads at most 297 of a text"},
		{"a long text", addAll(whole, plaid.Document{ID: "b", Text: "x"}, plaid.Document{ID: "c", Text: endless}), plaid.ErrTooLong, `document 1 (id "c"): the text is longer than the model reads: at most 300 tokens, including those around the text; 2703 would be dropped; shorten`},
		{"a long title", add(plaid.Document{ID: "b", Title: endless, Text: endless}), plaid.ErrTooLong, "shorten the title"},
		{"texts for vectors of an unknown model", addAll(unknown, plaid.Document{ID: "b", Text: "x"}), plaid.ErrModel, "the index names no model; set Options.AnyModel to add texts anyway"},
		{"vectors", add(plaid.Document{ID: "b", Vectors: []float32{1}}), plaid.ErrShape, "1 values"},
		{"empty query", search(plaid.Query{}), plaid.ErrQuery, "empty"},
		{"K", search(plaid.Query{Text: "x", K: -1}), plaid.ErrOption, "K is -1"},
		{"unknown field", search(plaid.Query{Text: "x", Where: "yer > 1"}), plaid.ErrUnknownField, "year"},
		{"args", search(plaid.Query{Text: "x", Where: "year > ?"}), plaid.ErrParameter, ""},
		{"syntax", search(plaid.Query{Text: "x", Where: "year >"}), plaid.ErrSyntax, ""},
		{"group", search(plaid.Query{Text: "x", Group: "nosuch"}), plaid.ErrOption, "nosuch"},
		{"group by words", search(plaid.Query{Text: "x", Keywords: true, Group: "nosuch"}), plaid.ErrOption, "nosuch"},
		{"sum by words", search(plaid.Query{Text: "x", Keywords: true, Group: "sum"}), plaid.ErrOption, "best passage"},
		{"passages by words", search(plaid.Query{Text: "x", Keywords: true, Group: "best", Passages: -1}), plaid.ErrOption, "-1 passages"},
		{"alpha", search(plaid.Query{Text: "x", Hybrid: true, Alpha: 2}), plaid.ErrOption, "2"},
		{"like", search(plaid.Query{Text: "x", Like: []string{"nosuch"}}), plaid.ErrNotFound, "nosuch"},
		{"words and vectors", search(plaid.Query{Text: "x", Keywords: true, Vectors: []float32{1}}), plaid.ErrOption, "Keywords goes with Text"},
		{"words without text", search(plaid.Query{Keywords: true, Vectors: []float32{1}}), plaid.ErrOption, "Keywords goes with Text"},
		{"nothing chosen", remove(c, plaid.Selection{}), collection.ErrSelection, "it is empty: set IDs or Where"},
		{"chosen twice", remove(c, plaid.Selection{IDs: []string{"a"}, Where: "1=1"}), collection.ErrSelection, "set IDs or Where, not both"},
		{"args alone", remove(c, plaid.Selection{IDs: []string{"a"}, Args: []any{1}}), plaid.ErrOption, "Args without Where"},
		{"condition of a deletion", remove(c, plaid.Selection{Where: "year >"}), plaid.ErrSyntax, ""},
		{"a passage of a payload", set(c, map[string]any{"_PASSAGE": nil}), plaid.ErrPayload, "_PASSAGE"},
		{"text of a payload", set(c, map[string]any{"text": "y"}), plaid.ErrPayload, "use Update"},
		{"a deletion while reading", remove(reading, plaid.Selection{IDs: []string{"a"}}), plaid.ErrReadOnly, "closed.plaid"},
		{"a change while reading", set(reading, map[string]any{"a": 1}), plaid.ErrReadOnly, "closed.plaid"},
		{"after the end", remove(closed, plaid.Selection{IDs: []string{"a"}}), plaid.ErrClosed, "closed.plaid: index is closed"},
		{"the encoder after the end", encoder(closed), plaid.ErrClosed, "closed.plaid: index is closed"},
		{"an encoder of nothing", encoder(plain), plaid.ErrOption, "Options.Model"},
		{"text without a model", func() error { _, err := plain.Add(ctx, plaid.Document{Text: "x"}); return err }(), plaid.ErrOption, "Options.Model"},
		{"no index", func() error { _, err := plaid.Open(ctx, filepath.Join(dir, "nosuch"), nil); return err }(), fs.ErrNotExist, "nosuch"},
	} {
		t.Run(m.name, func(t *testing.T) {
			require.Error(t, m.err)
			if m.is != nil {
				require.ErrorIs(t, m.err, m.is)
			}
			require.Contains(t, m.err.Error(), m.says)
			require.Contains(t, m.err.Error(), dir, "the file")
			for _, not := range []string{"\n", "request", "document ids", "collection \""} { // words of the service
				require.NotContains(t, m.err.Error(), not)
			}
			if strings.Contains(m.err.Error(), "document 0") {
				var fault *collection.DocumentError
				require.ErrorAs(t, m.err, &fault)
			}
		})
	}
	n, err := c.Len(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, n, "nothing was stored by mistake")
	require.NoFileExists(t, filepath.Join(dir, "new.plaid"))
	// A context that has ended stores nothing.
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = c.Add(ended, plaid.Document{ID: "b", Text: "x"})
	require.ErrorIs(t, err, context.Canceled)
}

// A document does not take the place of a passage of another one that is called so, nor does a
// passage that of a document.
func TestNamesOfPassages(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "docs.plaid")
	c, err := plaid.Create(ctx, path, &plaid.Options{Model: model})
	require.NoError(t, err)
	long := "Owls hunt at night. Bees make honey. Cats sleep all day."
	_, err = c.Add(ctx, plaid.Document{ID: "whole#1", Text: "one"})
	require.NoError(t, err)
	require.NoError(t, c.Close())
	c, err = plaid.Open(ctx, path, &plaid.Options{Model: model, Passages: &encode.Splitting{By: encode.BySentences, Window: 4}})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Add(ctx, plaid.Document{ID: "page", Text: long}, plaid.Document{ID: "other#2", Text: "two"})
	require.NoError(t, err)
	was, err := c.Len(ctx)
	require.NoError(t, err)
	for says, docs := range map[string][]plaid.Document{
		`"page#1" is a passage of "page"`: {{ID: "page#1", Text: "new"}},
		`would be called "other#2"`:       {{ID: "new", Text: "new"}, {ID: "other", Text: long}},
		`would be called "whole#1"`:       {{ID: "whole", Text: long}},
		`(id "x"): id is taken`:           {{ID: "x#0", Text: "new"}, {ID: "x", Text: long}},
		`"x#0" is a passage of "x"`:       {{ID: "x", Text: long}, {ID: "x#0", Text: long}},
	} {
		_, err = c.Update(ctx, docs...)
		require.ErrorIs(t, err, plaid.ErrDuplicateID, says)
		require.ErrorContains(t, err, says)
		_, err = c.Add(ctx, docs...)
		require.ErrorIs(t, err, plaid.ErrDuplicateID, says)
	}
	n, err := c.Len(ctx)
	require.NoError(t, err)
	require.Equal(t, was, n)
	_, err = c.Update(ctx, plaid.Document{ID: "page", Text: long + " Pikes hunt fish."}, plaid.Document{ID: "other#2", Text: "three"}, plaid.Document{ID: "other", Text: "four"})
	require.NoError(t, err)
	d, err := c.Get(ctx, "page")
	require.NoError(t, err)
	require.Equal(t, long+" Pikes hunt fish.", d.Text)
}

// Of two documents that cannot be there together, and come at a time, one is refused and the other is
// there.
func TestNamesOfPassagesAtATime(t *testing.T) {
	ctx := t.Context()
	token := make([]float32, 128)
	token[0] = 1
	docs := []plaid.Document{
		{ID: "page", Text: "one two three four five six seven"},
		{ID: "page#1", Text: "another document", Vectors: token},
	}
	for range effort.Cases(8, 40) {
		c := create(t, &plaid.Options{Model: model, Passages: &encode.Splitting{By: encode.ByWords, Window: 3}})
		_, err := c.Update(ctx, plaid.Document{ID: "other", Text: "so that the model is open"})
		require.NoError(t, err)
		var wg sync.WaitGroup
		errs := make([]error, len(docs))
		for i := range docs {
			wg.Go(func() { _, errs[i] = c.Update(ctx, docs[i]) })
		}
		wg.Wait()
		stored := slices.Index(errs, nil)
		require.GreaterOrEqual(t, stored, 0, "%v", errs)
		require.ErrorIs(t, errs[1-stored], plaid.ErrDuplicateID)
		got, err := c.Get(ctx, docs[stored].ID)
		require.NoError(t, err)
		require.Equal(t, docs[stored].Text, got.Text)
		n, err := c.Len(ctx)
		require.NoError(t, err)
		require.Equal(t, 2, n)
	}
}

// Texts go to vectors of an unknown model where the program says that it knows.
func TestAnyModel(t *testing.T) {
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "docs.plaid")
	c, err := plaid.Create(ctx, path, &plaid.Options{Dim: 128})
	require.NoError(t, err)
	require.NoError(t, c.Close())
	c, err = plaid.Open(ctx, path, &plaid.Options{Model: model, AnyModel: true})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Add(ctx, plaid.Document{ID: "owl", Text: "Owls hunt."}, plaid.Document{ID: "bee", Text: "Bees make honey."})
	require.NoError(t, err)
	hits, err := c.Search(ctx, plaid.Query{Text: "honey", K: 1})
	require.NoError(t, err)
	require.Equal(t, "bee", hits[0].ID)
}

// slowModel is the encoder of a server that answers at once, and from slow on only when answer is closed. asked
// gets an element for each request that waits.
func slowModel(t *testing.T) (e *encode.Encoder, slow func(), asked, answer chan struct{}) {
	var isSlow atomic.Bool
	asked, answer = make(chan struct{}, 100), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isSlow.Load() {
			asked <- struct{}{}
			<-answer
		}
		var texts struct{ Input []string }
		if err := json.NewDecoder(r.Body).Decode(&texts); err != nil {
			t.Error(err)
		}
		fmt.Fprintf(w, `{"data":[%s]}`, strings.Join(slices.Repeat([]string{`{"embedding":[[1,0,0,0]]}`}, len(texts.Input)), ","))
	}))
	t.Cleanup(srv.Close)
	e, err := encode.Open("", &encode.Options{Backend: encode.Remote, Remote: &remote.Options{URL: srv.URL, API: "pylate"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e, func() { isSlow.Store(true) }, asked, answer
}

// Who waits for a model that another one opens waits until his own context ends.
func TestSlowModel(t *testing.T) {
	ctx := t.Context()
	e, slow, asked, answer := slowModel(t)
	path := filepath.Join(t.TempDir(), "docs.plaid")
	c, err := plaid.Create(ctx, path, &plaid.Options{Encoder: e})
	require.NoError(t, err)
	require.NoError(t, c.Close())
	c, err = plaid.Open(ctx, path, nil)
	require.NoError(t, err)
	slow()
	first, second := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := c.Encoder(ctx)
		first <- err
	}()
	<-asked
	ended, cancel := context.WithCancel(ctx)
	go func() {
		_, err := c.Search(ended, plaid.Query{Text: "owl"})
		second <- err
	}()
	cancel()
	require.ErrorIs(t, <-second, context.Canceled)
	close(answer)
	require.NoError(t, <-first)
	require.NoError(t, c.Close())
	_, err = c.Encoder(ctx)
	require.ErrorIs(t, err, plaid.ErrClosed)
}

// A search that waits for its question's vectors ends with the collection, whose file can then be opened again.
func TestCloseEndsSearches(t *testing.T) {
	ctx := t.Context()
	e, slow, asked, answer := slowModel(t)
	defer close(answer)
	path, o := filepath.Join(t.TempDir(), "docs.plaid"), &plaid.Options{Encoder: e}
	c, err := plaid.Create(ctx, path, o)
	require.NoError(t, err)
	slow()
	for _, o := range []*plaid.Options{{Encoder: e}, {Encoder: e, ReadOnly: true}} {
		require.NoError(t, c.Close())
		c, err = plaid.Open(ctx, path, o)
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() {
			_, err := c.Search(ctx, plaid.Query{Text: "owl"})
			ended <- err
		}()
		<-asked
		require.NoError(t, c.Close())
		next, err := plaid.Open(ctx, path, nil)
		require.NoError(t, err)
		require.NoError(t, next.Close())
		require.ErrorIs(t, <-ended, plaid.ErrClosed)
	}
}

// What an encoder of the caller's was opened with is what the model of the index is opened with.
func TestModelOfTheCallers(t *testing.T) {
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "docs.plaid")
	prompt := "find: "
	e, err := encode.Open(model, &encode.Options{Override: &modeldir.Override{QueryPrompt: &prompt}, Precision: encode.Int8})
	require.NoError(t, err)
	defer e.Close()
	c, err := plaid.Create(ctx, path, &plaid.Options{Encoder: e})
	require.NoError(t, err)
	_, err = c.Add(ctx, plaid.Document{ID: "owl", Text: "Owls hunt."})
	require.NoError(t, err)
	require.NoError(t, c.Close())
	c, err = plaid.Open(ctx, path, nil)
	require.NoError(t, err)
	defer c.Close()
	again, err := c.Encoder(ctx)
	require.NoError(t, err)
	require.Equal(t, e.Config().Fingerprint, again.Config().Fingerprint)
	require.Equal(t, e.Config().Query, again.Config().Query)
	require.Equal(t, "int8", again.Config().Precision)
}

// A collection that could not be opened leaves no file that the next Create would find.
func TestCreateFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "docs.plaid")
	for n := 0; ; n++ {
		c, err := plaid.Create(countdown.New(n), path, &plaid.Options{Dim: testDim})
		if err == nil {
			require.NoError(t, c.Close())
			require.Greater(t, n, 1)
			return
		}
		require.ErrorIs(t, err, context.Canceled)
		left, err := os.ReadDir(filepath.Dir(path))
		require.NoError(t, err)
		require.Empty(t, left, n)
	}
}

// An error names the file, whatever its name is.
func TestErrorsNameTheFile(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, path := range []string{"a", "K", "o/x"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		c, err := plaid.Create(t.Context(), path, &plaid.Options{Dim: testDim})
		require.NoError(t, err)
		_, err = c.Search(t.Context(), plaid.Query{Text: "x", K: -1})
		require.ErrorContains(t, err, path+": "+plaid.ErrOption.Error())
		_, err = c.Get(t.Context(), "a")
		require.ErrorContains(t, err, path+": ")
		require.NoError(t, c.Close())
		_, err = c.Len(t.Context())
		require.EqualError(t, err, path+": "+plaid.ErrClosed.Error())
		_, err = plaid.Open(t.Context(), path+"y", nil)
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.Equal(t, 1, strings.Count(err.Error(), path+"y: "), "once")
	}
}

// What another program says of passages is not believed.
func TestGetHostilePassages(t *testing.T) {
	ctx, path := context.Background(), filepath.Join(t.TempDir(), "docs.plaid")
	c, err := plaid.Create(ctx, path, &plaid.Options{Dim: testDim})
	require.NoError(t, err)
	require.NoError(t, c.Close())
	rng := rand.New(rand.NewPCG(1, 1))
	src, err := vectors.FromDocuments(testDim, []vectors.Document{
		{ID: "long#0", Tokens: unit(rng, 1), Payload: []byte(`{"text":"begin","_passage":{"of":"long","n":0,"start":0,"end":5}}`)},
		{ID: "long#1", Tokens: unit(rng, 1), Payload: []byte(`{"text":"far","_passage":{"of":"long","n":1,"start":9223372036854775804,"end":9223372036854775807}}`)},
		{ID: "long#2", Tokens: unit(rng, 1), Payload: []byte(`{"text":"end","_passage":{"of":"long","n":2,"start":10,"end":13}}`)},
		{ID: "wide#0", Tokens: unit(rng, 1), Payload: []byte(`{"text":"a","_passage":{"of":"wide","n":0,"start":1000000,"end":1000001}}`)},
		{ID: "wide#1", Tokens: unit(rng, 1), Payload: []byte(`{"text":"b","_passage":{"of":"wide","n":1,"start":2000000,"end":2000001}}`)},
	})
	require.NoError(t, err)
	ix, err := index.Open(ctx, path, &index.Options{Write: true})
	require.NoError(t, err)
	_, err = ix.Add(ctx, src, nil)
	require.NoError(t, err)
	require.NoError(t, ix.Close())
	c, err = plaid.Open(ctx, path, &plaid.Options{ReadOnly: true})
	require.NoError(t, err)
	d, err := c.Get(ctx, "long")
	require.NoError(t, err)
	require.Equal(t, "begin far end", d.Text)
	d, err = c.Get(ctx, "wide")
	require.NoError(t, err)
	require.Equal(t, strings.Repeat(" ", 1e6)+"a b", d.Text)
	require.NoError(t, c.Close())
}

// What is found by errors.Is with the names here is what the rooms below return.
func TestKindsOfErrors(t *testing.T) {
	require.ErrorIs(t, search.ErrUnknownID, plaid.ErrNotFound)
	require.ErrorIs(t, search.ErrOption, plaid.ErrOption)
	require.ErrorIs(t, search.ErrClosed, plaid.ErrClosed)
}
