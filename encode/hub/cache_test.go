package hub_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/hub"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/testing/hubtest"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
)

// Goroutines and processes that want the same at a time fetch it once.
// A process that waits for another one that fetches a file tells how far that is.
func TestProgressOfAnother(t *testing.T) {
	_, h, _ := start(t)
	s := open(t, h, model)
	require.NoError(t, s.Get(t.Context(), "config.json"))
	place := filepath.Join(h.Cache, "models--org--model")
	blob := filepath.Join(place, "blobs", hubtest.SHA256(weights))
	lock, err := os.Create(filepath.Join(h.Cache, ".locks", "models--org--model", filepath.Base(blob)+".lock"))
	require.NoError(t, err)
	defer lock.Close()
	require.NoError(t, files.LockLikeFilelock(lock))
	require.NoError(t, os.WriteFile(blob+".incomplete", weights[:1000], 0o600))
	told := make(chan hub.Progress, 100)
	h.Progress = func(p hub.Progress) { told <- p }
	done := make(chan error, 1)
	go func() { done <- s.Get(t.Context(), "model.safetensors") }()
	p := <-told
	require.Equal(t, int64(1000), p.Done)
	require.Equal(t, int64(len(weights)), p.Total)
	require.NoError(t, os.WriteFile(blob+".incomplete", weights[:2000], 0o600))
	for p.Done < 2000 {
		p = <-told
	}
	require.Equal(t, int64(2000), p.Done)
	require.NoError(t, lock.Close())
	require.NoError(t, <-done)
}

func TestAtATime(t *testing.T) {
	server, h, _ := start(t)
	server.SetFault(func(_ http.ResponseWriter, r *http.Request) bool {
		time.Sleep(10 * time.Millisecond)
		return false
	})
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			if i%2 == 0 {
				s, err := find(t.Context(), h, model)
				if err == nil {
					err = s.Get(t.Context(), all()...)
				}
				if err != nil {
					t.Error(err)
				}
				return
			}
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), testenv.ChildVariable+"=fetch", "HF_ENDPOINT="+server.URL, "HF_HUB_CACHE="+h.Cache)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	wg.Wait()
	requireFiles(t, open(t, h, model), all()...)
	gets := map[string]int{}
	for _, r := range server.Requests() {
		if r.Store || strings.Contains(r.Path, "/resolve/") {
			gets[r.Path]++
		}
	}
	for path, n := range gets {
		require.Equal(t, 1, n, path)
	}
	require.Len(t, gets, len(content())-1+2, "an empty file is not asked for, a large one of two hosts")
}

func fetchAsChild() error {
	s, err := find(context.Background(), hub.FromEnv(), model)
	if err == nil {
		err = s.Get(context.Background(), all()...)
	}
	return err
}

// A lock that another program has is waited for, and the file that it made is used.
func TestLock(t *testing.T) {
	server, h, _ := start(t)
	s := open(t, h, model)
	blob := filepath.Join(h.Cache, "models--org--model", "blobs", hubtest.SHA256(weights))
	path := filepath.Join(h.Cache, ".locks", "models--org--model", hubtest.SHA256(weights)+".lock")
	require.NoError(t, os.MkdirAll(filepath.Dir(blob), 0o777))
	release := lock(t, path)
	server.Requests()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Get(ctx, "model.safetensors"), context.DeadlineExceeded)
	done := make(chan error)
	go func() { done <- s.Get(context.Background(), "model.safetensors") }()
	time.Sleep(100 * time.Millisecond)
	require.NoError(t, os.WriteFile(blob, weights, 0o666))
	release()
	require.NoError(t, <-done)
	requireFiles(t, s, "model.safetensors")
	require.Empty(t, server.Requests())
}

// Where there are no symbolic links the snapshot has the files.
func TestNoLinks(t *testing.T) {
	server, h, _ := start(t)
	h.NoLinks = true
	s := open(t, h, model)
	require.NoError(t, s.Get(t.Context(), all()...))
	requireFiles(t, s, all()...)
	info, err := os.Lstat(filepath.Join(s.Dir(), "model.safetensors"))
	require.NoError(t, err)
	require.True(t, info.Mode().IsRegular())
	server.Requests()
	// A blob that is there already is copied.
	linked := *h
	linked.NoLinks, linked.Cache = false, t.TempDir()
	require.NoError(t, open(t, &linked, model).Get(t.Context(), "model.safetensors"))
	h.Cache = linked.Cache
	server.Add(model, "other", map[string][]byte{"model.safetensors": weights})
	other := open(t, h, model+"@other")
	require.NoError(t, other.Get(t.Context(), "model.safetensors"))
	requireFiles(t, other, "model.safetensors")
	require.FileExists(t, filepath.Join(h.Cache, "models--org--model", "blobs", hubtest.SHA256(weights)))
}

// A cache that cannot be written to is read; a file that it lacks is an error that names the cache.
func TestReadOnlyCache(t *testing.T) {
	if os.Geteuid() == 0 || runtime.GOOS == "windows" {
		t.Skip("root may write everywhere; Windows has no such folders")
	}
	_, h, _ := start(t)
	s := open(t, h, model)
	require.NoError(t, s.Get(t.Context(), "config.json"))
	require.NoError(t, s.RecordRevision())
	require.NoError(t, filepath.WalkDir(h.Cache, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			t.Cleanup(func() { _ = os.Chmod(path, 0o777) })
			return os.Chmod(path, 0o555)
		}
		return err
	}))
	s = open(t, h, model)
	require.NoError(t, s.Get(t.Context(), "config.json"))
	has, err := s.Has(t.Context(), "modules.json")
	require.NoError(t, err)
	require.False(t, has)
	err = s.Get(t.Context(), "model.safetensors")
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorContains(t, err, "models are fetched into "+h.Cache+"; HF_HUB_CACHE names another place")
}

// A full disk is said to be one, and what came is kept.
func TestDiskFull(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full")
	}
	_, h, _ := start(t)
	blob := filepath.Join(h.Cache, "models--org--model", "blobs", hubtest.SHA256(weights))
	require.NoError(t, os.MkdirAll(filepath.Dir(blob), 0o777))
	require.NoError(t, os.Symlink("/dev/full", blob+".incomplete"))
	err := open(t, h, model).Get(t.Context(), "model.safetensors")
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NotErrorIs(t, err, hub.ErrUnreachable)
	require.ErrorContains(t, err, "the same command continues")
	require.ErrorContains(t, err, fmt.Sprintf("0 of %d bytes are there", len(weights)))
}

// A hub whose list has no hashes says them for each file.
func TestPlainList(t *testing.T) {
	server, h, _ := start(t)
	server.Plain = true
	s := open(t, h, model)
	sizes, err := s.Files(t.Context(), "model.safetensors", "config.json")
	require.NoError(t, err)
	require.Equal(t, int64(len(weights)), sizes[0].Bytes)
	require.False(t, sizes[0].Cached)
	require.NoError(t, s.Get(t.Context(), all()...))
	requireFiles(t, s, all()...)
	sizes, err = s.Files(t.Context(), "model.safetensors")
	require.NoError(t, err)
	require.True(t, sizes[0].Cached)
}

// A list that huggingface_hub has left says what a model does not have.
func TestTreeOfOthers(t *testing.T) {
	server, h, commit := start(t)
	s := open(t, h, model)
	require.NoError(t, s.Get(t.Context(), "config.json"))
	require.NoError(t, s.RecordRevision())
	b, err := json.Marshal(map[string]any{"format_version": 1, "files": map[string]any{
		"config.json": map[string]any{"size": 22, "blob_id": hubtest.SHA1(content()["config.json"])},
		"model.safetensors": map[string]any{
			"size": 130, "blob_id": strings.Repeat("a", 40), "lfs_sha256": hubtest.SHA256(weights), "lfs_size": len(weights),
		},
	}})
	require.NoError(t, err)
	path := filepath.Join(h.Cache, "models--org--model", "trees", commit+".json")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
	require.NoError(t, os.WriteFile(path, b, 0o666))
	server.Requests()
	s = open(t, h, model)
	has, err := s.Has(t.Context(), "modules.json")
	require.NoError(t, err)
	require.False(t, has)
	require.NoError(t, s.Get(t.Context(), "model.safetensors"))
	requireFiles(t, s, "model.safetensors")
	for _, r := range server.Requests() {
		require.NotContains(t, r.Path, "/api/")
	}
}

// lock takes a lock as other programs do, and says how it is given back.
func lock(t *testing.T, path string) (release func()) {
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	require.NoError(t, err)
	require.NoError(t, files.LockLikeFilelock(f))
	return func() { require.NoError(t, f.Close()) }
}

// A blob that is there under its name, and is damaged, is fetched again before a snapshot has it.
func TestDamagedBlob(t *testing.T) {
	_, h, _ := start(t)
	blob := filepath.Join(h.Cache, "models--org--model", "blobs", hubtest.SHA256(weights))
	require.NoError(t, os.MkdirAll(filepath.Dir(blob), 0o777))
	for _, b := range [][]byte{make([]byte, len(weights)), weights[:100]} {
		require.NoError(t, os.WriteFile(blob, b, 0o666))
		s := open(t, h, model)
		require.NoError(t, s.Get(t.Context(), "model.safetensors"))
		requireFiles(t, s, "model.safetensors")
		require.NoError(t, os.Remove(filepath.Join(s.Dir(), "model.safetensors")))
	}
}

// An answer that points to another thing than a page is not understood.
func TestPointsNowhere(t *testing.T) {
	server, h, _ := start(t)
	for _, location := range []string{"file:///etc/passwd", "ftp://example.org/x"} {
		n := 0
		server.SetFault(func(w http.ResponseWriter, _ *http.Request) bool {
			n++
			w.Header().Set("Location", location)
			w.WriteHeader(http.StatusFound)
			return true
		})
		_, err := find(t.Context(), h, model)
		require.ErrorIs(t, err, hub.ErrAnswer, location)
		require.Equal(t, 1, n, location)
	}
}
