package encode

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/engine"
	"github.com/plaid-ir/plaid/encode/native"
	"github.com/plaid-ir/plaid/internal/testing/modeltest"
)

// goldens is where tiny models are that published classes saved, with their vectors; see make.py and
// families.py there.
var goldens = filepath.Join("testdata", "golden")

// vectorsOf are those of texts, by the names of a golden file. Each is the same alone.
func vectorsOf(t *testing.T, e *Encoder, queries, documents []string) map[string][]float32 {
	t.Helper()
	all := map[string][]float32{}
	together, err := e.Queries(t.Context(), queries)
	require.NoError(t, err)
	for i, q := range together {
		all[fmt.Sprint("query", i)] = q.Vectors
		alone, err := e.Query(t.Context(), queries[i])
		require.NoError(t, err)
		require.Equal(t, q.Vectors, alone.Vectors, "query %q", queries[i])
	}
	var list []Text
	for _, s := range documents {
		list = append(list, Text{Text: s})
	}
	read := func(list ...Text) (v [][]float32) {
		for doc, err := range e.Documents(t.Context(), Texts(list...)) {
			require.NoError(t, err)
			v = append(v, slices.Clone(doc.Tokens))
		}
		return v
	}
	for i, v := range read(list...) {
		all[fmt.Sprint("document", i)] = v
		require.Equal(t, [][]float32{v}, read(list[i]), "document %q", documents[i])
	}
	require.Len(t, all, len(queries)+len(documents))
	return all
}

// TestGolden: tiny models, from text to vectors, against those of the real classes, on all tiers; and
// how near Int8 comes.
func TestGolden(t *testing.T) {
	queries, documents := modeltest.GoldenTexts(t, goldens)
	spaced := fmt.Sprint("query", slices.IndexFunc(queries, func(q string) bool { return strings.HasPrefix(q, " ") }))
	for _, g := range modeltest.Goldens() {
		t.Run(g.Name, func(t *testing.T) {
			dir, z := g.Open(t, goldens)
			got := vectorsOf(t, open(t, dir, nil), queries, documents)
			worst := 0.0
			for name, v := range got {
				// Of the two packages only PyLate drops white space around texts, whose folders are
				// taken as it takes them.
				if g.Foreign && name == spaced {
					continue
				}
				want := modeltest.Floats(t, z, name)
				require.Len(t, v, len(want), name)
				worst = max(worst, difference(t, want, v))
			}
			require.LessOrEqual(t, worst, 2e-6)
			modeltest.Record(t, goldens, g.Name, func(f *modeltest.ModelErrors) *float64 { return &f.Processor }, worst)
			for _, tier := range native.Tiers() {
				require.Equal(t, got, vectorsOf(t, open(t, dir, &Options{Tier: tier}), queries, documents), tier)
			}
			e := open(t, dir, &Options{Precision: Int8})
			rough := vectorsOf(t, e, queries, documents)
			var exact, rounded [][]float32
			for name := range got {
				exact, rounded = append(exact, got[name]), append(rounded, rough[name])
			}
			least, mean := cosines(exact, rounded, e.Dim())
			t.Logf("largest difference %.2g; int8: mean cosine %.5f, least %.4f", worst, mean, least)
			require.Greater(t, mean, .999)
			require.Greater(t, least, .97)
		})
	}
}

// TestGoldenOfPyLate: what PyLate 1.6.0 gives for folders whose settings meet what questions of
// their own show: queries that are filled up to more than half the window of local layers, so that
// some rows of attention have no key, and texts with the names of special tokens where texts are
// made lower case. Weights are of half precision.
func TestGoldenOfPyLate(t *testing.T) {
	for folder, queries := range map[string][]string{
		"pylate-short": {"who sings at night", "cells", "What makes a bird sing, and when do cells divide"},
		"pylate-lower": {"what does [MASK] mean", "where is [SEP] put", "Plain Words Only"},
	} {
		e := open(t, filepath.Join(goldens, folder), nil)
		z := modeltest.OpenNPZ(t, filepath.Join(goldens, "golden-"+folder+".npz"))
		together, err := e.Queries(t.Context(), queries)
		require.NoError(t, err)
		for i, text := range queries {
			want := modeltest.Floats(t, z, fmt.Sprint("query", i))
			require.LessOrEqual(t, difference(t, want, together[i].Vectors), 2e-6, "%s: %q", folder, text)
			alone, err := e.Query(t.Context(), text)
			require.NoError(t, err)
			require.Equal(t, together[i].Vectors, alone.Vectors, "%s: %q", folder, text)
		}
	}
}

// TestGoldenMutants: settings that are a little off give vectors that are, too.
func TestGoldenMutants(t *testing.T) {
	texts, _ := modeltest.GoldenTexts(t, goldens)
	for name, m := range map[string]struct {
		folder, file string
		change       map[string]any
	}{
		"activation":      {"pylate-heads", "2_Dense/config.json", map[string]any{"activation_function": "torch.nn.modules.linear.Identity"}},
		"residual":        {"pylate-heads", "3_Dense/config.json", map[string]any{"use_residual": false}},
		"window":          {"pylate-heads", "config.json", map[string]any{"local_attention": 8}},
		"global layers":   {"pylate-heads", "config.json", map[string]any{"global_attn_every_n_layers": 2, "layer_types": nil}},
		"epsilon":         {"pylate-heads", "config.json", map[string]any{"norm_eps": 1e-3}},
		"heads":           {"pylate-bert", "config.json", map[string]any{"num_attention_heads": 1}},
		"attended masks":  {"pylate-bert", "config_sentence_transformers.json", map[string]any{"attend_to_expansion_tokens": true}},
		"masks left out":  {"pylate-attend", "config_sentence_transformers.json", map[string]any{"attend_to_expansion_tokens": false}},
		"marker":          {"pylate-bert", "config_sentence_transformers.json", map[string]any{"query_prefix": "[D] "}},
		"expansion":       {"pylate-bert", "config_sentence_transformers.json", map[string]any{"do_query_expansion": false}},
		"prompt":          {"sentence-modernbert", "config_sentence_transformers.json", map[string]any{"prompts": map[string]any{"query": "[Q] a ", "document": "[D] title: "}}},
		"query length":    {"sentence-modernbert", "sentence_bert_config.json", map[string]any{"query_expansion": map[string]any{"strategy": "min", "length": 11, "attend": true}}},
		"lower case":      {"pylate-attend", "sentence_bert_config.json", map[string]any{"do_lower_case": true}},
		"rotary angles":   {"sentence-modernbert", "config.json", map[string]any{"rope_parameters": nil, "global_rope_theta": 1e4}},
		"Stanford's mask": {"stanford", "artifact.metadata", map[string]any{"attend_to_mask_tokens": false}},
	} {
		dir := t.TempDir()
		require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(goldens, m.folder))))
		file := filepath.Join(dir, filepath.FromSlash(m.file))
		_, err := os.Stat(file)
		require.NoError(t, err)
		modeltest.Edit(t, file, m.change)
		z := modeltest.OpenNPZ(t, filepath.Join(goldens, "golden-"+m.folder+".npz"))
		e, err := Open(dir, nil)
		if err != nil {
			continue // noticed, too
		}
		queries, err := e.Queries(t.Context(), texts)
		same := err == nil
		for i, q := range queries {
			want := modeltest.Floats(t, z, fmt.Sprint("query", i))
			same = same && len(want) == len(q.Vectors) && difference(t, want, q.Vectors) <= 2e-6
		}
		require.False(t, same, name)
		require.NoError(t, e.Close())
	}
}

// TestNano: a folder of Stanford's kind, from text to vectors, against PyTorch; and how far int8 is
// from that.
func TestNano(t *testing.T) {
	dir := nano(t)
	b, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	require.NoError(t, err)
	var texts []string
	require.NoError(t, json.Unmarshal(b, &texts))
	z := modeltest.OpenNPZ(t, filepath.Join(dir, "golden.npz"))
	e := open(t, dir, nil)
	require.Equal(t, 128, e.Dim())
	rough := open(t, dir, &Options{Precision: Int8})
	whole := open(t, dir, nil)
	localOf(whole).config.Document.Skip = false // the goldens have vectors of punctuation too
	worst := 0.0
	for i, text := range texts {
		for role, name := range map[Role]string{Query: "query", Document: "document"} {
			// The goldens have vectors of the empty text too.
			s, err := localOf(e).buildSequence(role, text, false)
			require.NoError(t, err)
			require.Equal(t, modeltest.Ints(t, z, fmt.Sprintf("%s%d.ids", name, i)), s.ids)
			want := modeltest.Floats(t, z, fmt.Sprintf("%s%d.vectors", name, i))
			var got []float32
			switch {
			case text == "":
				got = make([]float32, len(s.ids)*128)
				batch := engine.Batch{IDs: s.ids, Offsets: []int{0, len(s.ids)}, Attended: []int{s.attended}}
				require.NoError(t, localOf(e).engine.Encode(t.Context(), got, batch))
			case role == Query:
				em, err := e.Query(t.Context(), text)
				require.NoError(t, err)
				require.Len(t, em.Tokens, 32)
				got = em.Vectors
				em, err = rough.Query(t.Context(), text)
				require.NoError(t, err)
				least, mean := cosines([][]float32{want}, [][]float32{em.Vectors}, 128)
				require.Greater(t, least, 0.97)
				require.Greater(t, mean, 0.9985)
			default:
				for doc, err := range whole.Documents(t.Context(), Texts(Text{Text: text})) {
					require.NoError(t, err)
					got = append(got, doc.Tokens...)
				}
			}
			d := difference(t, want, got)
			t.Logf("%s %d: %d vectors, largest difference %.3g", name, i, len(want)/128, d)
			require.Less(t, d, 3e-6)
			worst = max(worst, d)
		}
	}
	modeltest.Record(t, goldens, "colbert-nano", func(f *modeltest.ModelErrors) *float64 { return &f.Processor }, worst)
}

func TestTokenize(t *testing.T) {
	e := open(t, nano(t), nil)
	text := "  Cells (of \u00e9lan).\n"
	tokens, err := e.Tokenize(Document, text)
	require.NoError(t, err)
	var shown []string
	for _, k := range tokens {
		mark := "-"
		if k.Kept {
			mark = "+"
		}
		shown = append(shown, mark+k.Piece+"="+text[k.Start:k.End])
	}
	require.Equal(t, "+[CLS]= +[unused1]= +cells=Cells -(=( +of=of +elan=\u00e9lan -)=) -.=. +[SEP]=",
		strings.ReplaceAll(strings.Join(shown, " "), "+el=\u00e9l +##an=an", "+elan=\u00e9lan"))
	for doc, err := range e.Documents(t.Context(), Texts(Text{Text: text})) {
		require.NoError(t, err)
		require.Len(t, doc.Tokens, 6*128+128*strings.Count(strings.Join(shown, " "), "##"))
	}
	tokens, err = e.Tokenize(Query, "cells")
	require.NoError(t, err)
	require.Len(t, tokens, 32)
	require.Equal(t, "[unused0]", tokens[1].Piece)
	require.Equal(t, Token{ID: 6, Piece: "[MASK]", Kept: true}, tokens[31])
	tokens, err = e.Tokenize(Document, " \n\u3000")
	require.NoError(t, err)
	require.Empty(t, tokens)
}

// TestCut: what is too long loses its end, but not the token that ends it.
func TestCut(t *testing.T) {
	e := open(t, nano(t), &Options{DocumentLength: 10})
	var r Report
	texts := []Text{{Text: strings.Repeat("cell ", 50)}, {Text: ""}, {Text: "cell"}, {Title: "cell"}}
	var lengths []int
	for doc, err := range e.DocumentsReport(t.Context(), Texts(texts...), &r) {
		require.NoError(t, err)
		lengths = append(lengths, len(doc.Tokens)/128)
	}
	require.Equal(t, []int{10, 0, 4, 4}, lengths)
	require.Equal(t, Report{Texts: 4, Empty: 1, Truncated: 1, Dropped: 43, Tokens: 18, Vectors: 18}, r)
	tokens, err := e.Tokenize(Document, texts[0].Text)
	require.NoError(t, err)
	require.Equal(t, "[SEP]", tokens[9].Piece)
	require.Equal(t, "cell", texts[0].Text[tokens[8].Start:tokens[8].End])
}
