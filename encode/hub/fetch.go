package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/internal/files"
)

// blobPath returns the path of a file's content in the cache, which is named by its hash.
func (s *Snapshot) blobPath(f File) string { return filepath.Join(s.modelDir(), "blobs", f.hash) }

// lockDir returns the folder of the lock files for blobs of the model.
func (s *Snapshot) lockDir() string { return filepath.Join(s.hub.Cache, ".locks", s.Name.folder()) }

// fetchFile creates a file in the snapshot's folder. It downloads the blob unless the cache has it.
func (s *Snapshot) fetchFile(ctx context.Context, f File, p *progress) error {
	lock, err := lockFile(ctx, filepath.Join(s.lockDir(), f.hash+".lock"), s.watchOther(f, p))
	if err != nil {
		return err
	}
	defer lock.Close()
	downloaded := false
	if !isFile(s.filePath(f.Path)) { // another process may have been faster
		if verify(s.blobPath(f), f) != nil { // another program may have left it damaged
			if err := s.download(ctx, f, p); err != nil {
				return err
			}
			downloaded = true
		}
		if err := s.linkBlob(f, downloaded); err != nil {
			return localError(err)
		}
	}
	p.report(f, f.Bytes)
	p.done += f.Bytes
	if downloaded {
		s.hub.logger().Info("hub: fetched", "model", p.model, "file", f.Path, "bytes", f.Bytes)
	}
	return nil
}

// watchOther returns a function that reports the progress of another process that fetches the file.
func (s *Snapshot) watchOther(f File, p *progress) func() {
	last := int64(-1)
	return func() {
		n := int64(0)
		if info, err := os.Stat(s.blobPath(f) + ".incomplete"); err == nil {
			n = min(info.Size(), f.Bytes)
		}
		if n != last {
			last = n
			p.report(f, n)
		}
	}
}

// lockFile acquires the lock that huggingface_hub also holds while it writes a blob. Closing the
// file releases it. While another process has the lock, lockFile calls waiting between attempts. File
// systems without locks work without it, since a blob gets its name when it is complete.
func lockFile(ctx context.Context, path string, waiting func()) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o664)
		if err != nil {
			return nil, localError(err)
		}
		err = files.LockLikeFilelock(f)
		if err == nil || !errors.Is(err, files.ErrLocked) {
			now, serr := os.Stat(path)
			opened, ferr := f.Stat()
			if serr == nil && ferr == nil && os.SameFile(now, opened) {
				return f, nil
			}
		}
		f.Close() // locked, or removed since it was opened
		waiting()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// download writes the blob of a file. It continues an earlier attempt; if the result is damaged, it
// starts once more from the beginning, since the earlier attempt may be at fault.
func (s *Snapshot) download(ctx context.Context, f File, p *progress) error {
	path := s.blobPath(f) + ".incomplete"
	for first := true; ; first = false {
		resumed, err := s.resumeFile(ctx, f, path, p)
		if err != nil {
			return err
		}
		err = verify(path, f)
		if err == nil {
			if err = files.Rename(path, s.blobPath(f)); err == nil {
				return localError(files.SyncFolder(filepath.Dir(path)))
			}
			err = localError(err)
		}
		if isNotExist(err) && isFile(s.blobPath(f)) { // without locks, another process has written it meanwhile
			return nil
		}
		if rerr := removeIfExists(path); rerr != nil {
			return errors.Join(err, localError(rerr))
		}
		if !errors.Is(err, ErrDamaged) || !resumed || !first {
			return err
		}
	}
}

// resumeFile fetches the bytes of the content that the file at path lacks at its end, and reports whether
// the file had any before.
func (s *Snapshot) resumeFile(ctx context.Context, f File, path string, p *progress) (resumed bool, err error) {
	out, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return false, localError(err)
	}
	defer func() { err = errors.Join(err, localError(out.Close())) }()
	info, err := out.Stat()
	if err != nil {
		return false, localError(err)
	}
	offset := info.Size()
	if offset > f.Bytes {
		if err := out.Truncate(0); err != nil {
			return false, localError(err)
		}
		offset = 0
	}
	resumed = offset > 0
	p.report(f, offset)
	err = s.hub.retryRequest(ctx, f.Path, func() (bool, error) {
		begin := offset
		offset, err = s.readRange(ctx, f, out, offset, p)
		return offset > begin, err
	})
	if err != nil {
		return resumed, err
	}
	return resumed, localError(out.Sync())
}

// readRange requests the content from an offset on, writes it to out, and returns the offset at which out
// ends then.
func (s *Snapshot) readRange(ctx context.Context, f File, out *os.File, offset int64, p *progress) (int64, error) {
	if offset == f.Bytes {
		return offset, nil
	}
	header := http.Header{}
	if offset > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	a, err := s.hub.request(ctx, http.MethodGet, s.address(f.Path), header, false)
	if err != nil {
		return offset, err
	}
	defer a.Body.Close()
	if a.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return 0, &statusError{err: fmt.Errorf("%w: %s", ErrStatus, a.Status), mayRepeat: offset > 0}
	}
	if err := statusToError(a, ErrFile); err != nil {
		return offset, err
	}
	if a.StatusCode != http.StatusPartialContent {
		offset = 0 // the hub ignores the range and sends the whole file
	} else if r := a.Header.Get("Content-Range"); !strings.HasPrefix(r, fmt.Sprintf("bytes %d-", offset)) {
		return 0, fmt.Errorf("%w: asked for bytes from %d on it gives %.60q", ErrAnswer, offset, r)
	}
	buffer := make([]byte, 1<<20)
	for {
		n, err := a.Body.Read(buffer)
		if n > 0 {
			if offset+int64(n) > f.Bytes {
				err := fmt.Errorf("%w: more than the %d bytes that the hub says", ErrDamaged, f.Bytes)
				return 0, errors.Join(err, discard(out))
			}
			if _, werr := out.WriteAt(buffer[:n], offset); werr != nil {
				return offset, localError(fmt.Errorf("%d of %d bytes are there: %w", offset, f.Bytes, werr))
			}
			offset += int64(n)
			p.report(f, offset)
		}
		switch {
		case err == io.EOF && offset < f.Bytes:
			return offset, fmt.Errorf("%w after %d of %d bytes", io.ErrUnexpectedEOF, offset, f.Bytes)
		case err == io.EOF:
			return offset, nil
		case err != nil:
			return offset, err
		}
	}
}

// discard empties a file that cannot be continued.
func discard(out *os.File) error { return localError(out.Truncate(0)) }

// verify compares the size and the hash of a file with those that the hub reports.
func verify(path string, f File) error {
	in, err := os.Open(path)
	if err != nil {
		return localError(err)
	}
	defer in.Close()
	var h hash.Hash
	if len(f.hash) == 2*sha256.Size {
		h = sha256.New()
	} else { // the hash of git
		h = sha1.New()
		fmt.Fprintf(h, "blob %d\x00", f.Bytes)
	}
	n, err := io.Copy(h, in)
	switch {
	case err != nil:
		return localError(err)
	case n != f.Bytes:
		return fmt.Errorf("%w: %d bytes, the hub says %d", ErrDamaged, n, f.Bytes)
	}
	if sum := hex.EncodeToString(h.Sum(nil)); sum != f.hash {
		return fmt.Errorf("%w: its hash is %s, the hub says %s", ErrDamaged, sum, f.hash)
	}
	return nil
}

// linkBlob creates the file of the snapshot: a symbolic link to the blob. Without symbolic links, it
// moves a blob that was just downloaded, and copies any other, which other files may use.
func (s *Snapshot) linkBlob(f File, downloaded bool) error {
	path, blob := s.filePath(f.Path), s.blobPath(f)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	if !s.hub.NoLinks {
		to, err := filepath.Rel(filepath.Dir(path), blob)
		if err != nil {
			return err
		}
		err = replace(path, func(temporary string) error { return os.Symlink(to, temporary) })
		if err == nil || !linksUnsupported(err) {
			return err
		}
	}
	if downloaded {
		return os.Rename(blob, path)
	}
	return replace(path, func(temporary string) error { return copyFile(temporary, blob) })
}

// linksUnsupported reports whether an error may mean that this system has no symbolic links.
func linksUnsupported(err error) bool {
	var le *os.LinkError
	return errors.As(err, &le) && !errors.Is(err, fs.ErrExist) && !isNotExist(err)
}

// replace calls create to write a file under a temporary name, and renames it to path, which may
// exist.
func replace(path string, create func(temporary string) error) error {
	temporary := fmt.Sprintf("%s.%08x.tmp", path, rand.Uint32())
	err := create(temporary)
	if err == nil {
		err = files.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(err, removeIfExists(temporary))
	}
	return nil
}

// removeIfExists removes a file. A missing file is not an error.
func removeIfExists(path string) error {
	if err := os.Remove(path); !isNotExist(err) {
		return err
	}
	return nil
}

// copyFile copies a file to a path that does not exist, and syncs it.
func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}
