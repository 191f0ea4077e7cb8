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

// Snapshot is a model at one commit. Its folder has the files that were fetched.
type Snapshot struct {
	Name   Name // as requested
	Commit string

	hub *Hub

	mu         sync.Mutex
	listing    *listing // nil means that no request for it has succeeded
	listingErr error    // the error of the request for it
	guessed    []string // files that are assumed not to exist, since neither cache nor hub could tell
}

// Open finds the commit of a revision in the cache, or else requests it from the hub. For a branch
// that the cache has, it is the commit at the time of the download, unless Refresh is set.
// Errors are of type [*Error].
func (h *Hub) Open(ctx context.Context, n Name) (*Snapshot, error) {
	commit := h.cachedCommit(n)
	if commit != "" && (!h.Refresh || commit == n.Revision) {
		return &Snapshot{Name: n, Commit: commit, hub: h}, nil
	}
	l, err := h.fetchListing(ctx, n)
	if err != nil {
		err = h.modelError(n, "", err)
		if e := (*Error)(nil); errors.As(err, &e) {
			e.cachedCommit = commit
		}
		return nil, err
	}
	return &Snapshot{Name: n, Commit: l.commit, hub: h, listing: l}, nil
}

// cachedCommit returns the commit of a revision that the cache has. "" means that it has none.
func (h *Hub) cachedCommit(n Name) string {
	if commitPattern.MatchString(n.revision()) {
		return n.revision()
	}
	b, _ := os.ReadFile(filepath.Join(h.Cache, n.folder(), "refs", filepath.FromSlash(n.revision())))
	if commit := strings.TrimSpace(string(b)); commitPattern.MatchString(commit) {
		return commit
	}
	return ""
}

// Pinned returns the name of the model at this commit.
func (s *Snapshot) Pinned() Name { return s.Name.At(s.Commit) }

// Dir returns the folder of the files.
func (s *Snapshot) Dir() string { return filepath.Join(s.modelDir(), "snapshots", s.Commit) }

// modelDir returns the folder of the model in the cache.
func (s *Snapshot) modelDir() string { return filepath.Join(s.hub.Cache, s.Name.folder()) }

// filePath returns the path of a file in the snapshot, which may not exist.
func (s *Snapshot) filePath(file string) string {
	return filepath.Join(s.Dir(), filepath.FromSlash(file))
}

// absentPath returns the path of the mark in the cache that the model does not have a file.
func (s *Snapshot) absentPath(file string) string {
	return filepath.Join(s.modelDir(), ".no_exist", s.Commit, filepath.FromSlash(file))
}

// isFile reports whether path is a regular file, or a link to one.
func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// Has reports whether the model has a file, by the cache or by the hub's list. If the hub cannot be
// reached, a file that the cache lacks counts as missing, and [Snapshot.AssumedMissing] returns it.
// Errors are of type [*Error].
func (s *Snapshot) Has(ctx context.Context, file string) (bool, error) {
	if isFile(s.filePath(file)) {
		return true, nil
	}
	if isFile(s.absentPath(file)) {
		return false, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listing == nil && s.listingErr == nil {
		s.listing = s.cachedListing()
	}
	if err := s.loadListing(ctx); err != nil {
		if _, serr := os.Stat(s.Dir()); serr != nil || ctx.Err() != nil {
			return false, err
		}
		if !slices.Contains(s.guessed, file) {
			s.guessed = append(s.guessed, file)
		}
		return false, nil
	}
	if _, ok := s.listing.files[file]; ok {
		return true, nil
	}
	s.markAbsent(file)
	return false, nil
}

// loadListing requests the list of files, once. The caller holds mu.
func (s *Snapshot) loadListing(ctx context.Context) error {
	if s.listing == nil && s.listingErr == nil {
		h := s.hub
		if _, err := os.Stat(s.Dir()); err == nil { // the files in the cache may be enough: do not retry for long
			oneAttempt := *h
			oneAttempt.Attempts = 1
			h = &oneAttempt
		}
		s.listing, s.listingErr = h.fetchListing(ctx, s.Pinned())
		if err := ctx.Err(); err != nil { // the context ended: a later call may ask again
			s.listingErr = nil
			return err
		}
		if s.listingErr == nil && s.listing.commit != s.Commit {
			err := fmt.Errorf("%w: asked for commit %s it gives %s", ErrAnswer, s.Commit, s.listing.commit)
			s.listing, s.listingErr = nil, err
		}
	}
	return s.hub.modelError(s.Name, "", s.listingErr)
}

// cachedListing returns the list of files that huggingface_hub stores for a snapshot. nil means that
// a valid list is missing.
func (s *Snapshot) cachedListing() *listing {
	b, err := os.ReadFile(filepath.Join(s.modelDir(), "trees", s.Commit+".json"))
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
		if !isHash(file.hash) {
			file.hash = ""
		}
		if filepath.IsLocal(filepath.FromSlash(path)) {
			l.files[path] = file
		}
	}
	return l
}

// markAbsent marks in the cache that the model does not have a file, so that it is not requested again.
// Errors are ignored: the mark only saves a request.
func (s *Snapshot) markAbsent(file string) {
	path := s.absentPath(file)
	if s.checkHome() == nil && os.MkdirAll(filepath.Dir(path), 0o777) == nil {
		if f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o666); err == nil {
			_ = f.Close()
		}
	}
}

// AssumedMissing returns the files that were assumed missing, because the cache does not have them and the hub
// could not be reached, with the error of the request.
func (s *Snapshot) AssumedMissing() ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guessed, s.hub.modelError(s.Name, "", s.listingErr)
}

// Files returns the sizes of files, and whether the cache has them. Errors are of type [*Error].
func (s *Snapshot) Files(ctx context.Context, names ...string) ([]File, error) {
	list := make([]File, 0, len(names))
	for _, name := range names {
		f, err := s.findFile(ctx, name)
		if err != nil {
			return nil, s.hub.modelError(s.Name, name, err)
		}
		list = append(list, f)
	}
	return list, nil
}

// findFile returns the description of a file. For a file in the snapshot's folder it has no hash.
func (s *Snapshot) findFile(ctx context.Context, name string) (File, error) {
	if info, err := os.Stat(s.filePath(name)); err == nil && info.Mode().IsRegular() {
		return File{Path: name, Bytes: info.Size(), Cached: true}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listing == nil && s.listingErr == nil {
		s.listing = s.cachedListing()
	}
	if err := s.loadListing(ctx); err != nil {
		return File{}, err
	}
	f, ok := s.listing.files[name]
	if !ok {
		return File{}, ErrFile
	}
	f, err := s.completeFile(ctx, f)
	if err != nil {
		return File{}, err
	}
	s.listing.files[name] = f
	f.Cached = isFile(s.blobPath(f))
	return f, nil
}

// maxSettings is the largest file of settings or tokenizer, in bytes, that is fetched.
const maxSettings = 256 << 20

// Get fetches the files that the snapshot's folder lacks. If another process is fetching one of
// them, Get waits for it. Errors are of type [*Error].
func (s *Snapshot) Get(ctx context.Context, names ...string) error {
	var missing []File
	p := progress{model: s.Pinned().String(), listener: s.hub.Progress}
	for _, name := range names {
		f, err := s.findFile(ctx, name)
		switch {
		case err == nil && strings.HasSuffix(name, ".json") && f.Bytes > maxSettings:
			err = fmt.Errorf("%w: %d bytes, want %d at most", ErrTooLarge, f.Bytes, maxSettings)
		case err == nil && !isFile(s.filePath(name)):
			missing = append(missing, f)
			p.total += f.Bytes
		}
		if err != nil {
			return s.hub.modelError(s.Name, name, err)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if err := s.createFolders(); err != nil {
		return s.hub.modelError(s.Name, "", err)
	}
	for _, f := range missing {
		if err := s.fetchFile(ctx, f, &p); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return s.hub.modelError(s.Name, f.Path, unreachableError(err))
		}
	}
	return nil
}

// cacheDirTag is the content of CACHEDIR.TAG, by which backup programs skip the cache. huggingface_hub writes
// the same signature.
const cacheDirTag = "Signature: 8a477f597d28d172789f06886806bc55\n# The cache of a model hub.\n"

// createFolders creates the folders of the model in the cache.
func (s *Snapshot) createFolders() error {
	if err := s.checkHome(); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Join(s.modelDir(), "blobs"), s.Dir(), s.lockDir()} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return localError(err)
		}
	}
	if path := filepath.Join(s.hub.Cache, "CACHEDIR.TAG"); !isFile(path) {
		_ = os.WriteFile(path, []byte(cacheDirTag), 0o666) // only backups need it
	}
	return nil
}

// RecordRevision records in the cache that the revision is this commit. It is called when all required files are
// fetched. A read-only cache is not an error.
func (s *Snapshot) RecordRevision() error {
	if s.Name.revision() == s.Commit || s.hub.cachedCommit(s.Name) == s.Commit {
		return nil
	}
	err := s.writeRevision()
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		s.hub.logger().Info("hub: the cache cannot be written to", "error", err)
		return nil
	}
	return s.hub.modelError(s.Name, "", err)
}

// writeRevision writes the commit of the revision into the cache.
func (s *Snapshot) writeRevision() error {
	path := filepath.Join(s.modelDir(), "refs", filepath.FromSlash(s.Name.revision()))
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return localError(err)
	}
	return localError(replace(path, func(temporary string) error {
		return os.WriteFile(temporary, []byte(s.Commit), 0o666)
	}))
}

// errLocal marks errors of the cache's own folder.
var errLocal = errors.New("cache")

// checkHome returns an error if the cache is in a home folder that could not be determined.
func (s *Snapshot) checkHome() error {
	if strings.HasPrefix(s.hub.Cache, "~") {
		return localError(errNoHome)
	}
	return nil
}

// errNoHome reports that the cache would be in the home folder, which is unknown.
var errNoHome = errors.New("there is no home folder for models: HF_HOME names another one")

// localError marks an error of the cache's folder, for which a request is not repeated.
func localError(err error) error {
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

// isNotExist reports whether an error means that a file does not exist.
func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
