// Package ui has the web page of the service: a few static files, embedded in the program, that only use
// the routes of the service. They need no build step.
package ui

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"time"
)

//go:embed page.html page.css icon.svg sample.jsonl *.js
var content embed.FS

// page is the file that /ui answers.
const page = "page.html"

// policy is the Content-Security-Policy: the page may use files and routes of its own origin, and pictures
// that it has fetched from there. It has no script or style in its HTML, turns no text into HTML, and may
// not be in a frame.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

var mediaTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",

	".jsonl": "text/plain; charset=utf-8",
}

// File is a file of the page, as an http.Handler.
type File struct {
	// Path below the service: "/ui", or "/ui/" and a name.
	Path  string
	media string
	tag   string // ETag
	body  []byte
}

// Files returns all files, the page first.
func Files() ([]File, error) {
	names, err := fs.Glob(content, "*")
	if err != nil {
		return nil, err
	}
	files := make([]File, 0, len(names))
	for _, name := range names {
		body, err := content.ReadFile(name)
		if err != nil {
			return nil, err
		}
		media := mediaTypes[path.Ext(name)]
		if media == "" {
			return nil, fmt.Errorf("server/ui: %s has no media type", name)
		}
		sum := sha256.Sum256(body)
		f := File{
			Path:  "/ui/" + name,
			media: media,
			tag:   `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`,
			body:  body,
		}
		if name == page {
			f.Path = "/ui"
			files = slices.Insert(files, 0, f)
			continue
		}
		files = append(files, f)
	}
	return files, nil
}

// ServeHTTP implements http.Handler. Browsers cache the file, but ask each time whether it has changed, so
// that the page and its scripts are of one version.
func (f *File) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.media)
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", f.tag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.body))
}
