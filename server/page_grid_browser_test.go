//go:build unix

package server_test

import (
	"bytes"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/server"
)

// A page of pictures is a thumbnail beside its hit, and a heat map of its cells.
func TestPageHeatMapOfPicture(t *testing.T) {
	if !effort.Long() {
		t.Skip("starts a browser")
	}
	b := startBrowser(t)
	dir := t.TempDir()
	var picture bytes.Buffer
	require.NoError(t, png.Encode(&picture, image.NewGray(image.Rect(0, 0, 60, 40))))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "zoo.png"), picture.Bytes(), 0o600))
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
