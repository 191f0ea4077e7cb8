//go:build unix

package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// addBooks adds documents of three passages each, all of which have the word owls.
func (s *service) addBooks(t *testing.T, n int) {
	t.Helper()
	s.ok(t, 200, "POST", "/indices", object{"name": "books"}, nil)
	var docs, metadata list
	for i := range n {
		for j, text := range []string{"owls hunt", "owls sleep all day", fmt.Sprintf("owls of book %d", i)} {
			id := fmt.Sprintf("book%02d", i)
			docs = append(docs, text)
			metadata = append(metadata, object{"_id": fmt.Sprintf("%s#%d", id, j), "title": "Title of " + id, "text": text,
				"_passage": object{"of": id, "n": j, "start": 20 * j, "end": 20*j + len(text)}})
		}
	}
	s.ok(t, 202, "POST", "/indices/books/update_with_encoding", object{"documents": docs, "metadata": metadata}, nil)
}

// Whatever is searched by, pages count documents and not their passages.
func TestPageCountsDocuments(t *testing.T) {
	b := startBrowser(t)
	s, origin, url := pageOf(t, words{}, nil)
	s.addBooks(t, 15)
	for _, kind := range []string{"text", "keywords", "hybrid"} {
		t.Run(kind, func(t *testing.T) {
			p := b.open(t, url+"#index=books&"+kind+"=owls")
			p.until(ready + " && /^10 results in/.test(document.querySelector('#status').innerText)")
			first := p.ids()
			require.Len(t, first, 10)
			p.click("#after")
			p.until("/^Results 11 to 15 in/.test(document.querySelector('#status').innerText)")
			var over bool
			p.js("document.querySelector('#after').disabled", &over)
			require.True(t, over)
			second := p.ids()
			require.Len(t, second, 5)
			for _, id := range second {
				require.NotContains(t, first, id)
			}
			var parts int
			p.js("document.querySelectorAll('.hit')[0].querySelectorAll('.part').length", &parts)
			require.Equal(t, 3, parts)
			require.Contains(t, p.text(".hit mark"), "owls")
			p.sound(origin)
		})
	}
}

// A document of passages is a query as a whole.
func TestPageSimilarToPassages(t *testing.T) {
	b := startBrowser(t)
	s, origin, url := pageOf(t, words{}, nil)
	s.addBooks(t, 3)
	p := b.open(t, url+"#index=books&id=book01")
	p.until(ready + " && document.querySelectorAll('.hit').length == 3")
	require.Equal(t, "book01", p.ids()[0])
	require.Contains(t, p.text(".hit .id"), "the document itself")
	p.click(".hit button[aria-expanded]")
	p.until("document.querySelector('.heat')")
	require.Equal(t, "owls\nhunt\nowls\nsleep\nall\nday\nowls\nof\nbook\n1", strings.TrimPrefix(p.text(".tokens"), "all\n"), "the tokens of all of its passages")
	p.click(".hit .buttons button:nth-child(2)") // Similar
	p.until("document.querySelector('#query').value == 'book01'")

	p.write("#query", "book02#2") // and one passage alone
	p.click("#search button")
	p.until("document.querySelector('.hit')?.dataset.id == 'book02' && /the document itself/.test(document.querySelector('.hit .id').innerText)")
	p.sound(origin)
}

// What one types is searched for from the second letter on, and from the first character
// where words have one.
func TestPageOneCharacter(t *testing.T) {
	b := startBrowser(t)
	s, origin, url := pageOf(t, words{}, nil)
	s.addPets(t)
	for text, searched := range map[string]bool{"犬": true, "𠮷": true, "ね": true, "ネ": true, "개": true, "d": false, "é": false} {
		p := b.open(t, url+"#index=pets")
		p.until(ready + " && /^Documents/.test(document.querySelector('#status').innerText)")
		p.js("document.querySelector('#query').focus()", nil)
		p.call("Input.insertText", object{"text": text}, nil)
		if searched {
			p.until("/results? in/.test(document.querySelector('#status').innerText)")
		} else {
			p.call("Input.insertText", object{"text": "ogs"}, nil)
			p.until("/results? in/.test(document.querySelector('#status').innerText)")
		}
		b.mu.Lock()
		n := 0
		for _, a := range p.asked {
			if strings.HasSuffix(a, "/search_with_encoding") {
				n++
			}
		}
		b.mu.Unlock()
		require.Equal(t, 1, n, text)
		p.sound(origin)
	}
}

// Words are marked as searches by words compare them, and parts of words as those of trigrams
// do.
func TestPageMarksWords(t *testing.T) {
	b := startBrowser(t)
	_, origin, url := pageOf(t, nil, nil)
	p := b.open(t, url)
	p.until(ready)
	for _, c := range []struct {
		text, question string
		want           list // start, end, in characters of JavaScript
	}{
		{"Größe und GRÖSSE, grosse", "große", list{list{0, 5}}},
		{"Cafés and cafe\u0301s", "CAFES", list{list{0, 5}, list{10, 16}}},
		{"Ёлка елка", "ёлка", list{list{0, 4}, list{5, 9}}},
		{"किताब कताब", "किताब", list{list{0, 5}}}, // vowels are no accents
		{"unlocking locks", "lock", list{list{2, 6}, list{10, 14}}},
		{"lock unlocking", "lock", list{list{0, 4}}},
		{"at that", "at", list{list{0, 2}}},
		{"that", "at", list{}},
		{"東京都の天気", "東京の天気は？", list{list{0, 2}, list{3, 6}}},
		{"今日はお茶とｶﾞｽ", "茶 ガス", list{list{4, 5}, list{6, 9}}},
		{"서울에서 물을", "서울 물", list{list{0, 2}, list{5, 6}}},
	} {
		text, err := json.Marshal(list{c.text, c.question})
		require.NoError(t, err)
		var got list
		p.js(`import("./ui/texts.js").then((m) => m.wordRanges(...`+string(text)+`).map((r) => [r.start, r.end]))`, &got)
		want, err := json.Marshal(c.want)
		require.NoError(t, err)
		is, err := json.Marshal(got)
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(is), c.text)
	}
	p.sound(origin)
}
