// Package hubtest has a model hub for tests: it serves models as hubs do, with large files on
// another host, and can be made to fail.
package hubtest

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Hub is a running hub.
type Hub struct {
	// URL is the address of the hub, and Store that of the host with its large files.
	URL, Store string
	// Plain means that lists of files have no sizes and hashes, as on some mirrors.
	Plain bool

	hub, store *httptest.Server

	mu       sync.Mutex
	fault    func(w http.ResponseWriter, r *http.Request) bool
	models   map[string]*model
	blobs    map[string][]byte // large files, by SHA-256
	requests []Request
}

// Request is a request that the hub received.
type Request struct {
	Method, Path, Range, Token string
	Store                      bool // of the other host
}

type model struct {
	token    string                       // required to read it. "" means none
	branches map[string]string            // commits by branches
	commits  map[string]map[string][]byte // files by commits and paths
}

// New starts a hub, which Close ends.
func New() *Hub {
	h := &Hub{models: map[string]*model{}, blobs: map[string][]byte{}}
	h.hub, h.store = httptest.NewServer(h.handler(false)), httptest.NewServer(h.handler(true))
	h.URL, h.Store = h.hub.URL, h.store.URL
	return h
}

// SetFault sets a function that may answer a request instead of the hub, and reports whether it has.
// A nil function removes it.
func (h *Hub) SetFault(fault func(w http.ResponseWriter, r *http.Request) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault = fault
}

// Close ends the hub.
func (h *Hub) Close() {
	h.hub.Close()
	h.store.Close()
}

// Add adds a commit to a branch of a model, creates the model if it does not exist, and returns the
// hash of the commit.
func (h *Hub) Add(name, branch string, files map[string][]byte) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.models[name]
	if m == nil {
		m = &model{branches: map[string]string{}, commits: map[string]map[string][]byte{}}
		h.models[name] = m
	}
	sum := sha1.New()
	for _, path := range sortedPaths(files) {
		fmt.Fprintf(sum, "%s %x\n", path, sha1.Sum(files[path]))
		if isLarge(path) {
			h.blobs[SHA256(files[path])] = files[path]
		}
	}
	commit := hex.EncodeToString(sum.Sum(nil))
	m.branches[branch], m.commits[commit] = commit, files
	return commit
}

// AddFolder is Add for the files of a folder.
func (h *Hub) AddFolder(name, branch, dir string) (string, error) {
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		files[filepath.ToSlash(rel)], err = os.ReadFile(path)
		return err
	})
	return h.Add(name, branch, files), err
}

// Gate refuses a model to requests without the token.
func (h *Hub) Gate(name, token string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.models[name].token = token
}

// Requests returns the requests since the last call of Requests.
func (h *Hub) Requests() []Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	requests := h.requests
	h.requests = nil
	return requests
}

// isLarge reports whether a file is served by the other host.
func isLarge(path string) bool {
	return slices.Contains([]string{".safetensors", ".bin", ".onnx"}, filepath.Ext(path))
}

// SHA256 returns the hash of a large file, as hubs write it.
func SHA256(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

// SHA1 returns the hash of a small file, as git and hubs write it.
func SHA1(b []byte) string {
	return fmt.Sprintf("%x", sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(b)), b...)))
}

// sortedPaths returns the paths of files, in order.
func sortedPaths(files map[string][]byte) []string {
	return slices.Sorted(maps.Keys(files))
}

// handler returns the handler of the hub, or of the other host if store is set.
func (h *Hub) handler(store bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		h.requests = append(h.requests, Request{r.Method, r.URL.Path, r.Header.Get("Range"), token, store})
		fault := h.fault
		h.mu.Unlock()
		if fault != nil && fault(w, r) {
			return
		}
		if store {
			h.serveBlob(w, r)
			return
		}
		parts := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
		for i, p := range parts {
			parts[i], _ = url.PathUnescape(p)
		}
		switch {
		case len(parts) == 6 && parts[0] == "api" && parts[4] == "revision":
			h.serveModel(w, r, parts[2]+"/"+parts[3], parts[5], h.serveInfo)
		case len(parts) >= 6 && parts[0] == "api" && parts[4] == "tree":
			h.serveModel(w, r, parts[2]+"/"+parts[3], parts[5], h.serveTree)
		case len(parts) >= 5 && parts[2] == "resolve":
			answer := func(w http.ResponseWriter, r *http.Request, commit string, files map[string][]byte) {
				h.serveFile(w, r, strings.Join(parts[4:], "/"), commit, files)
			}
			h.serveModel(w, r, parts[0]+"/"+parts[1], parts[3], answer)
		default:
			Refuse(w, http.StatusNotFound, "", "")
		}
	}
}

// Refuse answers with an error, as hubs do.
func Refuse(w http.ResponseWriter, status int, code, message string) {
	if code != "" {
		w.Header().Set("X-Error-Code", code)
	}
	w.Header().Set("X-Error-Message", message)
	w.WriteHeader(status)
}

// serveModel finds the model and the commit of a request, checks its token, and calls answer.
func (h *Hub) serveModel(w http.ResponseWriter, r *http.Request, name, revision string,
	answer func(http.ResponseWriter, *http.Request, string, map[string][]byte)) {
	h.mu.Lock()
	m := h.models[name]
	h.mu.Unlock()
	token := r.Header.Get("Authorization")
	switch {
	case m == nil && token == "":
		Refuse(w, http.StatusUnauthorized, "", "Invalid username or password.")
	case m == nil:
		Refuse(w, http.StatusNotFound, "RepoNotFound", "Repository not found")
	case m.token != "" && token == "":
		Refuse(w, http.StatusUnauthorized, "GatedRepo", "Access to model "+name+" is restricted.")
	case m.token != "" && token != "Bearer "+m.token:
		Refuse(w, http.StatusForbidden, "GatedRepo", "You are not in the authorized list of model "+name+".")
	default:
		commit, ok := m.branches[revision]
		if !ok {
			commit = revision
		}
		files := m.commits[commit]
		if files == nil {
			Refuse(w, http.StatusNotFound, "RevisionNotFound", "Invalid rev id: "+revision)
			return
		}
		answer(w, r, commit, files)
	}
}

// entry is a file in a list.
type entry struct {
	Type      string         `json:"type,omitempty"`
	Path      string         `json:"path,omitempty"`
	RFilename string         `json:"rfilename,omitempty"`
	Size      *int           `json:"size,omitempty"`
	OID       string         `json:"oid,omitempty"`
	BlobID    string         `json:"blobId,omitempty"`
	LFS       map[string]any `json:"lfs,omitempty"`
}

// serveInfo answers with the description of a commit.
func (h *Hub) serveInfo(w http.ResponseWriter, r *http.Request, commit string, files map[string][]byte) {
	var entries []entry
	for _, path := range sortedPaths(files) {
		e := entry{RFilename: path}
		if b := files[path]; !h.Plain && r.URL.Query().Has("blobs") {
			n := len(b)
			e.Size, e.BlobID = &n, SHA1(b)
			if isLarge(path) {
				e.LFS = map[string]any{"sha256": SHA256(b), "size": n, "pointerSize": 130}
			}
		}
		entries = append(entries, e)
	}
	writeJSON(w, map[string]any{"id": "x/y", "sha": commit, "siblings": entries})
}

// serveTree answers with the files of a commit.
func (h *Hub) serveTree(w http.ResponseWriter, _ *http.Request, _ string, files map[string][]byte) {
	var entries []entry
	for _, path := range sortedPaths(files) {
		n := len(files[path])
		e := entry{Type: "file", Path: path, Size: &n, OID: SHA1(files[path])}
		if isLarge(path) {
			e.LFS = map[string]any{"oid": SHA256(files[path]), "size": n, "pointerSize": 130}
		}
		entries = append(entries, e)
	}
	writeJSON(w, entries)
}

// writeJSON answers with a value.
func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// serveFile answers with a small file, or redirects to a large one.
func (h *Hub) serveFile(w http.ResponseWriter, r *http.Request, path, commit string, files map[string][]byte) {
	w.Header().Set("X-Repo-Commit", commit)
	b, ok := files[path]
	switch {
	case !ok:
		Refuse(w, http.StatusNotFound, "EntryNotFound", "Entry not found")
	case isLarge(path):
		w.Header().Set("X-Linked-Etag", `"`+SHA256(b)+`"`)
		w.Header().Set("X-Linked-Size", fmt.Sprint(len(b)))
		w.Header().Set("Location", h.Store+"/"+SHA256(b)+"?signature=x")
		w.WriteHeader(http.StatusFound)
	default:
		w.Header().Set("Etag", `"`+SHA1(b)+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
	}
}

// serveBlob answers with a large file, by its hash.
func (h *Hub) serveBlob(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	b, ok := h.blobs[strings.TrimPrefix(r.URL.Path, "/")]
	h.mu.Unlock()
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Etag", `"of-the-store"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
}
