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
)

// maxArchiveFiles is the largest number of files of an archive: the index folders of other engines have a
// few for each chunk of documents.
const maxArchiveFiles = 1 << 20

// unpackArchive writes the files of a tar archive below dir and returns the folder that they are in: dir,
// or the only folder in it. It takes regular files and folders whose names stay below dir. It refuses
// sparse files, so that the files take no more space than the archive.
func unpackArchive(ctx context.Context, r io.Reader, dir string) (string, error) {
	archive := tar.NewReader(r)
	for members := 0; ; members++ {
		h, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return "", archiveError(err)
		}
		if err := ctx.Err(); err != nil {
			return "", err
		}

		// Check the name and the type of the file, and write it.
		name := filepath.FromSlash(strings.TrimSuffix(h.Name, "/"))
		switch {
		case h.Typeflag == tar.TypeXGlobalHeader:
			continue
		case !filepath.IsLocal(name) || strings.ContainsRune(h.Name, '\\'):
			return "", badRequest("the archive has a file that would be outside of it: %q", h.Name)
		case members == maxArchiveFiles:
			return "", badRequest("the archive has more than %d files", maxArchiveFiles)
		case h.Typeflag == tar.TypeDir:
			if err := os.MkdirAll(filepath.Join(dir, name), 0o777); err != nil {
				return "", memberError(err, h.Name)
			}
			continue
		case h.Typeflag != tar.TypeReg:
			return "", badRequest("%q in the archive is no regular file", h.Name)
		case isSparse(h):
			return "", badRequest("%q in the archive is a sparse file: pack it without --sparse", h.Name)
		}
		if err := unpackFile(archive, filepath.Join(dir, name)); err != nil {
			return "", memberError(err, h.Name)
		}
	}
	// Read the padding of the archive: limits hold for the whole body.
	if _, err := io.Copy(io.Discard, r); err != nil {
		return "", err
	}

	// Find the folder.
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

// unpackFile writes one file of an archive. Its path must not exist.
func unpackFile(r io.Reader, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, r); err != nil {
		return errors.Join(archiveError(err), f.Close())
	}
	return f.Close()
}

// archiveError turns an error of reading an archive into one of the request.
func archiveError(err error) error {
	if isTransportError(err) {
		return err
	}
	return badRequest("the body is no tar archive: %w", err)
}

// memberError turns an error of writing a file of an archive into one of the request, if the names in the
// archive are its cause.
func memberError(err error, name string) error {
	var p *Problem
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, syscall.ENAMETOOLONG):
		return badRequest("%.80q… in the archive has a name that is too long", name)
	case errors.Is(err, fs.ErrExist):
		return badRequest("%q is in the archive twice", name)
	case errors.Is(err, syscall.ENOTDIR):
		return badRequest("%q is below a file", name)
	}
	return err
}
