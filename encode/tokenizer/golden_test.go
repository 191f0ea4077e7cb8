package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// fixtures are the small tokenizers of testdata/make.py.
type fixtures struct {
	bases    map[string]map[string]json.RawMessage
	variants []map[string]json.RawMessage
	lines    []string
	golden   map[string][][]int32
}

func loadFixtures(t testing.TB) *fixtures {
	f := &fixtures{}
	readGzip(t, filepath.Join("testdata", "small.json.gz"), &f.bases)
	readGzip(t, filepath.Join("testdata", "lines.json.gz"), &f.lines)
	readGzip(t, filepath.Join("testdata", "golden.json.gz"), &f.golden)
	b, err := os.ReadFile(filepath.Join("testdata", "variants.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &f.variants))
	for _, base := range []string{"wordpiece", "bpe", "unigram"} {
		name, _ := json.Marshal(base)
		f.variants = append(f.variants, map[string]json.RawMessage{"name": name, "base": name})
	}
	return f
}

func text(t testing.TB, raw json.RawMessage) (s string) {
	require.NoError(t, json.Unmarshal(raw, &s))
	return s
}

// file is the tokenizer.json of a variant, as make.py makes it.
func (f *fixtures) file(t testing.TB, v map[string]json.RawMessage) []byte {
	t.Helper()
	file := map[string]json.RawMessage{}
	for k, part := range f.bases[text(t, v["base"])] {
		file[k] = part
	}
	for _, key := range []string{"normalizer", "pre_tokenizer"} {
		if v[key] != nil {
			file[key] = f.part(t, v[key], file[key])
		}
	}
	if v["model"] != nil {
		var model map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(file["model"], &model))
		require.NoError(t, json.Unmarshal(v["model"], &model))
		b, err := json.Marshal(model)
		require.NoError(t, err)
		file["model"] = b
	}
	b, err := json.Marshal(file)
	require.NoError(t, err)
	return b
}

// part puts parts of the bases in place of their names.
func (f *fixtures) part(t testing.TB, part, base json.RawMessage) json.RawMessage {
	var p struct {
		Type        string            `json:"type"`
		Normalizers []json.RawMessage `json:"normalizers"`
	}
	require.NoError(t, json.Unmarshal(part, &p))
	if p.Normalizers == nil {
		return part
	}
	for i, n := range p.Normalizers {
		switch string(n) {
		case `"base"`:
			p.Normalizers[i] = base
		case `"charsmap"`:
			p.Normalizers[i] = f.bases["unigram"]["normalizer"]
		}
	}
	b, err := json.Marshal(p)
	require.NoError(t, err)
	return b
}

// Every kind, and every setting that is understood, gives the ids of the Python package.
func TestGolden(t *testing.T) {
	f := loadFixtures(t)
	for _, v := range f.variants {
		name := text(t, v["name"])
		t.Run(name, func(t *testing.T) {
			tok, err := Parse(f.file(t, v))
			require.NoError(t, err)
			require.NotEmpty(t, f.golden[name])
			compare(t, tok, name, f.lines[:len(f.golden[name])], f.golden[name])
		})
	}
}
