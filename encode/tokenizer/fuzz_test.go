package tokenizer

import (
	"errors"
	"testing"
	"unicode/utf8"
)

// FuzzParse: a file is read or refused with its place, and what is read tokenizes.
func FuzzParse(f *testing.F) {
	fix := loadFixtures(f)
	f.Add([]byte(tinyWordPiece))
	for _, v := range fix.variants {
		b := fix.file(f, v)
		if len(b) < 20000 {
			f.Add(b)
		}
	}
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"]],"unk_token":"a","byte_fallback":true}}`))
	f.Add([]byte(`{"model":{"type":"Unigram","unk_id":0,"vocab":[["a",-1.5],["▁b",-2]]},"pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first"}}`))
	f.Add([]byte(`{"model":{"type":"WordPiece","vocab":{"[UNK]":0}},"normalizer":{"type":"Precompiled","precompiled_charsmap":"BAAAAAABAgA="},"pre_tokenizer":{"type":"Split","pattern":{"Regex":"\\s+"},"behavior":"MergedWithNext","invert":true}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		tok, err := Parse(b)
		if err != nil {
			var fault *Error
			if !errors.As(err, &fault) || !errors.Is(err, ErrTokenizer) {
				t.Fatalf("not typed: %v", err)
			}
			return
		}
		for _, line := range fix.lines[:60] {
			check(t, tok, line)
		}
	})
}

// FuzzEncode: any text is tokenized or refused, with ids and places that make sense.
func FuzzEncode(f *testing.F) {
	fix := loadFixtures(f)
	var toks []*Tokenizer
	for _, v := range fix.variants {
		tok, err := Parse(fix.file(f, v))
		if err != nil {
			f.Fatal(err)
		}
		toks = append(toks, tok)
	}
	for _, file := range kindsOf(f) {
		tok, err := Parse(file)
		if err != nil {
			f.Fatal(err)
		}
		toks = append(toks, tok)
	}
	for i, line := range fix.lines {
		f.Add(uint8(i), line)
	}
	f.Add(uint8(0), "\xff")
	f.Fuzz(func(t *testing.T, which uint8, text string) {
		check(t, toks[int(which)%len(toks)], text)
	})
}

// check encodes a text both ways.
func check(t *testing.T, tok *Tokenizer, text string) {
	ids, err := tok.EncodeIDs(nil, text)
	tokens, err2 := tok.Encode(text)
	if (err == nil) != (err2 == nil) || err != nil && !errors.Is(err, ErrText) {
		t.Fatalf("%v, %v", err, err2)
	}
	if !utf8.ValidString(text) && err == nil {
		t.Fatal("not UTF-8, and no error")
	}
	if err != nil {
		return
	}
	if !equalTokens(tokens, ids) {
		t.Fatalf("%q: %v, with places %v", text, ids, tokens)
	}
	checkPlaces(t, text, tokens)
	for _, id := range ids {
		if id < 0 || int(id) >= tok.VocabSize() {
			t.Fatalf("%q: id %d of %d", text, id, tok.VocabSize())
		}
	}
}
