//go:build unix

package server_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode"
)

// The pictures of docs/service.md are made anew where PLAID_UPDATE_PICTURES is set.
func TestPagePictures(t *testing.T) {
	if os.Getenv("PLAID_UPDATE_PICTURES") == "" {
		t.Skip("PLAID_UPDATE_PICTURES is not set")
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
