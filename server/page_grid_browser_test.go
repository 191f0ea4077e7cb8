//go:build unix

package server_test

import (
	"bytes"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"image"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/server"
)

// A page of pictures is a thumbnail beside its hit, and a heat map of its cells.
func TestPageHeatMapOfPicture(t *testing.T) {
	b := startBrowser(t)
	dir := t.TempDir()
	var picture bytes.Buffer
	require.NoError(t, png.Encode(&picture, image.NewGray(image.Rect(0, 0, 60, 40))))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "pages"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pages", "zoo.png"), picture.Bytes(), 0o600))
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	s, origin, url := pageOf(t, words{}, &server.Options{Images: root})
	s.ok(t, 200, "POST", "/indices", object{"name": "pages"}, nil)
	s.ok(t, 202, "POST", "/indices/pages/update", object{
		"documents": list{object{"embeddings": matrix("first cats sleep dogs birds fish owls")}, object{"embeddings": matrix("nothing here")}},
		"metadata":  list{object{"_id": "zoo", "image": "zoo.png", "grid": list{2, 3, 1}}, object{"_id": "bare", "title": "no picture"}},
	}, nil)
	p := b.open(t, url)
	p.choose("pages")
	p.ask("owls dogs")
	require.Equal(t, "zoo", p.ids()[0])
	p.until("document.querySelector('.hit img')?.naturalWidth == 60")
	p.click(".hit button[aria-expanded]")
	p.until("document.querySelector('.explanation canvas')")
	var size []int
	p.js("(() => { const c = document.querySelector('.explanation canvas'); return [c.width, c.height]; })()", &size)
	require.Equal(t, []int{3, 2}, size)
	alpha := func() (cells []int) { // from a copy: what is read often is drawn in another way
		p.js("(() => { const c = document.querySelector('.explanation canvas'); const o = new OffscreenCanvas(c.width, c.height).getContext('2d', {willReadFrequently: true}); o.drawImage(c, 0, 0); return [...o.getImageData(0, 0, c.width, c.height).data].filter((_, i) => i % 4 == 3); })()", &cells)
		require.Len(t, cells, 6)
		return cells
	}
	// The first token is none of a cell; then cats, sleep, dogs, and below birds, fish, owls.
	all := alpha()
	require.Greater(t, all[2], all[0])
	require.Greater(t, all[5], all[0])
	p.click(".tokens li:nth-child(2) button") // owls
	one := alpha()
	for c := range 5 {
		require.Greater(t, one[5], one[c])
	}
	require.Contains(t, p.text(".explanation .picture"), "row 2 of 2, column 3 of 3")
	p.sound(strings.TrimSuffix(origin, "below/")) // that of a picture is the browser's own, at the same address
}

// The pictures of the service's page are made anew where PLAID_UPDATE_PICTURES is set.
func TestPagePictures(t *testing.T) {
	if os.Getenv(updatePictures) == "" {
		t.Skip(updatePictures, "is not set")
	}
	b := startBrowser(t)
	sample := filepath.Join("..", "docs", "examples", "quickstart")
	e, err := encode.Open(filepath.Join(sample, "colbert-nano"), nil)
	require.NoError(t, err)
	defer e.Close()
	s, origin, url := pageOf(t, e, nil)
	to := func(name string) string { return filepath.Join("..", "docs", name) }

	p := b.open(t, url)
	p.until(ready)
	p.picture(to("ui-start.png"))
	p.click("#try-sample")
	p.until("document.querySelectorAll('#facets fieldset').length == 3")
	p.click(`[data-facet='["continent","Africa"]']`)
	p.write("#query", "which animals talk to each other?")
	p.until("/results/.test(document.querySelector('#status').innerText) && document.querySelector('.hit mark') && document.querySelector('#chosen .pill')")
	p.js("document.activeElement.blur()", nil)
	p.picture(to("ui-search.png"))
	p.sound(origin)

	s.ok(t, 200, "POST", "/indices", object{"name": "scifact"}, nil)
	text, err := os.ReadFile(filepath.Join(sample, "scifact-sample", "corpus.jsonl"))
	require.NoError(t, err)
	var texts, metadata list
	for line := range strings.Lines(string(text)) {
		var m object
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		if len(texts) == 200 {
			break
		}
		texts = append(texts, m["title"].(string)+" "+m["text"].(string))
		metadata = append(metadata, m)
	}
	s.ok(t, 202, "POST", "/indices/scifact/update_with_encoding", object{"documents": texts, "metadata": metadata}, nil)
	for _, scheme := range []string{"light", "dark"} {
		p := b.open(t, url+"#index=scifact&text=Macropinocytosis+contributes+to+the+supply+of+amino+acids")
		p.call("Emulation.setEmulatedMedia", object{"features": list{object{"name": "prefers-color-scheme", "value": scheme}}}, nil)
		p.until(ready + " && document.querySelector('.hit')")
		p.click(".hit button[aria-expanded][aria-label]")
		p.until("document.querySelector('.heat')")
		p.click(".tokens li:nth-child(14) button") // "amino"
		p.until("document.querySelector('.heat .best')")
		p.picture(to("ui-" + scheme + ".png"))
		p.sound(origin)
	}
	p = b.open(t, url+"#index=sample&text=which+animals+talk+to+each+other%3F")
	p.size(360, 740)
	p.until(ready + " && document.querySelector('.hit mark') && document.querySelector('#facets fieldset')")
	p.picture(to("ui-small.png"))
	p = b.open(t, url+"#index=sample&view=manage")
	p.until(ready + " && document.querySelector('#verify') && /None is needed/.test(document.querySelector('#manage').innerText)")
	p.picture(to("ui-manage.png"))
	p.sound(origin)
}

// axeVersion is that of axe-core (https://github.com/dequelabs/axe-core, MPL-2.0), which npm
// fetches into the user's cache: no copy of it is kept here. axeSum is the integrity of its
// package.
const (
	axeVersion = "4.14.1"
	axeSum     = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
)

var axeSource = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "plaid-test", "axe-core-"+axeVersion)
	pack := filepath.Join(dir, "axe-core-"+axeVersion+".tgz")
	if _, err := os.Stat(pack); err != nil {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return "", err
		}
		cmd := exec.Command("npm", "pack", "--silent", "--pack-destination", dir, "axe-core@"+axeVersion)
		if err := cmd.Run(); err != nil {
			return "", err
		}
	}
	text, err := os.ReadFile(pack)
	if err != nil {
		return "", err
	}
	if sum := sha512.Sum512(text); base64.StdEncoding.EncodeToString(sum[:]) != axeSum {
		return "", os.ErrInvalid
	}
	script, err := exec.Command("tar", "-xzOf", pack, "package/axe.min.js").Output()
	return string(script), err
})

// axe lets axe-core look for what people with screen readers, with the keyboard alone or
// with weak sight cannot use. It is passed over where npm cannot fetch it, unless
// PLAID_REQUIRE_BROWSER says that it must be there.
func (p *tab) axe() {
	p.t.Helper()
	script, err := axeSource()
	if err != nil {
		require.Empty(p.t, os.Getenv("PLAID_REQUIRE_BROWSER"), "axe-core: %v", err)
		p.t.Logf("axe-core is not there: %v", err)
		return
	}
	var there bool
	if p.js("!!window.axe", &there); !there {
		p.js(script, nil)
	}
	var found []string
	p.js(`axe.run(document, { resultTypes: ["violations"] }).then((r) => r.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + v.help + ": " + n.html.slice(0, 300) + " " + (n.any[0] || n.all[0] || n.none[0] || {}).message)))`, &found)
	require.Empty(p.t, found)
}
