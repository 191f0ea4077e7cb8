//go:build unix

package server_test

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/server"
)

// drop drops files on the place for them, as {"path": "text"}.
func (p *tab) drop(files map[string]string) {
	p.t.Helper()
	text, err := json.Marshal(files)
	require.NoError(p.t, err)
	p.js(`(() => { const t = new DataTransfer();
		for (const [name, text] of Object.entries(`+string(text)+`)) t.items.add(new File([text], name));
		document.querySelector('.drop').dispatchEvent(new DragEvent('drop', { dataTransfer: t, bubbles: true, cancelable: true })); })()`, nil)
}

// fits checks that nothing is wider than the screen.
func (p *tab) fits(what string) {
	p.t.Helper()
	var wide []string
	p.js(`(() => { const w = document.documentElement.clientWidth;
		return document.documentElement.scrollWidth <= w ? [] : [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > w + 1).map(e => e.tagName + '#' + e.id + '.' + e.className); })()`, &wide)
	require.Empty(p.t, wide, what)
}

func (p *tab) size(width, height int) {
	p.t.Helper()
	p.call("Emulation.setDeviceMetricsOverride", object{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
}

// addHostile adds the zoo with values and names of fields that no page may take for its own.
func (s *service) addHostile(t *testing.T) {
	s.addZoo(t)
	s.ok(t, 200, "POST", "/indices/pets/metadata/update", object{"condition": "1=1", "updates": object{
		"kind": `"><script>alert(1)</script>`, "tags": list{`'); alert(1)//`, `a|b.*"`}, "nested": object{`_x"]<img src=x onerror=alert(1)>`: hostileTitle}}}, nil)
}

// Where nothing is there yet the page says what to do, and does it: the sample, files, and
// folders of them.
func TestPageFromNothing(t *testing.T) {
	b := startBrowser(t)
	e, err := encode.Open(filepath.Join("..", "docs", "examples", "quickstart", "colbert-nano"), nil)
	require.NoError(t, err)
	defer e.Close()
	s, origin, url := pageOf(t, e, nil)
	p := b.open(t, url)
	p.until(ready)
	require.Contains(t, p.text("#start"), "There are no indexes yet")
	p.axe()
	p.click("#try-sample")
	p.until("/^Documents 1 to 10 of 30/.test(document.querySelector('#status').innerText)")
	require.Equal(t, "sample", p.value("#index"))
	p.until("document.querySelectorAll('#facets fieldset').length == 3") // topic, continent, year
	require.Contains(t, p.text("#facets"), "animals")

	t.Run("filters", func(t *testing.T) {
		p.click(`[data-facet='["topic","food"]']`)
		p.until("/of 7$/.test(document.querySelector('#status').innerText)")
		p.click(`[data-facet='["continent","Asia"]']`) // a list
		p.until("/of 2$/.test(document.querySelector('#status').innerText)")
		require.ElementsMatch(t, []string{"kimchi", "tea"}, p.ids())
		p.click(`[data-facet='["topic","rivers"]']`) // of one field either
		p.until("/of 3$/.test(document.querySelector('#status').innerText)")
		p.write("#query", "leaves that turn brown")
		p.until("/^3 results/.test(document.querySelector('#status').innerText)") // as one types
		require.Equal(t, "tea", p.ids()[0])
		require.NotEmpty(t, p.text(".hit mark"))
		p.js("void (location.hash = location.hash)", nil)
		for range 3 {
			p.click("#chosen .pill")
		}
		p.until("/^10 results/.test(document.querySelector('#status').innerText)")
		p.click("#after")
		p.until("/^Results 11 to 20/.test(document.querySelector('#status').innerText) && document.querySelectorAll('.hit').length == 10")
		require.Contains(t, p.text("#page-number"), "Page 2")
	})

	t.Run("judgements and tokens that fill up", func(t *testing.T) {
		p.ask("an animal that hunts")
		p.click(".hit .judge")
		p.until("/with 1 judgement/.test(document.querySelector('#status').innerText)")
		require.Equal(t, "true", p.attribute(".hit .judge", "aria-pressed"))
		p.click(".hit button[aria-expanded][aria-label]")
		p.until("document.querySelector('.masks')")
		require.Regexp(t, `^\d+ × \[MASK\]: .* of the score`, p.text(".masks summary"))
		require.NotContains(t, p.text(".explanation > .tokens"), "MASK")
	})

	t.Run("files", func(t *testing.T) {
		p.click("[data-view=add]")
		p.until("document.querySelector('#add-index')")
		p.write("#add-index", "mine")
		p.drop(map[string]string{
			"a.md":    "# Owls\n\nOwls hunt at night.\n\n## Ears\n\nThey hear mice in the snow.\n",
			"b.txt":   "Rivers flow to the sea.",
			"c.csv":   "id,title,body,Page Number\nr1,\"One, two\",\"Bread is \"\"baked\"\".\",7\n",
			"d.jsonl": `{"docid": 5, "contents": "` + `Comets have tails.", "` + `a-b": [1]}` + "\n\n" + `{"id": "<b>x</b>", "text": "<script>alert(1)</script> moons"}`,
			"e.png":   "none",
		})
		p.until("document.querySelector('#index').value == 'mine' && /^Passages 1 to 6 of 6, of 5 documents/.test(document.querySelector('#status').innerText)")
		var d struct {
			Documents []struct {
				ID       string `json:"id"`
				Metadata object `json:"metadata"`
			} `json:"documents"`
		}
		s.ok(t, 200, "GET", "/indices/mine/documents?id=a.md%230&id=a.md%231&id=b.txt&id=r1&id=5&id=%3Cb%3Ex%3C/b%3E", nil, &d)
		ears := d.Documents[1].Metadata
		require.Equal(t, "a.md › Owls › Ears", ears["title"])
		require.Equal(t, "## Ears\n\nThey hear mice in the snow.", ears["text"])
		require.Equal(t, object{"of": "a.md", "n": 1., "start": 29., "end": 66.}, object(ears["_passage"].(map[string]any)))
		require.Equal(t, 7., d.Documents[3].Metadata["Page Number"])
		require.Equal(t, `Bread is "baked".`, d.Documents[3].Metadata["text"])
		p.ask("what do owls hear?")
		require.Equal(t, "a.md", p.ids()[0])
		var parts int
		p.js("document.querySelectorAll('.hit')[0].querySelectorAll('.part').length", &parts)
		require.Equal(t, 2, parts, "passages under their document")
		p.js("document.querySelector('input[value=keywords]').click()", nil)
		p.until("/^\\d+ results? in/.test(document.querySelector('#status').innerText) && document.querySelectorAll('.hit .part').length == 2")

		p.click("[data-view=add]")
		p.until("document.querySelector('.drop')")
		p.drop(map[string]string{"bad.jsonl": `{"words": "x"}`})
		p.until("/line 1 has no text. It has words/.test(document.querySelector('.progress .error').innerText)")
		p.sound(origin)
	})

	t.Run("manage", func(t *testing.T) {
		p.click("[data-view=manage]")
		p.until("document.querySelector('#verify')")
		p.click("#verify")
		p.until("/It is sound/.test(document.querySelector('#manage').innerText)")
		require.Contains(t, p.text("#manage"), "Nothing waits to be written.")
		require.Contains(t, p.text("#manage"), "None is needed")
		p.axe()
		p.write("#new-index", "empty")
		p.click("#new button")
		p.until("[...document.querySelectorAll('#index option')].some(o => o.value == 'empty')")
		p.until("document.querySelector('#index').value == 'empty'")
		p.until("document.querySelector('#drop-dialog').open || (document.querySelector('#drop')?.click(), false)")
		p.write("#drop-again", "min")
		p.click("#drop-form [value=drop]")
		p.until("/nothing is deleted/.test(document.querySelector('#error').innerText)")
		s.ok(t, 200, "GET", "/indices/mine", nil, nil)
	})
	p.sound(origin)
}

// A value of lists is found however the JSON that brought it has written it.
func TestPageFiltersLists(t *testing.T) {
	b := startBrowser(t)
	s, _, url := pageOf(t, words{}, nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "pets"}, nil)
	s.ok(t, 202, "POST", "/indices/pets/update_with_encoding", `{"documents": ["cats", "dogs", "owls"], "metadata": [
		{"_id": "a", "tags": ["x", "caf\u00e9", "sl\/ash", "\ud834\udd1e", "a.b", 2.0, true, "犬"]},
		{"_id": "b", "tags": ["café", "sl/ash", "𝄞", "a\u002Eb", 2, true, "\u72AC"]},
		{"_id": "c", "tags": ["caf", "é", "aXb", 20, 12, "2", "true", "slash"]}]}`, nil)
	p := b.open(t, url+"#index=pets")
	p.until(ready)
	for _, value := range (list{"café", "sl/ash", "𝄞", "a.b", 2, true, "犬"}) {
		given, err := json.Marshal(list{object{"field": "tags", "value": value, "list": true}})
		require.NoError(t, err)
		var body object
		p.js(`import("./ui/fields.js").then((m) => m.conditionOf({}, `+string(given)+`))`, &body)
		var found struct {
			IDs []int `json:"document_ids"`
		}
		s.ok(t, 200, "POST", "/indices/pets/metadata/query", object{"condition": body["filter_condition"], "parameters": body["filter_parameters"]}, &found)
		require.Equal(t, []int{0, 1}, found.IDs, value)
	}
}

// Values that are hostile are filters as others are, the keyboard is all there is, and who types on
// ends the search before.
func TestPageViews(t *testing.T) {
	b := startBrowser(t)
	s, origin, url := pageOf(t, words{}, nil)
	s.addHostile(t)
	t.Run("filters of hostile values", func(t *testing.T) {
		p := b.open(t, url+"#index=pets")
		p.until(ready + " && document.querySelectorAll('#facets input').length > 3")
		for range 3 { // each finds all
			p.js("[...document.querySelectorAll('#facets input:not(:checked)')].find(e => !/year/.test(e.dataset.facet)).click()", nil)
			p.until("/of 4$/.test(document.querySelector('#status').innerText) && document.querySelector('#results').getAttribute('aria-busy') == 'false'")
		}
		p.sound(origin)
	})

	t.Run("keyboard", func(t *testing.T) {
		p := b.open(t, url+"#index=pets")
		p.until(ready)
		p.press("/")
		p.until("document.activeElement.id == 'query'")
		p.press("ArrowDown")
		p.press("ArrowDown")
		p.until("document.activeElement == document.querySelectorAll('.hit')[1]")
		p.press("ArrowUp")
		p.press("ArrowUp")
		p.until("document.activeElement.id == 'query'")
	})

	t.Run("what is typed on ends the search before", func(t *testing.T) {
		p := b.open(t, url+"#index=pets")
		p.until(ready)
		p.js("document.querySelector('#query').focus()", nil)
		for _, c := range strings.Split("dogs bark", "") {
			p.call("Input.insertText", object{"text": c}, nil)
		}
		p.until("/^4 results in/.test(document.querySelector('#status').innerText)")
		require.Equal(t, "b", p.ids()[0])
		b.mu.Lock()
		n := 0
		for _, a := range p.asked {
			if strings.HasSuffix(a, "/search_with_encoding") {
				n++
			}
		}
		b.mu.Unlock()
		require.Less(t, n, len("dogs bark"), "each letter is not a search")
		p.sound(origin)
	})
}

// What the page gives as code runs, with whatever is in it, and finds the same.
func TestPageCode(t *testing.T) {
	b := startBrowser(t)
	const secret = "a secret of readers"
	s := start(t, words{}, nil)
	s.addZoo(t)
	s = startAt(t, s.store, words{}, &server.Options{Tokens: server.Tokens{server.NewToken("r", server.Read, secret)}})
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	p := b.open(t, h.URL+"/ui")
	p.until("document.querySelector('#token-dialog').open")
	p.write("#token", secret)
	p.click("#token-form button[value=use]")
	p.until("document.querySelectorAll('#index option').length == 2")
	p.choose("pets")
	hostile := "dogs' \"$(touch x)` \\ ${y} \u202e\ufeff é犬𝄞 %s \x7f"
	p.write("#query", hostile)
	p.until("/^4 results in/.test(document.querySelector('#status').innerText)")
	want := p.ids()
	p.click("#code-box summary")
	for _, c := range []struct {
		name, file string
		run        []string
	}{
		{"curl", "ask.sh", []string{"sh", "ask.sh"}},
		{"Python", "ask.py", []string{"python3", "ask.py"}},
		{"Go", "ask.go", []string{"go", "run", "ask.go"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p.click("[data-code=" + c.name + "]")
			var code string
			p.js("document.querySelector('#code pre').textContent", &code)
			require.NotContains(t, code, secret)
			require.NotContains(t, code, "\u202e")
			for _, program := range append([]string{c.run[0]}, map[bool]string{true: "curl", false: c.run[0]}[c.name == "curl"]) {
				if _, err := exec.LookPath(program); err != nil {
					t.Skipf("needs %s", program)
				}
			}
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, c.file), []byte(code), 0o666))
			cmd := exec.Command(c.run[0], c.run[1:]...)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PLAID_TOKEN="+secret, "GOFLAGS=-mod=mod", "GO111MODULE=auto")
			var errs strings.Builder
			cmd.Stderr = &errs
			text, err := cmd.Output()
			if c.name == "curl" && strings.Contains(errs.String(), "--json") {
				t.Skip("needs curl 7.82")
			}
			require.NoError(t, err, errs.String())
			var answer struct {
				Results []struct {
					Metadata []struct {
						ID string `json:"_id"`
					} `json:"metadata"`
				} `json:"results"`
			}
			require.NoError(t, json.Unmarshal(text, &answer), string(text))
			var got []string
			for _, m := range answer.Results[0].Metadata {
				got = append(got, m.ID)
			}
			require.Equal(t, want, got)
			require.NoFileExists(t, filepath.Join(dir, "x"))
		})
	}
}
