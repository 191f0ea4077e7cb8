//go:build unix

package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/server"
)

const (
	hostileTitle = `<img src=x onerror="alert(1)">`
	hostileText  = `größe <script>alert(2)</script> 犬 dogs`
)

// pageOf serves the page of a service below a path, as behind a proxy.
func pageOf(t *testing.T, e server.Encoder, o *server.Options) (s *service, origin, url string) {
	t.Helper()
	s = start(t, e, o)
	h := httptest.NewServer(http.StripPrefix("/below", s))
	t.Cleanup(h.Close)
	return s, h.URL + "/below/", h.URL + "/below/ui"
}

func (s *service) addZoo(t *testing.T) {
	t.Helper()
	s.addPets(t)
	s.ok(t, 202, "POST", "/indices/pets/update", object{
		"documents": list{object{"embeddings": matrix(hostileText)}},
		"metadata":  list{object{"_id": "<b>d</b>", "title": hostileTitle, "text": hostileText, "year": 2030}},
	}, nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "bare"}, nil)
}

const ready = "document.body.dataset.ready"

// choose selects an index when the page is ready, and waits for its documents.
func (p *tab) choose(index string) {
	p.t.Helper()
	p.until(ready)
	p.js("(() => { const e = document.querySelector('#index'); e.value = '"+index+"'; e.dispatchEvent(new Event('change')); })()", nil)
	p.until("/^Documents/.test(document.querySelector('#status').innerText)")
}

func (p *tab) ask(query string) {
	p.t.Helper()
	p.write("#query", query)
	p.click("#search button")
	p.until("document.querySelector('#results').getAttribute('aria-busy') == 'false'")
}

// ids are those of the documents that are shown, in order.
func (p *tab) ids() (ids []string) {
	p.t.Helper()
	p.js("[...document.querySelectorAll('.hit')].map(e => e.dataset.id)", &ids)
	return ids
}

func TestPage(t *testing.T) {
	b := startBrowser(t)
	s, origin, url := pageOf(t, words{}, nil)
	s.addZoo(t)

	t.Run("search by keyboard, and a heat map", func(t *testing.T) {
		p := b.open(t, url)
		p.choose("pets")
		p.tabTo("#query")
		p.call("Input.insertText", object{"text": "dogs at home"}, nil)
		p.press("Enter")
		p.until("/^4 results in/.test(document.querySelector('#status').innerText)")
		require.Equal(t, "b", p.ids()[0])
		require.Equal(t, "dogs", p.text(".hit h3"))
		p.click("#times-box summary")
		for _, stage := range []string{"encoding the question", "exact scores", "the rest in the service", "on the way"} {
			require.Contains(t, p.text("#times"), stage)
		}

		p.tabTo(".hit button[aria-expanded]")
		p.press("Space")
		p.until("document.querySelector('.heat')")
		require.Contains(t, p.text(".explanation"), "As a table")
		var twice bool
		p.js("document.querySelector('.hit .text').checkVisibility()", &twice)
		require.False(t, twice, "the text is there twice")
		require.Equal(t, "dogs bark at night", p.text(".heat"))
		require.Contains(t, p.text(".hit"), "returned: It is among the results. Rank 1.")
		var rows [][]string
		p.js("[...document.querySelectorAll('.explanation tbody tr')].map(r => [...r.cells].map(c => c.textContent))", &rows)
		require.Len(t, rows, 3)
		require.Equal(t, []string{"dogs", "dogs", "0"}, rows[0][:3])
		require.Equal(t, []string{"at", "at", "2"}, rows[1][:3])

		heat := func() (of map[string]float64) {
			p.js("Object.fromEntries([...document.querySelectorAll('.heat span')].map(e => [e.textContent, Number(e.style.getPropertyValue('--heat'))]))", &of)
			return of
		}
		all := heat()
		require.Len(t, all, 4)
		for _, matched := range []string{"dogs", "at"} {
			require.Greater(t, all[matched], .5)
			require.Greater(t, all[matched], all["bark"])
			require.Greater(t, all[matched], all["night"])
		}
		var coloured bool
		p.js("getComputedStyle(document.querySelector('.heat span')).backgroundColor != getComputedStyle(document.querySelector('.heat')).backgroundColor", &coloured)
		require.True(t, coloured)

		p.tabTo(".tokens li:nth-child(3) button") // all, dogs, at
		p.press("Enter")
		p.until("document.querySelector('.heat .best')?.textContent == 'at'")
		require.InDelta(t, 1, heat()["at"], .001)
		require.Less(t, heat()["night"], .9)
		require.Regexp(t, `“at” matches “at” best, with (1\.0|0\.99)`, p.text(".explanation [role=status]"))
		require.Equal(t, "true", p.attribute(".tokens li:nth-child(3) button", "aria-pressed"))
		p.sound(origin)
	})

	t.Run("texts are no HTML", func(t *testing.T) {
		p := b.open(t, url+"#index=pets&text=gr%C3%B6%C3%9Fe+dogs")
		p.until(ready) // the address says what to search for
		require.Equal(t, "<b>d</b>", p.ids()[0])
		require.Equal(t, hostileTitle, p.text(".hit h3"))
		p.click(".hit button[aria-expanded]")
		p.until("document.querySelector('.heat')")
		require.Equal(t, hostileText, p.text(".heat"))
		var spans []string
		p.js("[...document.querySelectorAll('.heat span')].map(e => e.textContent)", &spans)
		require.Equal(t, strings.Fields(hostileText), spans)
		p.js("void (location.hash = '#index=pets&id=c')", nil)
		p.until("/the document itself/.test(document.querySelector('.hit')?.innerText)")
		require.Equal(t, "c", p.ids()[0])
		var made int
		p.js("document.querySelectorAll('#hits img, #hits script, #hits b').length", &made)
		require.Zero(t, made)
		p.sound(origin)
	})

	t.Run("filter", func(t *testing.T) {
		p := b.open(t, url)
		p.choose("pets")
		p.click("#options summary")
		p.write("#condition", "year >= ? AND title LIKE ?")
		p.write("#parameters", `2020, "b%"`)
		p.ask("cats")
		require.Equal(t, []string{"c"}, p.ids())
		// Why another is not there.
		p.click("#why-box summary")
		p.write("#why-id", "a")
		p.click("#why button")
		p.until("document.querySelector('#why-answer .heat')")
		require.Contains(t, p.text("#why-answer"), "filtered: The filter does not let it through.")
		require.Equal(t, "cats sleep all day", p.text("#why-answer .heat"))
		p.write("#why-id", "nobody")
		p.click("#why button")
		p.until("document.querySelector('#error .code')?.textContent == 'DOCUMENT_NOT_FOUND'")

		was := p.ids()
		require.NotEmpty(t, was)
		p.write("#condition", "yeer >= ?")
		p.write("#parameters", "1")
		p.ask("cats")
		require.Equal(t, "BAD_REQUEST", p.text("#error .code"))
		require.Contains(t, p.text("#error"), "yeer")
		require.Equal(t, was, p.ids(), "what was found stays")
		require.Contains(t, p.text("#status"), "the search before")
		p.write("#parameters", "b%")
		p.ask("cats")
		require.Contains(t, p.text("#error"), "not JSON")
		require.Equal(t, "true", p.attribute("#parameters", "aria-invalid"))
		p.write("#top-k", "0")
		p.write("#parameters", "1")
		p.ask("cats")
		require.Contains(t, p.text("#error"), "1 to 100")
		p.write("#top-k", "3")
		p.write("#condition", "")
		p.write("#parameters", "")
		p.ask("cats")
		require.Equal(t, "a", p.ids()[0])
		p.until("document.querySelector('#error').hidden")
		p.sound(origin)
	})

	t.Run("keywords", func(t *testing.T) {
		p := b.open(t, url+"#index=pets&keywords=morning")
		p.until(ready)
		require.Equal(t, "keywords", p.value("input[name=kind]:checked"))
		require.Equal(t, []string{"c"}, p.ids())
		p.click("#why-box summary")
		p.write("#why-id", "a")
		p.click("#why button")
		p.until("/not explained/.test(document.querySelector('#why-answer').innerText)")
		p.ask("elephants")
		require.Empty(t, p.ids())
		p.js("document.querySelector('input[value=hybrid]').click()", nil)
		p.ask("dogs in the morning")
		require.Len(t, p.ids(), 4, "each has some score by meaning")
		require.ElementsMatch(t, []string{"b", "c"}, p.ids()[:2])
		p.click(".hit button[aria-expanded]")
		p.until("document.querySelector('.heat')")
		require.Contains(t, p.text(".hit"), "By meaning alone:")
		var address string
		p.js("location.hash", &address)
		require.Equal(t, "#index=pets&hybrid=dogs+in+the+morning", address)
		p.sound(origin)
	})

	t.Run("similar documents, statistics, errors", func(t *testing.T) {
		p := b.open(t, url+"#index=pets&view=manage")
		p.until(ready + " && document.querySelector('#stats dl')")
		require.Regexp(t, `(?s)Documents\s+4\s.*Growth and drift.*Drift \(their ratio\)`, p.text("#stats"))
		p.click("[data-view=search]")
		p.until("document.querySelectorAll('.hit').length == 4")
		p.ask("sing")
		p.click(".hit .buttons button:nth-child(2)")
		p.until("document.querySelector('input[name=kind]:checked').value == 'id' && /the document itself/.test(document.querySelector('.hit')?.innerText)")
		require.Equal(t, "c", p.ids()[0])
		require.Regexp(t, `^(5|4\.9\d*)`, p.text(".hit .score")) // five tokens, each its own best
		p.click(".hit button[aria-expanded]")
		p.until("document.querySelector('.heat')")
		require.Equal(t, "all\nbirds\nsing\nin\nthe\nmorning", p.text(".tokens"))
		p.ask("nobody")
		require.Equal(t, "DOCUMENT_NOT_FOUND", p.text("#error .code"))

		p.js("document.querySelector('input[value=text]').click()", nil)
		p.js("(() => { const e = document.querySelector('#index'); e.value = 'bare'; e.dispatchEvent(new Event('change')); })()", nil)
		p.ask("cats")
		require.Equal(t, "INDEX_NOT_FOUND", p.text("#error .code"))
		require.Contains(t, p.text("#error"), "declared and has no documents yet")

		p.js("void (location.hash = '#index=gone&text=cats')", nil)
		p.until("/there is no index gone/.test(document.querySelector('#error').innerText)")
		p.ask("cats") // and not in another index
		require.Contains(t, p.text("#error"), "choose an index")
		p.sound(origin)
	})

	t.Run("what must not happen is seen, or forbidden", func(t *testing.T) {
		for _, do := range []string{
			"void console.error('an error')",
			"void setTimeout(() => { throw new Error('an exception'); })",
			"void Promise.reject(new Error('a rejection'))",
			"fetch('http://127.0.0.1:9/').catch(() => {})",
			"void document.body.setAttribute('style', 'color: red')",
			"(() => { try { document.body.innerHTML = '<b>x</b>'; } catch { } })()",
		} {
			p := b.open(t, url)
			p.until(ready)
			p.js(do, nil)
			require.Eventually(t, func() bool {
				b.mu.Lock()
				defer b.mu.Unlock()
				return len(p.faults) > 0
			}, patience, 20*time.Millisecond, do)
			require.Empty(t, p.text("main b"))
		}
	})

	t.Run("pieces of a text", func(t *testing.T) {
		p := b.open(t, url)
		p.until(ready)
		for _, c := range []struct {
			text   string
			tokens list // start, end in bytes
			want   list // text, token; −1: none
		}{
			{"ab cd", list{list{0, 2}, list{3, 5}}, list{list{"ab", 0}, list{" ", -1}, list{"cd", 1}}},
			{"é犬𝄞x", list{list{0, 2}, list{2, 5}, list{5, 9}}, list{list{"é", 0}, list{"犬", 1}, list{"𝄞", 2}, list{"x", -1}}},
			// A character in two pieces belongs to the first; what is no part of the text, to none.
			{"𝄞x", list{list{0, 0}, list{0, 2}, list{2, 4}, list{4, 5}}, list{list{"𝄞", 1}, list{"x", 3}}},
			{"ab", list{list{1, 99}}, list{list{"a", -1}, list{"b", 0}}},
			{"", list{}, list{}},
		} {
			text, err := json.Marshal(list{c.text, c.tokens})
			require.NoError(t, err)
			var got list
			p.js(`(async () => { const [text, tokens] = `+string(text)+`; const m = await import("./ui/heat.js");
				return m.spansOf(text, tokens.map(([start, end]) => ({ start, end }))).map((s) => [s.text, s.token ?? -1]); })()`, &got)
			want, err := json.Marshal(c.want)
			require.NoError(t, err)
			is, err := json.Marshal(got)
			require.NoError(t, err)
			require.JSONEq(t, string(want), string(is), c.text)
		}
		p.sound(origin)
	})

	t.Run("dark", func(t *testing.T) {
		p := b.open(t, url+"#index=pets&text=cats+dogs")
		for _, scheme := range []string{"light", "dark"} {
			p.call("Emulation.setEmulatedMedia", object{"features": list{object{"name": "prefers-color-scheme", "value": scheme}}}, nil)
			p.until(ready + " && document.querySelector('.hit') && matchMedia('(prefers-color-scheme: " + scheme + ")').matches")
			p.js("document.querySelector('.heat') || document.querySelector('.hit button[aria-expanded]').click()", nil)
			p.until("document.querySelector('.heat')")
			// Texts stand out: 4.5 to 1 (WCAG 2, AA), on the hottest token too.
			for _, pair := range [][2]string{{"--ink", "--ground"}, {"--ink", "--panel"}, {"--quiet", "--ground"}, {"--quiet", "--panel"}, {"--ink", "--hot"}, {"--ink", "--mark"}, {"--ink", "--soft"}, {"--quiet", "--soft"}, {"--accent", "--soft"}, {"--on-accent", "--accent"}, {"--accent", "--panel"}, {"--bad", "--bad-ground"}} {
				require.GreaterOrEqual(t, p.contrast(pair[0], pair[1]), 4.5, "%s: %s on %s", scheme, pair[0], pair[1])
			}
			var ground string
			p.js("getComputedStyle(document.body).backgroundColor", &ground)
			require.Equal(t, map[string]string{"light": "rgb(246, 247, 245)", "dark": "rgb(18, 22, 20)"}[scheme], ground)
		}
		p.sound(origin)
	})
}

// attribute of the first element of a selector.
func (p *tab) attribute(selector, name string) string {
	p.t.Helper()
	var s string
	selected, _ := json.Marshal(selector)
	p.js("document.querySelector("+string(selected)+").getAttribute('"+name+"') ?? ''", &s)
	return s
}

// contrast of two colours of the style sheet, by WCAG 2.
func (p *tab) contrast(front, back string) float64 {
	p.t.Helper()
	var ratio float64
	p.js(`(() => { const light = (name) => {
		const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim().slice(1);
		const all = hex.length == 3 ? [...hex].map((c) => c + c) : hex.match(/../g);
		const [r, g, b] = all.map((c) => parseInt(c, 16) / 255).map((c) => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
		return .2126 * r + .7152 * g + .0722 * b + .05; };
		const [a, b] = [light("`+front+`"), light("`+back+`")];
		return Math.max(a, b) / Math.min(a, b); })()`, &ratio)
	return ratio
}

func TestPageAsksForAToken(t *testing.T) {
	b := startBrowser(t)
	tokens := server.Tokens{server.NewToken("admin", server.Admin, "a secret of the admin"), server.NewToken("reader", server.Read, "a secret of readers")}
	st := openStore(t, nil)
	open := startAt(t, st, words{}, nil) // fills the store without a token
	open.addZoo(t)
	h := httptest.NewServer(startAt(t, st, words{}, &server.Options{Tokens: tokens}))
	t.Cleanup(h.Close)

	p := b.open(t, h.URL+"/ui#index=pets")
	p.until("document.querySelector('#token-dialog').open")
	require.Equal(t, "UNAUTHORIZED", p.text("#error .code"))
	p.write("#token", "a secret of nobody")
	p.press("Enter")
	p.until("/not valid/.test(document.querySelector('#error').innerText) && document.querySelector('#token-dialog').open")
	p.write("#token", "a secret of readers")
	p.press("Enter")
	p.until("document.querySelector('#error').hidden && document.querySelector('#hits').children.length")
	require.Equal(t, "pets", p.value("#index"))
	p.ask("dogs")
	require.Contains(t, p.ids(), "b")
	// It is in this tab and nowhere else.
	var kept []string
	p.js("[sessionStorage.getItem('plaid-token'), String(localStorage.length), document.cookie, document.querySelector('#token').value]", &kept)
	require.Equal(t, []string{"a secret of readers", "0", "", ""}, kept)
	require.NotContains(t, p.value("#query"), "secret")
	p.click("#open-token")
	p.click("#token-form button[value=forget]")
	p.until("document.querySelector('#error .code')?.textContent == 'UNAUTHORIZED' && !document.querySelector('#error').hidden")
	p.sound(h.URL)
}

func (p *tab) value(selector string) string {
	p.t.Helper()
	var s string
	p.js("document.querySelector('"+selector+"').value", &s)
	return s
}

// Without a model similar documents are found, and tokens have numbers.
func TestPageWithoutAModel(t *testing.T) {
	b := startBrowser(t)
	s, origin, url := pageOf(t, nil, nil)
	s.addZoo(t)
	p := b.open(t, url+"#index=pets")
	p.until(ready)
	require.Contains(t, p.text("#service"), "without a model")
	p.ask("dogs")
	require.Equal(t, "MODEL_NOT_LOADED", p.text("#error .code"))
	p.js("document.querySelector('input[value=keywords]').click()", nil)
	p.ask("dogs")
	require.Contains(t, p.ids(), "b")
	p.js("document.querySelector('input[value=id]').click()", nil)
	p.ask("b")
	require.Equal(t, "b", p.ids()[0])
	p.click(".hit button[aria-expanded]")
	p.until("document.querySelector('.explanation table')")
	require.Contains(t, p.text(".explanation table"), "token 3")
	require.Empty(t, p.text(".heat"))
	p.sound(origin)
}
