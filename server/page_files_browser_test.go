//go:build unix

package server_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// documentsOf is what the page makes of a file: the documents of each group, as JSON.
func (p *tab) documentsOf(path, text string) (groups [][]struct {
	Text     string          `json:"text"`
	Metadata json.RawMessage `json:"metadata"`
}, empty int, fault string) {
	p.t.Helper()
	given, err := json.Marshal(list{path, text})
	require.NoError(p.t, err)
	var out struct {
		JSON  string `json:"json"`
		Fault string `json:"fault"`
	}
	p.js(`import("./ui/files.js").then((m) => ({ json: JSON.stringify(m.documentsOf(...`+string(given)+`, 400)) })).catch((err) => ({ fault: err.message }))`, &out)
	if out.Fault != "" {
		return nil, 0, out.Fault
	}
	var all struct {
		Groups json.RawMessage `json:"groups"`
		Empty  int             `json:"empty"`
	}
	require.NoError(p.t, json.Unmarshal([]byte(out.JSON), &all))
	require.NoError(p.t, json.Unmarshal(all.Groups, &groups))
	return groups, all.Empty, ""
}

// Ids, titles, texts and the names of fields are stored as they are in files, and numbers
// with all their digits.
func TestPageReadsFiles(t *testing.T) {
	b := startBrowser(t)
	s, origin, url := pageOf(t, words{}, nil)
	p := b.open(t, url)
	p.until(ready)
	metadata := func(path, text string) (all []string) {
		t.Helper()
		groups, _, fault := p.documentsOf(path, text)
		require.Empty(t, fault)
		for _, g := range groups {
			for _, d := range g {
				all = append(all, string(d.Metadata))
			}
		}
		return all
	}

	t.Run("names of fields", func(t *testing.T) {
		require.Equal(t, []string{`{"Page Number":1,"page.number":2,"größe":3,"field_ID":"y","field_passage":4,"__proto__":{"a":1},"text":"t","_id":"x"}`},
			metadata("a.json", `{"id": "x", "text": "t", "Page Number": 1, "page.number": 2, "größe": 3, "_ID": "y", "_passage": 4, "__proto__": {"a": 1}, "none": null}`))
	})

	t.Run("values of CSV", func(t *testing.T) {
		require.Equal(t, []string{
			`{"version":"1.10","zip":"01234","n":-7.5,"big":"12345678901234567890","e":"1e3","title":"2020","text":"3.0","_id":"1.10"}`,
			`{"version":1.1,"zip":"NaN","n":0,"big":12,"e":"Infinity","title":"2021","text":"4","_id":"1.1"}`,
		}, metadata("a.csv", "id,title,text,version,zip,n,big,e\n1.10,2020,3.0,1.10,01234,-7.5,12345678901234567890,1e3\n1.1,2021,4,1.1,NaN,0,12,Infinity\n"))
	})

	t.Run("numbers of JSON", func(t *testing.T) {
		require.Equal(t, []string{
			`{"n":12345678901234567891,"x":[0.10,{"y":1e2}],"text":"t","_id":"1234567890123456789"}`,
			`{"title":"1.50","text":"t","_id":"1.10"}`,
		}, metadata("a.jsonl", `{"id": 1234567890123456789, "text": "t", "n": 12345678901234567891, "x": [0.10, {"y": 1e2}]}`+"\n"+`{"id": 1.10, "text": "t", "title": 1.50}`))
		p.js("void (window.keptRaw = JSON.rawJSON, delete JSON.rawJSON)", nil) // as in an older browser
		_, _, fault := p.documentsOf("a.jsonl", `{"id": 1234567890123456789, "text": "t"}`)
		require.Equal(t, "line 1: a number has more digits than this browser reads: write it in quotes", fault)
		require.Equal(t, []string{`{"n":1.5,"text":"t","_id":"7"}`}, metadata("a.jsonl", `{"id": 7, "text": "t", "n": 1.50}`))
		p.js("void (JSON.rawJSON = window.keptRaw)", nil)
	})

	t.Run("rows without a text", func(t *testing.T) {
		groups, empty, fault := p.documentsOf("a.csv", "id,text\na,\nb,here\nc,  \n")
		require.Empty(t, fault)
		require.Len(t, groups, 1)
		require.Equal(t, 2, empty)
		_, empty, _ = p.documentsOf("a.jsonl", `{"id": "a", "text": null}`+"\n"+`{"id": "b", "text": "x"}`+"\n"+`{"id": "c"}`)
		require.Equal(t, 2, empty)
		_, _, fault = p.documentsOf("a.csv", "id,words\na,b\n")
		require.Contains(t, fault, "row 2 has no text. It has id, words")
		_, _, fault = p.documentsOf("a.jsonl", "{\"text\": \"x\"}\n7")
		require.Equal(t, "line 2 is not an object", fault)
		_, _, fault = p.documentsOf("a.json", "{")
		require.Equal(t, "the file is not JSON", fault)
	})

	t.Run("headings of Markdown", func(t *testing.T) {
		text := "Before.\n# One\nunder one\n## Two ##\nunder two\n```sh\n# no heading\n\n## none either\n````\n   # Three\nunder three\n#hash\n~~~\n# code\n```\n~~~\n#\nafter\n"
		groups, _, fault := p.documentsOf("a.md", text)
		require.Empty(t, fault)
		require.Len(t, groups, 1)
		var titles, texts []string
		for _, d := range groups[0] {
			var m struct{ Title, Text string }
			require.NoError(t, json.Unmarshal(d.Metadata, &m))
			titles, texts = append(titles, m.Title), append(texts, m.Text)
		}
		require.Equal(t, []string{"a.md", "a.md › One", "a.md › One › Two", "a.md › Three", "a.md"}, titles)
		require.Equal(t, "## Two ##\nunder two\n```sh\n# no heading\n\n## none either\n````", texts[2])
		require.Equal(t, "# Three\nunder three\n#hash\n~~~\n# code\n```\n~~~", texts[3])
		require.Len(t, metadata("a.txt", text), 1, "another text has no headings")
		require.Len(t, metadata("long.txt", strings.Repeat("A sentence is here. ", 60)), 3)
	})

	t.Run("places of passages", func(t *testing.T) {
		for _, text := range []string{"x" + strings.Repeat("😀", 700), strings.Repeat("größe. ", 300), "# é\n" + strings.Repeat("日本。\n\n## ü\n", 100)} {
			groups, _, fault := p.documentsOf("a.md", text)
			require.Empty(t, fault)
			require.Greater(t, len(groups[0]), 3)
			for _, d := range groups[0] {
				var m struct {
					Text    string
					Passage struct{ Start, End int } `json:"_passage"`
				}
				require.NoError(t, json.Unmarshal(d.Metadata, &m))
				require.Equal(t, strings.TrimSpace(text[m.Passage.Start:m.Passage.End]), m.Text)
			}
		}
	})

	t.Run("stored, and told", func(t *testing.T) {
		p.click("[data-view=add]")
		p.until("document.querySelector('#add-index')")
		p.write("#add-index", "exact")
		p.drop(map[string]string{"a.jsonl": `{"id": 1234567890123456789, "text": "dogs bark", "n": 0.10}` + "\n" + `{"id": "empty", "text": ""}`, "b.png": "x"})
		p.until("/^Documents 1 to 1 of 1.*1 document is stored in exact; 1 row without a text skipped; 1 file skipped/.test(document.querySelector('#status').innerText)")
		r := s.send(t, "GET", "/indices/exact/documents?id=1234567890123456789", nil)
		require.Equal(t, 200, r.status)
		require.Contains(t, r.body, `"n":0.10`)
	})
	p.sound(origin)
}

// Folders are chosen, or dropped, with all that is in them.
func TestPageTakesFolders(t *testing.T) {
	b := startBrowser(t)
	dir := filepath.Join(t.TempDir(), "notes")
	for path, text := range map[string]string{
		"a.md": "# Dogs\nbark", "deep/er/b.txt": "cats sleep", "deep/c.csv": "id,text\nc1,birds sing\n", ".hidden/d.md": "hidden", "deep/.e.md": "hidden", "f.png": "none",
	} {
		at := filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o777))
		require.NoError(t, os.WriteFile(at, []byte(text), 0o666))
	}
	s, origin, url := pageOf(t, words{}, nil)
	for i := range 120 { // more than the browser tells of at a time
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "many"), 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "many", fmt.Sprintf("m%03d.txt", i)), fmt.Appendf(nil, "number %d", i), 0o666))
	}
	for name, give := range map[string]func(p *tab){
		"chosen": func(p *tab) {
			p.setFiles("#add-folder", dir)
		},
		"dropped": func(p *tab) {
			var at [2]float64
			p.js("(() => { const e = document.querySelector('.drop'); e.scrollIntoView({ block: 'center' }); const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + 10]; })()", &at)
			for _, kind := range []string{"dragEnter", "dragOver", "drop"} {
				p.call("Input.dispatchDragEvent", object{"type": kind, "x": at[0], "y": at[1],
					"data": object{"items": list{}, "files": list{dir}, "dragOperationsMask": 1}}, nil)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := b.open(t, url+"#view=add")
			p.until(ready + " && document.querySelector('#add-index')")
			p.write("#add-index", name)
			give(p)
			p.until("document.querySelector('#index').value == '" + name + "' && /of 123\\b/.test(document.querySelector('#status').innerText)")
			s.ok(t, 200, "GET", "/indices/"+name+"/documents?id=notes%2Fa.md&id=notes%2Fdeep%2Fer%2Fb.txt&id=c1&id=notes%2Fmany%2Fm119.txt", nil, nil)
			p.sound(origin)
		})
	}
}
