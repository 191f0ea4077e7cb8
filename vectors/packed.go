package vectors

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/plaid-ir/plaid/internal/files"
)

// checkNotCompressed returns an error for a compressed file of vectors, which cannot be read at random
// offsets.
func checkNotCompressed(path string) error {
	if _, suffix := files.TrimPackedSuffix(path); suffix != "" {
		tool := map[string]string{".gz": "gunzip", ".zst": "unzstd", ".xz": "unxz"}[suffix]
		return faultf(path, ErrFormat, "compressed files of vectors are not read: run %s first", tool)
	}
	return nil
}

// decompress returns a reader of the text of a file that may be compressed.
func decompress(r io.Reader, path string) (*bufio.Reader, error) {
	b, err := files.Unpack(r, path)
	if err != nil {
		return nil, NewFileError(path, compressedError(err))
	}
	return b, nil
}

// compressedError marks an error of the compressed content as [ErrFormat].
func compressedError(err error) error {
	if errors.Is(err, files.ErrPacked) {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return withoutPath(err)
}

// maxUnpacked is the maximum size in bytes of the temporary file of openRandomAccess.
const maxUnpacked = 64 << 30

// randomAccess is text that is read at random offsets.
type randomAccess interface {
	io.ReaderAt
	io.Closer
}

// openRandomAccess opens a regular file of text for reading at random offsets. It decompresses a compressed
// file into a temporary one.
func (in *inputs) openRandomAccess(ctx context.Context, path string) (randomAccess, int64, error) {
	f, size, err := in.openFile(path)
	if err != nil {
		return nil, 0, err
	}
	magic := make([]byte, 6)
	n, err := readAtMost(f, magic, size)
	if err != nil {
		return nil, 0, errors.Join(NewFileError(path, err), f.Close())
	}
	if _, suffix := files.TrimPackedSuffix(path); suffix == "" && files.PackingName(magic[:n]) == "" {
		return f, size, nil
	}
	defer f.Close()
	b, err := decompress(files.UntilDone(ctx, io.NewSectionReader(f, 0, size)), path)
	if err != nil {
		return nil, 0, err
	}
	t, err := files.NewTemporary("", "plaid-unpacked-")
	if err != nil {
		return nil, 0, err
	}
	size, err = io.Copy(t, io.LimitReader(b, maxUnpacked+1))
	switch {
	case err != nil:
		err = NewFileError(path, compressedError(err))
	case size > maxUnpacked:
		err = faultf(path, ErrFormat, "has more than %d GiB when it is unpacked", maxUnpacked>>30)
	default:
		return t, size, nil
	}
	return nil, 0, errors.Join(err, t.Close())
}
