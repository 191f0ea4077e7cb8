//go:build unix

package server_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/server"
)

// A snapshot is downloaded, is an index file, and makes an index again.
func TestPageSnapshot(t *testing.T) {
	b := startBrowser(t)
	s, origin, url := pageOf(t, words{}, nil)
	s.addZoo(t)
	dir := t.TempDir()
	require.NoError(t, b.call("", "Browser.setDownloadBehavior", object{"behavior": "allow", "downloadPath": dir}, nil))
	p := b.open(t, url+"#index=pets&view=manage")
	p.until(ready + " && document.querySelector('#snapshot')")
	p.click("#snapshot")
	p.until("/A snapshot of .* was downloaded/.test(document.querySelector('#manage').innerText)")
	path := filepath.Join(dir, "pets.plaid")
	require.Eventually(t, func() bool {
		left, err := filepath.Glob(filepath.Join(dir, "*.crdownload"))
		_, there := os.Stat(path)
		return err == nil && there == nil && len(left) == 0
	}, patience, 20*time.Millisecond)
	ix, err := index.Open(t.Context(), path, nil)
	require.NoError(t, err)
	require.NoError(t, ix.Close())

	p.write("#new-index", "copy")
	p.setFiles("#new-file", path)
	p.click("#new button")
	p.until("document.querySelector('#index').value == 'copy' && /Documents\\s+4\\s/.test(document.querySelector('#stats')?.innerText)")
	s.ok(t, 200, "GET", "/indices/copy/documents?id=b", nil, nil)
	p.sound(origin)
}

// setFiles chooses files in a field for them.
func (p *tab) setFiles(selector string, paths ...string) {
	p.t.Helper()
	var found struct {
		Root struct {
			ID int `json:"nodeId"`
		} `json:"root"`
	}
	p.call("DOM.getDocument", object{}, &found)
	var node struct {
		ID int `json:"nodeId"`
	}
	p.call("DOM.querySelector", object{"nodeId": found.Root.ID, "selector": selector}, &node)
	p.call("DOM.setFileInputFiles", object{"nodeId": node.ID, "files": paths}, nil)
}

// spread is a set on nodes, as far as it says.
type spread struct{ collection.Catalog }

func (spread) Layout() collection.Layout {
	return collection.Layout{
		Nodes: []collection.Node{{Name: "n1", Heard: true}, {Name: `<b>n2</b>`, Heard: false}},
		Collections: []collection.Placement{{Name: "pets", Generation: 3, Replicas: 2, Shards: []collection.Shard{
			{Documents: 1200, Replicas: []collection.Replica{{Node: "n1", State: "ready"}, {Node: `<b>n2</b>`, State: "behind"}}},
			{Documents: 1100, Replicas: []collection.Replica{{Node: "n1", State: "ready"}}},
		}}},
	}
}

// An admin of all indexes sees all tokens without their secrets, and the nodes and shards;
// others see their own token alone.
func TestPageTokensAndNodes(t *testing.T) {
	b := startBrowser(t)
	tokens, err := server.ParseTokens(strings.NewReader(`
ops   admin                a-secret-of-operators
pets  read:pets,write:p-*  a-secret-of-pets-readers rate=50 indexes=1000
`), "test")
	require.NoError(t, err)
	st := openStore(t, nil)
	startAt(t, st, words{}, nil).addZoo(t)
	h, err := server.New(spread{st.Catalog()}, words{}, &server.Options{Tokens: tokens})
	require.NoError(t, err)
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	enter := func(secret string) *tab {
		p := b.open(t, web.URL+"/ui#index=pets&view=manage")
		p.until("document.querySelector('#token-dialog').open")
		p.write("#token", secret)
		p.press("Enter")
		p.until("document.querySelector('#stats dl') && /Tokens are made in the file/.test(document.querySelector('#manage').innerText)")
		return p
	}
	rows := func(p *tab, caption string) (cells [][]string) {
		p.js(fmt.Sprintf("[...[...document.querySelectorAll('#manage table')].find(t => t.caption.textContent == %q).tBodies[0].rows].map(r => [...r.cells].map(c => c.innerText.trim()))", caption), &cells)
		return cells
	}

	p := enter("a-secret-of-operators")
	p.until("/Nodes and shards/.test(document.querySelector('#manage').innerText)")
	require.Equal(t, [][]string{
		{"ops (yours)", "admin", "", ""},
		{"pets", "none", "read: pets, write: p-*", "1,000 indexes, 50 a second"},
	}, rows(p, "Tokens"))
	require.Equal(t, [][]string{{"0", "1,200", "n1 <b>n2</b>: behind"}, {"1", "1,100", "n1"}}, rows(p, "Shards of pets"))
	require.Contains(t, p.text("#manage"), "1 of 2 nodes were heard of lately.")
	require.Contains(t, p.text("#manage"), "Silent: <b>n2</b>.")
	require.NotContains(t, p.text("body"), "secret-of")
	p.axe()
	p.size(360, 740)
	p.fits("tokens and nodes")
	p.sound(web.URL)

	p = enter("a-secret-of-pets-readers")
	require.Equal(t, [][]string{{"pets (yours)", "none", "read: pets, write: p-*", "1,000 indexes, 50 a second"}}, rows(p, "Tokens"))
	require.NotContains(t, p.text("#manage"), "Nodes and shards")
	var there bool
	p.js("!!document.querySelector('#snapshot, #new')", &there)
	require.False(t, there)
	p.sound(web.URL)
}

// Every view, the start and the dialogs can be used by everybody, in the dark and on small
// screens too, however hostile names, values, texts and ids are.
func TestPageForEverybody(t *testing.T) {
	b := startBrowser(t)
	s, origin, url := pageOf(t, words{}, nil)
	look := func(p *tab, what string) {
		t.Helper()
		for _, width := range []int{360, 1180} {
			p.size(width, 740)
			p.fits(fmt.Sprint(what, " ", width))
			// A dialog is beside the page, and scrolls by itself.
			var wide []string
			p.js("[...document.querySelectorAll('dialog[open], dialog[open] *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1 || e.getBoundingClientRect().left < 0).map(e => e.outerHTML)", &wide)
			require.Empty(t, wide, "%s %d", what, width)
			p.axe()
			var made int
			p.js("document.querySelectorAll('main script, main img, main b').length", &made)
			require.Zero(t, made, what)
		}
	}
	for _, scheme := range []string{"light", "dark"} {
		dark := func(p *tab) *tab {
			p.call("Emulation.setEmulatedMedia", object{"features": list{object{"name": "prefers-color-scheme", "value": scheme}}}, nil)
			p.until(ready + " && matchMedia('(prefers-color-scheme: " + scheme + ")').matches")
			return p
		}
		if scheme == "light" { // nothing is there yet
			for _, scheme := range []string{"light", "dark"} {
				p := b.open(t, url)
				p.call("Emulation.setEmulatedMedia", object{"features": list{object{"name": "prefers-color-scheme", "value": scheme}}}, nil)
				p.until(ready + " && /There are no indexes yet/.test(document.querySelector('#start').innerText)")
				look(p, "start "+scheme)
				p.sound(origin)
			}
			s.addHostile(t)
		}
		for _, view := range []string{"search", "add", "manage"} {
			p := dark(b.open(t, url+"#index=pets&text=dogs&view="+view))
			if view == "search" {
				p.until("document.querySelector('.hit') && document.querySelectorAll('#facets input').length > 3")
				p.click(".hit button[aria-expanded]")
				p.until("document.querySelector('.heat')")
				p.js("for (const e of document.querySelectorAll('details')) e.open = true", nil)
			}
			look(p, view+" "+scheme)
			if view == "manage" {
				p.until("document.querySelector('#drop')")
				p.click("#drop")
				p.until("document.querySelector('#drop-dialog').open")
				look(p, "the dialog that deletes "+scheme)
				p.click("#drop-form [value=cancel]")
				p.until("!document.querySelector('#drop-dialog').open")
			}
			p.click("#open-token")
			p.until("document.querySelector('#token-dialog').open")
			look(p, "the dialog of tokens "+scheme)
			p.sound(origin)
		}
	}
}
