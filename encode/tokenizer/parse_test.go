package tokenizer

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const tinyWordPiece = `{"version":"1.0","truncation":null,"padding":null,"added_tokens":[
  {"id":0,"content":"[UNK]","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},
  {"id":6,"content":"<x>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":false}],
 "normalizer":{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":null,"lowercase":true},
 "pre_tokenizer":{"type":"BertPreTokenizer"},
 "post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"[CLS]","type_id":0}},{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"[SEP]","type_id":0}}],"pair":[],
  "special_tokens":{"[CLS]":{"id":"[CLS]","ids":[1],"tokens":["[CLS]"]},"[SEP]":{"id":"[SEP]","ids":[2],"tokens":["[SEP]"]}}},
 "decoder":null,
 "model":{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":100,
  "vocab":{"[UNK]":0,"[CLS]":1,"[SEP]":2,"cafe":3,"##s":4,"日":5}}}`

func TestTokenizer(t *testing.T) {
	tok, err := Parse([]byte(tinyWordPiece))
	require.NoError(t, err)
	require.Equal(t, 7, tok.VocabSize())
	require.Equal(t, "WordPiece", tok.Kind())
	require.Equal(t, []int32{1}, tok.Prefix())
	require.Equal(t, []int32{2}, tok.Suffix())
	require.Equal(t, "##s", tok.Piece(4))
	require.Equal(t, "<x>", tok.Piece(6))
	require.Empty(t, tok.Piece(-1))
	require.Empty(t, tok.Piece(7))
	id, ok := tok.ID("cafe")
	require.Equal(t, int32(3), id)
	require.True(t, ok)
	_, ok = tok.ID("tea")
	require.False(t, ok)

	// Places are in the text as given: é is e and a mark here, İ and the rest no piece.
	got, err := tok.Encode("CAFE\u0301S\u200b<x>日 İ")
	require.NoError(t, err)
	require.Equal(t, []Token{{3, 0, 4}, {4, 6, 7}, {6, 10, 13}, {5, 13, 16}, {0, 17, 19}}, got)
	ids, err := tok.EncodeIDs([]int32{9}, "cafés")
	require.NoError(t, err)
	require.Equal(t, []int32{9, 3, 4}, ids)
}

// White space that an added token takes belongs to its place, and to no other's.
func TestPlacesOfAdded(t *testing.T) {
	f := loadFixtures(t)
	tok, err := Parse(f.file(t, f.variants[len(f.variants)-3]))
	require.NoError(t, err)
	id, ok := tok.ID("|||")
	require.True(t, ok)
	got, err := tok.Encode("  |||  \t||| |||")
	require.NoError(t, err)
	require.Equal(t, []Token{{id, 0, 8}, {id, 8, 12}, {id, 12, 15}}, got)
}

func TestBadText(t *testing.T) {
	tok, err := Parse([]byte(tinyWordPiece))
	require.NoError(t, err)
	_, err = tok.Encode("cafe \xff")
	require.ErrorIs(t, err, ErrText)
	require.ErrorContains(t, err, "byte 5")
	ids, err := tok.EncodeIDs([]int32{9}, "cafe \xc3")
	require.ErrorIs(t, err, ErrText)
	require.Equal(t, []int32{9}, ids)
	_, err = tok.EncodeIDs(nil, strings.Repeat("a", maxText+1))
	require.ErrorIs(t, err, ErrText)

	noUnknown, err := Parse([]byte(`{"model":{"type":"Unigram","unk_id":null,"vocab":[["a",-1.5]]}}`))
	require.NoError(t, err)
	ids, err = noUnknown.EncodeIDs(nil, "aa")
	require.NoError(t, err)
	require.Equal(t, []int32{0, 0}, ids)
	_, err = noUnknown.EncodeIDs(nil, "ab")
	require.ErrorIs(t, err, ErrText)
	require.ErrorContains(t, err, `"b"`)
}

// What is not understood is named with its place.
func TestBadFiles(t *testing.T) {
	bpe := func(rest string) string {
		return `{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]` + rest + `}}`
	}
	with := func(key, part string) string {
		return `{"` + key + `":` + part + `,"model":{"type":"WordPiece","vocab":{"[UNK]":0,"a":1}}}`
	}
	added := func(fields string) string {
		return with("added_tokens", `[{"id":2,"content":"x","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true`+fields+`}]`)
	}
	for _, c := range []struct{ name, file, field, message string }{
		{"not JSON", `{`, "", "unexpected end"},
		{"not UTF-8", "{\"a\":\"\xff\"}", "", "UTF-8"},
		{"half a pair", `{"a":"\ud800x"}`, "", "surrogate"},
		{"other half", `{"a":"\\\udc00"}`, "", "surrogate"},
		{"list", `[]`, "", "want an object"},
		{"no model", `{}`, "model", "is missing"},
		{"version", `{"version":"2.0"}`, "version", `"2.0"`},
		{"key", strings.Replace(tinyWordPiece, `"decoder"`, `"extra":1,"decoder"`, 1), "extra", "not known"},
		{"model type", `{"model":{"type":"WordLevel","vocab":{}}}`, "model.type", "WordLevel"},
		{"model key", bpe(`,"x":1`), "model.x", "not known"},
		{"dropout", bpe(`,"dropout":0.1`), "model.dropout", "chance"},
		{"unknown token", bpe(`,"unk_token":"?"`), "model.unk_token", "vocabulary"},
		{"merge", strings.Replace(bpe(""), "a b", "b a", 1), "model.merges[0]", `"ba"`},
		{"merge of three", strings.Replace(bpe(""), "a b", "a b c", 1), "model.merges[0]", "two pieces"},
		{"merge of one", strings.Replace(bpe(""), `"a b"`, `["a"]`, 1), "model.merges[0]", "1 pieces"},
		{"merges", strings.Replace(bpe(""), `["a b"]`, `7`, 1), "model.merges", "want a list"},
		{"merge prefix", bpe(`,"continuing_subword_prefix":"@@"`), "model.merges[0]", "shorter"},
		{"vocabulary", `{"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}}`, "model.vocab", "-1"},
		{"far id", `{"model":{"type":"BPE","vocab":{"a":16000000},"merges":[]}}`, "model.vocab", "16000000"},
		{"id twice", `{"model":{"type":"BPE","vocab":{"a":0,"b":0},"merges":[]}}`, "model.vocab", `"a" and "b"`},
		{"wordpiece without unknown", `{"model":{"type":"WordPiece","vocab":{"a":0}}}`, "model.unk_token", "[UNK]"},
		{"unigram pair", `{"model":{"type":"Unigram","unk_id":0,"vocab":[["a"]]}}`, "model.vocab", "want a list"},
		{"unigram unknown", `{"model":{"type":"Unigram","unk_id":1,"vocab":[["a",0]]}}`, "model.unk_id", "is 1"},
		{"normalizer", with("normalizer", `{"type":"Nmt"}`), "normalizer.type", "Nmt"},
		{"normalizer in sequence", with("normalizer", `{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Nmt"}]}`), "normalizer.normalizers[1].type", "Nmt"},
		{"null in sequence", with("normalizer", `{"type":"Sequence","normalizers":[null]}`), "normalizer.normalizers[0]", "missing"},
		{"deep", with("normalizer", strings.Repeat(`{"type":"Sequence","normalizers":[`, 12)+strings.Repeat(`]}`, 12)), "normalizer" + strings.Repeat(".normalizers[0]", 8), "nested"},
		{"normalizer key", with("normalizer", `{"type":"NFC","x":1}`), "normalizer.x", "not known"},
		{"bert", with("normalizer", `{"type":"BertNormalizer"}`), "normalizer.clean_text", "missing"},
		{"regex", with("normalizer", `{"type":"Replace","pattern":{"Regex":"a|b"},"content":""}`), "normalizer.pattern.Regex", "a|b"},
		{"empty pattern", with("normalizer", `{"type":"Replace","pattern":{"String":""},"content":""}`), "normalizer.pattern.String", "empty"},
		{"charsmap", with("normalizer", `{"type":"Precompiled","precompiled_charsmap":"AAAA"}`), "normalizer.precompiled_charsmap", "3 bytes"},
		{"charsmap cut", with("normalizer", `{"type":"Precompiled","precompiled_charsmap":"BAEAAAAAAAA="}`), "normalizer.precompiled_charsmap", "260"},
		{"charsmap link", with("normalizer", `{"type":"Precompiled","precompiled_charsmap":"BAAAAAABAgA="}`), "normalizer.precompiled_charsmap", "outside"},
		{"pre-tokenizer", with("pre_tokenizer", `{"type":"UnicodeScripts"}`), "pre_tokenizer.type", "UnicodeScripts"},
		{"split", with("pre_tokenizer", `{"type":"Split","pattern":{"Regex":"(?i)x"},"behavior":"Isolated","invert":false}`), "pre_tokenizer.pattern.Regex", "(?i)x"},
		{"behavior", with("pre_tokenizer", `{"type":"Punctuation","behavior":"isolated"}`), "pre_tokenizer.behavior", "isolated"},
		{"bytes of words", with("pre_tokenizer", `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true}`), "pre_tokenizer", "ByteLevel"},
		{"metaspace", with("pre_tokenizer", `{"type":"Metaspace","replacement":"__"}`), "pre_tokenizer.replacement", "one character"},
		{"scheme", with("pre_tokenizer", `{"type":"Metaspace","replacement":"_","prepend_scheme":"last"}`), "pre_tokenizer.prepend_scheme", "last"},
		{"contradiction", with("pre_tokenizer", `{"type":"Metaspace","replacement":"_","prepend_scheme":"first","add_prefix_space":false}`), "pre_tokenizer.add_prefix_space", "contradicts"},
		{"added id", strings.Replace(added(""), `"id":2`, `"id":5`, 1), "added_tokens[0].id", "is 5"},
		{"added key", added(`,"x":1`), "added_tokens[0].x", "not known"},
		{"added flag", strings.Replace(added(""), `"lstrip":false,`, ``, 1), "added_tokens[0].lstrip", "missing"},
		{"added empty", strings.Replace(added(""), `"x"`, `""`, 1), "added_tokens[0].content", "empty"},
		{"added vanishes", strings.Replace(strings.Replace(added(""), `"x"`, `" "`, 1), `"normalized":false`, `"normalized":true`, 1)[:len(added(""))-2] + `,"normalizer":{"type":"Strip","strip_left":true,"strip_right":true}}`, "added_tokens[0].content", "empty"},
		{"post-processor", with("post_processor", `{"type":"X"}`), "post_processor.type", `"X"`},
		{"post-processor id", with("post_processor", `{"type":"BertProcessing","sep":["b",9],"cls":["a",1]}`), "post_processor", "id 9"},
		{"template", with("post_processor", `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"[CLS]","type_id":0}}],"special_tokens":{}}`), "post_processor.single[0].SpecialToken.id", "[CLS]"},
		{"template without text", with("post_processor", `{"type":"TemplateProcessing","single":[],"special_tokens":{}}`), "post_processor.single", "0 times"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse([]byte(c.file))
			var fault *Error
			require.ErrorAs(t, err, &fault, c.file)
			require.ErrorIs(t, err, ErrTokenizer)
			require.Equal(t, c.field, fault.Field, err)
			require.ErrorContains(t, err, c.message)
		})
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tokenizer.json")
	_, err := Read(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte(tinyWordPiece), 0o644))
	tok, err := Read(path)
	require.NoError(t, err)
	require.NotNil(t, tok)
	require.NoError(t, os.WriteFile(path, []byte(tinyWordPiece[:200]), 0o644))
	_, err = Read(path)
	var fault *Error
	require.True(t, errors.As(err, &fault))
	require.Equal(t, path, fault.Path)
	require.ErrorContains(t, err, path)
}

// The fingerprint depends on what ids depend on, and on nothing else.
func TestFingerprint(t *testing.T) {
	of := func(file string) [32]byte {
		tok, err := Parse([]byte(file))
		require.NoError(t, err)
		return tok.Fingerprint()
	}
	base := of(tinyWordPiece)
	var any map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(tinyWordPiece), &any))
	b, err := json.MarshalIndent(any, " ", "\t")
	require.NoError(t, err)
	require.Equal(t, base, of(string(b)), "layout")
	for _, same := range [][2]string{
		{`"truncation":null`, `"truncation":{"max_length":128}`}, {`"padding":null`, `"padding":{}`}, {`"decoder":null`, `"decoder":{"type":"X"}`},
		{`"cafe":3,"##s":4`, `"##s":4,"cafe":3`},
	} {
		require.Equal(t, base, of(strings.Replace(tinyWordPiece, same[0], same[1], 1)), same[1])
	}
	for _, other := range [][2]string{
		{`"lowercase":true`, `"lowercase":false`}, {`"BertPreTokenizer"`, `"WhitespaceSplit"`}, {`"ids":[1]`, `"ids":[2]`},
		{`"cafe":3,"##s":4`, `"cafe":4,"##s":3`}, {`"max_input_chars_per_word":100`, `"max_input_chars_per_word":99`}, {`"<x>"`, `"<y>"`},
	} {
		require.NotEqual(t, base, of(strings.Replace(tinyWordPiece, other[0], other[1], 1)), other[1])
	}
	merges := `{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"ba":3},"merges":["a b","b a"]}}`
	require.Equal(t, of(merges), of(strings.NewReplacer(`"a b"`, `["a","b"]`, `"b a"`, `["b","a"]`).Replace(merges)), "merges as pairs")
	require.NotEqual(t, of(merges), of(strings.Replace(merges, `"a b","b a"`, `"b a","a b"`, 1)), "order of merges")
	scores := `{"model":{"type":"Unigram","unk_id":0,"vocab":[["a",-1],["b",-2]]}}`
	require.NotEqual(t, of(scores), of(strings.Replace(scores, "-2", "-3", 1)), "scores")
}

// TestGrowth: normalizers that make more and more of a text, or of an added token, are an error before memory ends.
func TestGrowth(t *testing.T) {
	doubles := strings.Repeat(`{"type":"Replace","pattern":{"String":"a"},"content":"aa"},`, 40)
	long := strings.Repeat("x", 1<<20)
	for _, steps := range []string{
		strings.TrimSuffix(doubles, ","),
		`{"type":"Replace","pattern":{"String":"a"},"content":"` + long + `"}`,
		`{"type":"Prepend","prepend":"` + long + `"}`,
	} {
		file := strings.Replace(tinyWordPiece, `"normalizer":`, `"normalizer":{"type":"Sequence","normalizers":[`+steps+`]},"_":`, 1)
		tok, err := Parse([]byte(strings.Replace(file, `"_":{"type":"BertNormalizer","clean_text":true,`+
			`"handle_chinese_chars":true,"strip_accents":null,"lowercase":true},`, "", 1)))
		require.NoError(t, err)
		_, err = tok.EncodeIDs(nil, strings.Repeat("a", 1000))
		require.ErrorIs(t, err, ErrText)
		require.ErrorContains(t, err, "normalizers make more than")
	}
}
