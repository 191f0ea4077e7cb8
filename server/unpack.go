package server

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/plaid-ir/plaid/index/interop"
	"github.com/plaid-ir/plaid/vectors"
)

// maxMembers bounds the files of an archive: an index folder has a few for each chunk
// of documents.
const maxMembers = 1 << 20

// unpack writes the files of a tar archive below dir and returns the folder that they
// are in: dir, or the one folder that all of them are in. Only regular files and
// folders are taken, under names that stay below dir. Sparse files are not, so that the files
// take no more space than the archive.
func unpack(ctx context.Context, r io.Reader, dir string) (string, error) {
	archive := tar.NewReader(r)
	for members := 0; ; members++ {
		h, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return "", badTar(err)
		}
		if err := ctx.Err(); err != nil {
			return "", err
		}
		name := filepath.FromSlash(strings.TrimSuffix(h.Name, "/"))
		switch {
		case h.Typeflag == tar.TypeXGlobalHeader:
			continue
		case !filepath.IsLocal(name) || strings.ContainsRune(h.Name, '\\'):
			return "", bad("the archive has a file that would be outside of it: %q", h.Name)
		case members == maxMembers:
			return "", bad("the archive has more than %d files", maxMembers)
		case h.Typeflag == tar.TypeDir:
			if err := os.MkdirAll(filepath.Join(dir, name), 0o777); err != nil {
				return "", taken(err, h.Name)
			}
			continue
		case h.Typeflag != tar.TypeReg:
			return "", bad("%q in the archive is no regular file", h.Name)
		case isSparse(h):
			return "", bad("%q in the archive is a sparse file: pack it without --sparse", h.Name)
		}
		if err := unpackFile(archive, filepath.Join(dir, name)); err != nil {
			return "", taken(err, h.Name)
		}
	}
	if _, err := io.Copy(io.Discard, r); err != nil { // what pads the archive; digests and limits are of the whole body
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if len(entries) == 1 && entries[0].IsDir() {
		return filepath.Join(dir, entries[0].Name()), nil
	}
	return dir, nil
}

// isSparse reports whether a file has holes that the archive does not hold.
func isSparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

func unpackFile(r io.Reader, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, r); err != nil {
		return errors.Join(badTar(err), f.Close())
	}
	return f.Close()
}

// badTar is the error of reading an archive.
func badTar(err error) error {
	if isTransport(err) {
		return err
	}
	return bad("the body is no tar archive: %w", err)
}

// taken is the error of writing a member: two of one name are the archive's fault.
func taken(err error, name string) error {
	var p *Problem
	var at *fs.PathError
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, syscall.ENAMETOOLONG):
		return bad("%.80q… in the archive has a name that is too long", name)
	case errors.Is(err, fs.ErrExist):
		return bad("%q is in the archive twice", name)
	case errors.As(err, &at) && strings.Contains(at.Err.Error(), "not a directory"):
		return bad("%q is below a file", name)
	}
	return err
}

// idsOf reads the ids of an index folder; nil without a file of them.
func idsOf(ctx context.Context, folder string) ([]string, error) {
	ids, err := vectors.ReadIDs(ctx, filepath.Join(folder, "ids.txt"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return ids, err
}

// badImport is the error of a folder below dir that cannot be taken over.
func badImport(err error, dir string) error {
	for _, known := range []error{interop.ErrNotIndex, interop.ErrBroken, interop.ErrUnsupported, interop.ErrChanged, vectors.ErrFormat, vectors.ErrShape, vectors.ErrValue, vectors.ErrID, fs.ErrNotExist} {
		if errors.Is(err, known) {
			p := bad("the folder cannot be taken over: %w", err)
			p.Message = withoutFolder(p.Message, dir)
			return p
		}
	}
	return badFile(err)
}

// withoutFolder takes out of a message where an archive was unpacked, which is no business
// of the client.
func withoutFolder(message, dir string) string {
	return strings.NewReplacer(dir+string(filepath.Separator), "", "index folder "+dir, "the archive", dir, "the archive").Replace(message)
}
