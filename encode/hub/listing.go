package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
)

// maxListing is the largest list of a model's files, in bytes, that is read.
const maxListing = 16 << 20

// File is a file of a model.
type File struct {
	Path  string `json:"path"` // with slashes
	Bytes int64  `json:"bytes"`
	// Cached reports whether the cache has the file.
	Cached bool `json:"cached"`
	// hash is the SHA-256 of a large file, or git's SHA-1 of a small one. "" means unknown.
	hash string
}

// listing is the hub's list of the files of a revision.
type listing struct {
	commit string
	files  map[string]File
}

// fetchListing requests the commit and the files of a revision.
func (h *Hub) fetchListing(ctx context.Context, n Name) (*listing, error) {
	if h.Offline != "" {
		return nil, fmt.Errorf("%w: %s", ErrOffline, h.Offline)
	}
	address := fmt.Sprintf("%s/api/models/%s/revision/%s?blobs=true", h.Endpoint, n.Repo, url.PathEscape(n.revision()))
	var l *listing
	err := h.retryRequest(ctx, n.String(), func() (bool, error) {
		a, err := h.request(ctx, http.MethodGet, address, nil, false)
		if err != nil {
			return false, err
		}
		defer a.Body.Close()
		if err := statusToError(a, ErrRepository); err != nil {
			return false, err
		}
		b, err := io.ReadAll(io.LimitReader(a.Body, maxListing+1))
		switch {
		case err != nil:
			return false, err
		case len(b) > maxListing:
			return false, fmt.Errorf("%w: the list of files has more than %d bytes", ErrTooLarge, maxListing)
		}
		l, err = parseListing(b)
		return false, err
	})
	return l, unreachableError(err)
}

// unreachableError marks an error of the network as [ErrUnreachable]. Errors of the hub's answers, of the
// cache and of the context stay as they are.
func unreachableError(err error) error {
	var s *statusError
	for _, known := range []error{
		ErrEndpoint, ErrAnswer, ErrTooLarge, ErrOffline, ErrDamaged, errLocal,
		context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, known) {
			return err
		}
	}
	if err == nil || errors.As(err, &s) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

// parseListing parses the hub's answer about a revision. Files with names that are not local paths
// are left out.
func parseListing(b []byte) (*listing, error) {
	var v struct {
		SHA      string
		Siblings []struct {
			RFilename string
			Size      *int64
			BlobID    string
			XetHash   string
			LFS       *struct {
				SHA256, OID string
				Size        *int64
			}
		}
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	if !commitPattern.MatchString(v.SHA) {
		return nil, fmt.Errorf("%w: the commit is %.60q", ErrAnswer, v.SHA)
	}
	l := &listing{v.SHA, map[string]File{}}
	for _, s := range v.Siblings {
		// A name must not lead out of the snapshot's folder.
		if strings.ContainsAny(s.RFilename, "\\\x00") || !filepath.IsLocal(filepath.FromSlash(s.RFilename)) {
			continue
		}
		f := File{Path: s.RFilename, Bytes: -1}
		size := s.Size
		switch {
		case s.LFS != nil:
			size, f.hash = s.LFS.Size, strings.TrimPrefix(cmp.Or(s.LFS.SHA256, s.LFS.OID), "sha256:")
		case s.XetHash == "": // otherwise BlobID is the hash of a pointer file
			f.hash = s.BlobID
		}
		if size != nil && *size >= 0 {
			f.Bytes = *size
		}
		if !isHash(f.hash) {
			f.hash = ""
		}
		l.files[f.Path] = f
	}
	return l, nil
}

// isHash reports whether a hash is a SHA-1 or SHA-256, by which files can be verified.
func isHash(hash string) bool {
	return (len(hash) == 40 || len(hash) == 64) && strings.Trim(hash, "0123456789abcdef") == ""
}

// address returns the URL of a file of the model.
func (s *Snapshot) address(file string) string {
	parts := strings.Split(file, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return fmt.Sprintf("%s/%s/resolve/%s/%s", s.hub.Endpoint, s.Name.Repo, s.Commit, strings.Join(parts, "/"))
}

// completeFile adds the hash and size of a file that the listing lacks, from the header of the file.
func (s *Snapshot) completeFile(ctx context.Context, f File) (File, error) {
	if f.hash != "" && f.Bytes >= 0 {
		return f, nil
	}
	err := s.hub.retryRequest(ctx, f.Path, func() (bool, error) {
		a, err := s.hub.request(ctx, http.MethodHead, s.address(f.Path), nil, true)
		if err != nil {
			return false, err
		}
		defer a.Body.Close()
		if a.StatusCode/100 != 3 {
			if err := statusToError(a, ErrFile); err != nil {
				return false, err
			}
		}
		first := func(names ...string) string {
			for _, name := range names {
				if v := a.first.Get(name); v != "" {
					return v
				}
			}
			return ""
		}
		tag := strings.Trim(strings.TrimPrefix(first("X-Linked-Etag", "Etag"), "W/"), `"`)
		if !isHash(tag) {
			return false, fmt.Errorf("%w: its hash is %.80q, want a SHA-256 or git's SHA-1", ErrAnswer, tag)
		}
		length := first("X-Linked-Size")
		if length == "" && a.StatusCode/100 == 2 {
			length = first("Content-Length")
		}
		n, err := strconv.ParseInt(length, 10, 64)
		if err != nil || n < 0 {
			return false, fmt.Errorf("%w: its size is %.40q", ErrAnswer, length)
		}
		f.hash, f.Bytes = tag, n
		return false, nil
	})
	return f, unreachableError(err)
}
