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

// blob is where the content of a file is, whatever the files are called that have it.
func (s *Snapshot) blob(f File) string { return filepath.Join(s.place(), "blobs", f.hash) }

// locks is the folder of the files that are locked while blobs of the model are made.
func (s *Snapshot) locks() string { return filepath.Join(s.hub.Cache, ".locks", s.Name.folder()) }

// fetch brings a file into the folder.
func (s *Snapshot) fetch(ctx context.Context, f File, p *progress) error {
	lock, err := lockFile(ctx, filepath.Join(s.locks(), f.hash+".lock"), s.watch(f, p))
	if err != nil {
		return err
	}
	defer lock.Close()
	fresh := false
	if !isFile(s.path(f.Path)) { // another process may have been faster
		if verify(s.blob(f), f) != nil { // others may have left it damaged
			if err := s.download(ctx, f, p); err != nil {
				return err
			}
			fresh = true
		}
		if err := s.link(f, fresh); err != nil {
			return local(err)
		}
	}
	p.report(f, f.Bytes)
	p.done += f.Bytes
	if fresh {
		s.hub.log().Info("hub: fetched", "model", p.model, "file", f.Path, "bytes", f.Bytes)
	}
	return nil
}

// watch returns a function that tells how much of a file another process has fetched.
func (s *Snapshot) watch(f File, p *progress) func() {
	last := int64(-1)
	return func() {
		n := int64(0)
		if info, err := os.Stat(s.blob(f) + ".incomplete"); err == nil {
			n = min(info.Size(), f.Bytes)
		}
		if n != last {
			last = n
			p.report(f, n)
		}
	}
}

// lockFile waits for the lock that huggingface_hub takes while it makes a blob. It ends as the file
// is closed. While another process has it, waiting is called now and then. File systems without
// locks do without: each blob gets its name when it is complete.
func lockFile(ctx context.Context, path string, waiting func()) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o664)
		if err != nil {
			return nil, local(err)
		}
		err = files.LockFirst(f)
		if err == nil || !errors.Is(err, files.ErrLocked) {
			now, serr := os.Stat(path)
			opened, ferr := f.Stat()
			if serr == nil && ferr == nil && os.SameFile(now, opened) {
				return f, nil
			}
		}
		f.Close() // locked, or a file that has no name any more
		waiting()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// download makes the blob of a file. What an earlier attempt has left is continued.
func (s *Snapshot) download(ctx context.Context, f File, p *progress) error {
	path := s.blob(f) + ".incomplete"
	for first := true; ; first = false {
		resumed, err := s.fill(ctx, f, path, p)
		if err != nil {
			return err
		}
		err = verify(path, f)
		if err == nil {
			if err = files.Rename(path, s.blob(f)); err == nil {
				return local(files.SyncFolder(filepath.Dir(path)))
			}
			err = local(err)
		}
		if notThere(err) && isFile(s.blob(f)) { // without locks another process has made it meanwhile
			return nil
		}
		if rerr := removeIfThere(path); rerr != nil {
			return errors.Join(err, local(rerr))
		}
		if !errors.Is(err, ErrDamaged) || !resumed || !first {
			return err // else an earlier attempt may be at fault
		}
	}
}

// fill writes the content to a file until all of it is there, and reports whether some was before.
func (s *Snapshot) fill(ctx context.Context, f File, path string, p *progress) (resumed bool, err error) {
	out, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return false, local(err)
	}
	defer func() { err = errors.Join(err, local(out.Close())) }()
	info, err := out.Stat()
	if err != nil {
		return false, local(err)
	}
	have := info.Size()
	if have > f.Bytes {
		if err := out.Truncate(0); err != nil {
			return false, local(err)
		}
		have = 0
	}
	resumed = have > 0
	p.report(f, have)
	err = s.hub.retry(ctx, f.Path, func() (bool, error) {
		begin := have
		have, err = s.read(ctx, f, out, have, p)
		return have > begin, err
	})
	if err != nil {
		return resumed, err
	}
	return resumed, local(out.Sync())
}

// read asks for all but the first have bytes, and gives the number of bytes that are there then.
func (s *Snapshot) read(ctx context.Context, f File, out *os.File, have int64, p *progress) (int64, error) {
	if have == f.Bytes {
		return have, nil
	}
	header := http.Header{}
	if have > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", have))
	}
	a, err := s.hub.ask(ctx, http.MethodGet, s.address(f.Path), header, false)
	if err != nil {
		return have, err
	}
	defer a.Body.Close()
	if a.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return 0, &statusError{err: fmt.Errorf("%w: %s", ErrStatus, a.Status), again: have > 0}
	}
	if err := check(a, ErrFile); err != nil {
		return have, err
	}
	if a.StatusCode != http.StatusPartialContent {
		have = 0 // all of it comes
	} else if r := a.Header.Get("Content-Range"); !strings.HasPrefix(r, fmt.Sprintf("bytes %d-", have)) {
		return 0, fmt.Errorf("%w: asked for bytes from %d on it gives %.60q", ErrAnswer, have, r)
	}
	buffer := make([]byte, 1<<20)
	for {
		n, err := a.Body.Read(buffer)
		if n > 0 {
			if have+int64(n) > f.Bytes {
				err := fmt.Errorf("%w: more than the %d bytes that the hub says", ErrDamaged, f.Bytes)
				return 0, errors.Join(err, discard(out))
			}
			if _, werr := out.WriteAt(buffer[:n], have); werr != nil {
				return have, local(fmt.Errorf("%d of %d bytes are there: %w", have, f.Bytes, werr))
			}
			have += int64(n)
			p.report(f, have)
		}
		switch {
		case err == io.EOF && have < f.Bytes:
			return have, fmt.Errorf("%w after %d of %d bytes", io.ErrUnexpectedEOF, have, f.Bytes)
		case err == io.EOF:
			return have, nil
		case err != nil:
			return have, err
		}
	}
}

// discard empties a file that cannot be continued.
func discard(out *os.File) error { return local(out.Truncate(0)) }

// verify holds the size and the hash of a file against those that the hub says.
func verify(path string, f File) error {
	in, err := os.Open(path)
	if err != nil {
		return local(err)
	}
	defer in.Close()
	var h hash.Hash
	if len(f.hash) == 2*sha256.Size {
		h = sha256.New()
	} else { // as git names a file
		h = sha1.New()
		fmt.Fprintf(h, "blob %d\x00", f.Bytes)
	}
	n, err := io.Copy(h, in)
	switch {
	case err != nil:
		return local(err)
	case n != f.Bytes:
		return fmt.Errorf("%w: %d bytes, the hub says %d", ErrDamaged, n, f.Bytes)
	}
	if sum := hex.EncodeToString(h.Sum(nil)); sum != f.hash {
		return fmt.Errorf("%w: its hash is %s, the hub says %s", ErrDamaged, sum, f.hash)
	}
	return nil
}

// link makes the file of the snapshot: a link to the blob, or where there are no symbolic links the
// blob itself if it is fresh, and else a copy.
func (s *Snapshot) link(f File, fresh bool) error {
	path, blob := s.path(f.Path), s.blob(f)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	if !s.hub.NoLinks {
		to, err := filepath.Rel(filepath.Dir(path), blob)
		if err != nil {
			return err
		}
		err = replace(path, func(temporary string) error { return os.Symlink(to, temporary) })
		if err == nil || !noLinks(err) {
			return err
		}
	}
	if fresh {
		return os.Rename(blob, path)
	}
	return replace(path, func(temporary string) error { return copyFile(temporary, blob) })
}

// noLinks reports whether an error may mean that this system has no symbolic links.
func noLinks(err error) bool {
	var le *os.LinkError
	return errors.As(err, &le) && !errors.Is(err, fs.ErrExist) && !notThere(err)
}

// replace puts a file in the place of another, or of none, that make has made under another name.
func replace(path string, make func(temporary string) error) error {
	temporary := fmt.Sprintf("%s.%08x.tmp", path, rand.Uint32())
	err := make(temporary)
	if err == nil {
		err = files.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(err, removeIfThere(temporary))
	}
	return nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !notThere(err) {
		return err
	}
	return nil
}

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
