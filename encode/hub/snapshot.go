package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Snapshot is a model at one commit. Its folder has the files of it that were fetched.
type Snapshot struct {
	Name   Name // as it was asked for
	Commit string

	hub *Hub

	mu    sync.Mutex
	list  *listing // nil: not asked for yet
	lost  error    // why there is no list
	guess []string // files that were taken not to exist, since neither cache nor hub told
}

// Open finds the commit of a revision: in the cache, or else by asking the hub. A branch that the
// cache knows is the commit that it was when it was fetched, unless Refresh is set.
// Errors are [*Error].
func (h *Hub) Open(ctx context.Context, n Name) (*Snapshot, error) {
	commit := h.cached(n)
	if commit != "" && (!h.Refresh || commit == n.Revision) {
		return &Snapshot{Name: n, Commit: commit, hub: h}, nil
	}
	l, err := h.list(ctx, n)
	if err != nil {
		err = h.fault(n, "", err)
		if e := (*Error)(nil); errors.As(err, &e) {
			e.commit = commit
		}
		return nil, err
	}
	return &Snapshot{Name: n, Commit: l.commit, hub: h, list: l}, nil
}

// cached is the commit of a revision that the cache knows, or "".
func (h *Hub) cached(n Name) string {
	if commitPattern.MatchString(n.revision()) {
		return n.revision()
	}
	b, _ := os.ReadFile(filepath.Join(h.Cache, n.folder(), "refs", filepath.FromSlash(n.revision())))
	if commit := strings.TrimSpace(string(b)); commitPattern.MatchString(commit) {
		return commit
	}
	return ""
}

// Pinned is the name of the model at this commit.
func (s *Snapshot) Pinned() Name { return s.Name.At(s.Commit) }

// Dir is the folder of the files.
func (s *Snapshot) Dir() string { return filepath.Join(s.place(), "snapshots", s.Commit) }

// place is the folder of the model in the cache.
func (s *Snapshot) place() string { return filepath.Join(s.hub.Cache, s.Name.folder()) }

// path is where a file is, if it is there.
func (s *Snapshot) path(file string) string { return filepath.Join(s.Dir(), filepath.FromSlash(file)) }

func (s *Snapshot) absent(file string) string {
	return filepath.Join(s.place(), ".no_exist", s.Commit, filepath.FromSlash(file))
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// Has reports whether the model has a file. The cache may know, or the hub is asked. Where it
// cannot be asked, what the cache lacks counts as not there; [Snapshot.Guessed] tells.
// Errors are [*Error].
func (s *Snapshot) Has(ctx context.Context, file string) (bool, error) {
	if isFile(s.path(file)) {
		return true, nil
	}
	if isFile(s.absent(file)) {
		return false, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list == nil && s.lost == nil {
		s.list = s.tree()
	}
	if err := s.ask(ctx); err != nil {
		if _, serr := os.Stat(s.Dir()); serr != nil || ctx.Err() != nil {
			return false, err
		}
		if !slices.Contains(s.guess, file) {
			s.guess = append(s.guess, file)
		}
		return false, nil
	}
	if _, ok := s.list.files[file]; ok {
		return true, nil
	}
	s.remember(file)
	return false, nil
}

// ask gets the list of files, once. It is called under the lock.
func (s *Snapshot) ask(ctx context.Context) error {
	if s.list == nil && s.lost == nil {
		h := s.hub
		if _, err := os.Stat(s.Dir()); err == nil { // the files in the cache may do
			once := *h
			once.Attempts = 1
			h = &once
		}
		s.list, s.lost = h.list(ctx, s.Pinned())
		if err := ctx.Err(); err != nil { // no answer of the hub
			s.lost = nil
			return err
		}
		if s.lost == nil && s.list.commit != s.Commit {
			s.list, s.lost = nil, fmt.Errorf("%w: asked for commit %s it gives %s", ErrAnswer, s.Commit, s.list.commit)
		}
	}
	return s.hub.fault(s.Name, "", s.lost)
}

// tree is the list of files that huggingface_hub keeps of a snapshot, or nil.
func (s *Snapshot) tree() *listing {
	b, err := os.ReadFile(filepath.Join(s.place(), "trees", s.Commit+".json"))
	if err != nil {
		return nil
	}
	var v struct {
		Format int `json:"format_version"`
		Files  map[string]struct {
			Size   int64
			BlobID string `json:"blob_id"`
			SHA256 string `json:"lfs_sha256"`
			Large  int64  `json:"lfs_size"`
		}
	}
	if json.Unmarshal(b, &v) != nil || v.Format != 1 || v.Files == nil {
		return nil
	}
	l := &listing{s.Commit, map[string]File{}}
	for path, f := range v.Files {
		file := File{Path: path, Bytes: f.Size, hash: f.BlobID}
		if f.SHA256 != "" {
			file.Bytes, file.hash = f.Large, f.SHA256
		}
		if !known(file.hash) {
			file.hash = ""
		}
		if filepath.IsLocal(filepath.FromSlash(path)) {
			l.files[path] = file
		}
	}
	return l
}

// remember notes in the cache that the model has no such file, so that it is not asked for again.
// Failing to do so is harmless.
func (s *Snapshot) remember(file string) {
	path := s.absent(file)
	if s.homeless() == nil && os.MkdirAll(filepath.Dir(path), 0o777) == nil {
		if f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o666); err == nil {
			_ = f.Close()
		}
	}
}

// Guessed are the files that the model was taken not to have, because the cache does not know and
// the hub could not be asked, and why it could not.
func (s *Snapshot) Guessed() ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guess, s.hub.fault(s.Name, "", s.lost)
}

// Files says of some files how large they are, and whether they are in the cache. Errors are
// [*Error].
func (s *Snapshot) Files(ctx context.Context, names ...string) ([]File, error) {
	var all []File
	for _, name := range names {
		f, err := s.file(ctx, name)
		if err != nil {
			return nil, s.hub.fault(s.Name, name, err)
		}
		all = append(all, f)
	}
	return all, nil
}

// file describes a file; a file in the snapshot by its size alone.
func (s *Snapshot) file(ctx context.Context, name string) (File, error) {
	if info, err := os.Stat(s.path(name)); err == nil && info.Mode().IsRegular() {
		return File{Path: name, Bytes: info.Size(), Cached: true}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list == nil && s.lost == nil {
		s.list = s.tree()
	}
	if err := s.ask(ctx); err != nil {
		return File{}, err
	}
	f, ok := s.list.files[name]
	if !ok {
		return File{}, ErrFile
	}
	f, err := s.measure(ctx, f)
	if err != nil {
		return File{}, err
	}
	s.list.files[name] = f
	f.Cached = isFile(s.blob(f))
	return f, nil
}

// maxSettings is the size above which a file of settings, or a tokenizer, is not fetched.
const maxSettings = 256 << 20

// Get sees to it that some files are in the folder: it fetches those that are missing. Another
// process that fetches one of them is waited for. Errors are [*Error].
func (s *Snapshot) Get(ctx context.Context, names ...string) error {
	var missing []File
	p := progress{model: s.Pinned().String(), listener: s.hub.Progress}
	for _, name := range names {
		f, err := s.file(ctx, name)
		switch {
		case err == nil && strings.HasSuffix(name, ".json") && f.Bytes > maxSettings:
			err = fmt.Errorf("%w: %d bytes, want %d at most", ErrTooLarge, f.Bytes, maxSettings)
		case err == nil && !isFile(s.path(name)):
			missing = append(missing, f)
			p.total += f.Bytes
		}
		if err != nil {
			return s.hub.fault(s.Name, name, err)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if err := s.prepare(); err != nil {
		return s.hub.fault(s.Name, "", err)
	}
	for _, f := range missing {
		if err := s.fetch(ctx, f, &p); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return s.hub.fault(s.Name, f.Path, reached(err))
		}
	}
	return nil
}

// tag says to programs that make backups that the cache can be left out, as huggingface_hub does.
const tag = "Signature: 8a477f597d28d172789f06886806bc55\n# The cache of a model hub.\n"

// prepare makes the folders of the model.
func (s *Snapshot) prepare() error {
	if err := s.homeless(); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Join(s.place(), "blobs"), s.Dir(), s.locks()} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return local(err)
		}
	}
	if path := filepath.Join(s.hub.Cache, "CACHEDIR.TAG"); !isFile(path) {
		_ = os.WriteFile(path, []byte(tag), 0o666) // for backups only
	}
	return nil
}

// Keep notes in the cache that the revision is this commit, once all files that are wanted are there.
// A cache that cannot be written to stays as it is.
func (s *Snapshot) Keep() error {
	if s.Name.revision() == s.Commit || s.hub.cached(s.Name) == s.Commit {
		return nil
	}
	err := s.keep()
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		s.hub.log().Info("hub: the cache cannot be written to", "error", err)
		return nil
	}
	return s.hub.fault(s.Name, "", err)
}

func (s *Snapshot) keep() error {
	path := filepath.Join(s.place(), "refs", filepath.FromSlash(s.Name.revision()))
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return local(err)
	}
	return local(replace(path, func(temporary string) error {
		return os.WriteFile(temporary, []byte(s.Commit), 0o666)
	}))
}

// errLocal marks errors of the cache's own folder.
var errLocal = errors.New("cache")

// homeless is the error of a cache in a home folder that is not known.
func (s *Snapshot) homeless() error {
	if strings.HasPrefix(s.hub.Cache, "~") {
		return local(errNoHome)
	}
	return nil
}

// errNoHome: the cache would be in the home folder.
var errNoHome = errors.New("there is no home folder for models: HF_HOME names another one")

// local marks an error of the cache, which asking again does not help.
func local(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errLocal, err)
}

// progress adds up the bytes that a call fetches.
type progress struct {
	model       string
	done, total int64
	listener    func(Progress)
}

// report reports that n bytes of the current file are there.
func (p *progress) report(f File, n int64) {
	if p.listener != nil {
		p.listener(Progress{Model: p.model, File: f.Path, Done: p.done + n, Total: p.total})
	}
}

// notThere reports whether an error says that a file does not exist.
func notThere(err error) bool { return errors.Is(err, fs.ErrNotExist) }
