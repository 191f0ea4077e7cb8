package hub_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/encode/hub"
	"github.com/plaid-ir/plaid/internal/testing/hubtest"
)

// picture is the expected content of a cache, with the hub that it is filled from.
type picture struct {
	t       *testing.T
	server  *hubtest.Hub
	h       *hub.Hub
	commits map[string]map[string][]byte // files of each commit
	heads   map[string]string            // commits of branches at the hub
	kept    map[string]string            // and as the cache knows them
	held    map[string]bool              // files that the cache has, as COMMIT/FILE
}

var (
	branches  = []string{"main", "v1", "refs/pr/4"}
	fileNames = []string{
		"config.json", "tokenizer.json", "model.safetensors", "1_Dense/model.safetensors", "1_Dense/config.json",
	}
)

// Whatever is fetched in whatever order, broken off, damaged or without network, the cache has whole
// files of the commits that it names, and a fetch that has success gives what the hub has.
func TestCacheModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		server := hubtest.New()
		defer server.Close()
		p := &picture{
			t: t, server: server, h: &hub.Hub{Endpoint: server.URL, Cache: t.TempDir(), Backoff: time.Microsecond, Attempts: 2},
			commits: map[string]map[string][]byte{}, heads: map[string]string{}, kept: map[string]string{},
			held: map[string]bool{},
		}
		p.h.NoLinks = rapid.Bool().Draw(rt, "no links")
		server.Plain = rapid.Bool().Draw(rt, "plain")
		p.push(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"push": p.push, "fetch": p.fetch, "break off": p.breakOff, "damage": p.damage, "leave": p.leave, "": p.check,
		})
	})
}

// push adds a commit to a branch.
func (p *picture) push(rt *rapid.T) {
	files := map[string][]byte{"config.json": []byte("always")}
	for _, name := range fileNames {
		if n := rapid.IntRange(0, 4).Draw(rt, name); n > 0 {
			files[name] = bytes.Repeat([]byte{byte('a' + n)}, n*1000)
		}
	}
	branch := rapid.SampledFrom(branches).Draw(rt, "branch")
	commit := p.server.Add(model, branch, files)
	p.commits[commit], p.heads[branch] = files, commit
}

// fetch wants some files of a revision, with or without network.
func (p *picture) fetch(rt *rapid.T) {
	revision := rapid.SampledFrom(append(branches, "")).Draw(rt, "revision")
	if rapid.Bool().Draw(rt, "commit") {
		revision = rapid.SampledFrom(p.known()).Draw(rt, "commit")
	}
	h := *p.h
	offline := rapid.IntRange(0, 3).Draw(rt, "network") == 0
	if h.Refresh = rapid.Bool().Draw(rt, "refresh"); offline {
		h.Offline = "the test"
	}
	name, branch := hub.Name{Repo: model, Revision: revision}, revision
	if branch == "" {
		branch = "main"
	}
	want := p.kept[branch]
	if p.commits[branch] != nil {
		want = branch
	} else if want == "" || h.Refresh {
		want = p.heads[branch]
		if offline {
			want = ""
		}
	}
	s, err := h.Open(p.t.Context(), name)
	if want == "" {
		require.Error(rt, err)
		return
	}
	require.NoError(rt, err)
	require.Equal(rt, want, s.Commit)
	files := p.commits[want]
	complete := true
	for _, file := range rapid.SliceOfNDistinct(rapid.SampledFrom(fileNames), 0, 3, rapid.ID).Draw(rt, "files") {
		has, err := s.Has(p.t.Context(), file)
		held := p.held[want+"/"+file]
		if !offline || held {
			require.NoError(rt, err)
			require.Equal(rt, files[file] != nil, has, file)
		}
		err = s.Get(p.t.Context(), file)
		switch {
		case held, !offline && files[file] != nil:
			require.NoError(rt, err)
			p.held[want+"/"+file] = true
		default:
			require.Error(rt, err)
			complete = false
		}
	}
	if complete {
		require.NoError(rt, s.RecordRevision())
		if p.commits[branch] == nil {
			p.kept[branch] = want
		}
	}
}

func (p *picture) known() []string {
	var all []string
	for commit := range p.commits {
		all = append(all, commit)
	}
	slices.Sort(all)
	return all
}

// some are a snapshot of a commit, and a file of it that the cache lacks; "": there is none.
func (p *picture) some(rt *rapid.T) (*hub.Snapshot, string, []byte) {
	commit := rapid.SampledFrom(p.known()).Draw(rt, "commit")
	s, err := p.h.Open(p.t.Context(), hub.Name{Repo: model, Revision: commit})
	require.NoError(rt, err)
	file := rapid.SampledFrom(fileNames).Draw(rt, "file")
	b := p.commits[commit][file]
	sizes, err := s.Files(p.t.Context(), file)
	if b == nil || err != nil || sizes[0].Cached {
		return nil, "", nil
	}
	return s, file, b
}

// breakOff cuts all bodies after some bytes; what came is left for the next attempt.
func (p *picture) breakOff(rt *rapid.T) {
	s, file, b := p.some(rt)
	if s == nil {
		return
	}
	n := rapid.IntRange(0, len(b)-1).Draw(rt, "bytes")
	p.answer(file, b, func(w http.ResponseWriter) {
		w.Header().Set("Content-Length", fmt.Sprint(len(b)))
		_, _ = w.Write(b[:n])
		panic(http.ErrAbortHandler)
	})
	require.ErrorIs(rt, s.Get(p.t.Context(), file), hub.ErrUnreachable)
	p.server.SetFault(nil)
}

// damage changes a byte of a body.
func (p *picture) damage(rt *rapid.T) {
	s, file, b := p.some(rt)
	if s == nil {
		return
	}
	wrong := bytes.Clone(b)
	wrong[rapid.IntRange(0, len(b)-1).Draw(rt, "byte")] ^= 1
	p.answer(file, b, func(w http.ResponseWriter) { _, _ = w.Write(wrong) })
	require.ErrorIs(rt, s.Get(p.t.Context(), file), hub.ErrDamaged)
	p.server.SetFault(nil)
}

// answer gives all requests for the content of a file to a function.
func (p *picture) answer(file string, b []byte, give func(http.ResponseWriter)) {
	p.server.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
		end := "/" + file
		if strings.HasSuffix(file, ".safetensors") {
			end = hubtest.SHA256(b)
		}
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, end) {
			return false
		}
		give(w)
		return true
	})
}

// leave puts what a process could have left that was killed in the place of a blob to be.
func (p *picture) leave(rt *rapid.T) {
	s, file, b := p.some(rt)
	if s == nil {
		return
	}
	hash := hubtest.SHA1(b)
	if strings.HasSuffix(file, ".safetensors") {
		hash = hubtest.SHA256(b)
	}
	path := filepath.Join(p.h.Cache, "models--org--model", "blobs", hash+".incomplete")
	require.NoError(rt, os.MkdirAll(filepath.Dir(path), 0o777))
	left := bytes.Repeat([]byte{b[0]}, rapid.IntRange(0, 2*len(b)).Draw(rt, "bytes"))
	require.NoError(rt, os.WriteFile(path, left, 0o666))
}

// check looks through the whole cache.
func (p *picture) check(rt *rapid.T) {
	place := filepath.Join(p.h.Cache, "models--org--model")
	for commit, files := range p.commits {
		for _, file := range fileNames {
			b, err := os.ReadFile(filepath.Join(place, "snapshots", commit, filepath.FromSlash(file)))
			if p.held[commit+"/"+file] {
				require.NoError(rt, err)
			}
			if err == nil {
				require.True(rt, bytes.Equal(files[file], b), "%s of %s", file, commit)
			}
			if _, err := os.Stat(filepath.Join(place, ".no_exist", commit, filepath.FromSlash(file))); err == nil {
				require.Nil(rt, files[file])
			}
		}
	}
	require.NoError(rt, filepath.WalkDir(p.h.Cache, func(path string, d fs.DirEntry, err error) error {
		require.NotEqual(rt, ".tmp", filepath.Ext(path))
		name := d.Name()
		if err != nil || d.IsDir() || filepath.Base(filepath.Dir(path)) != "blobs" || filepath.Ext(name) != "" {
			return err
		}
		b, err := os.ReadFile(path)
		if len(name) == 2*sha256.Size {
			require.Equal(rt, hubtest.SHA256(b), name)
		} else {
			require.Equal(rt, hubtest.SHA1(b), name)
		}
		return err
	}))
	for branch, commit := range p.kept {
		b, err := os.ReadFile(filepath.Join(place, "refs", filepath.FromSlash(branch)))
		require.NoError(rt, err)
		require.Equal(rt, commit, string(b))
	}
}
