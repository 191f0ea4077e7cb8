package storage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"

	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/storage/internal/boltfile"
)

// backupBlockBytes is the number of bytes that a backup reads and writes at a time.
const backupBlockBytes = 1 << 20

// CopyTo writes the snapshot to w as a complete index file, and returns the size of that in bytes.
// Changes may go on meanwhile, since the read transaction of the snapshot keeps its pages. Free
// pages are zeros in the copy, so that it does not hold deleted content; the space into which the
// file can grow is not copied. progress, if not nil, is called with the number of bytes written.
func (v *Snapshot) CopyTo(ctx context.Context, w io.Writer, progress func(done, total int64)) (n int64, err error) {
	var zeros []byte
	out := copyTarget{
		write: func(b []byte) error {
			_, err := w.Write(b)
			return err
		},
		skip: func(n int64) error {
			if zeros == nil {
				zeros = make([]byte, backupBlockBytes)
			}
			for ; n > 0; n -= min(n, backupBlockBytes) {
				if _, err := w.Write(zeros[:min(n, backupBlockBytes)]); err != nil {
					return err
				}
			}
			return nil
		},
	}
	return v.copyTo(ctx, out, progress)
}

// copyTarget receives the bytes of a copy in order.
type copyTarget struct {
	write func(b []byte) error
	skip  func(n int64) error // appends n zeros, at most backupBlockBytes
}

// copyTo writes the pages of the snapshot to a target: first both meta pages, then runs of pages
// that are all free or all in use. It returns the size of the copy in bytes.
func (v *Snapshot) copyTo(ctx context.Context, out copyTarget, progress func(done, total int64)) (n int64, err error) {
	if v.closed.Load() {
		return 0, fmt.Errorf("%s: %w", v.file.path, ErrClosed)
	}
	defer Guard(v.file.path, &err)()
	if err := v.WaitComplete(ctx); err != nil {
		return 0, err
	}
	// The meta pages, which name the list of free pages.
	m, err := readTxMeta(v.tx)
	if err != nil {
		return 0, v.corruptError(err, "meta page")
	}
	free, err := m.ReadFreeList(v.handle.file)
	if err != nil {
		return 0, v.corruptError(err, "free pages")
	}
	isFree := func(page int64) bool { return free.Has(uint64(page)) }
	total := m.Pages * m.PageSize
	if err := out.write(m.pair); err != nil {
		return 0, fmt.Errorf("writing a copy of %s: %w", v.file.path, err)
	}
	// All other pages, as many at a time as the buffer holds.
	buf := make([]byte, max(backupBlockBytes/m.PageSize, 1)*m.PageSize)
	bufPages := int64(len(buf)) / m.PageSize
	for page := int64(2); page < m.Pages; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		end := page + 1
		for end < m.Pages && end-page < bufPages && isFree(end) == isFree(page) {
			end++
		}
		offset, size := page*m.PageSize, (end-page)*m.PageSize
		if isFree(page) {
			err = out.skip(size)
		} else if _, rerr := v.handle.file.ReadAt(buf[:size], offset); errors.Is(rerr, io.EOF) {
			return 0, v.corruptError(rerr, "the file was cut short while it was copied")
		} else if rerr != nil {
			return 0, fmt.Errorf("reading %s: %w", v.file.path, rerr)
		} else {
			err = out.write(buf[:size])
		}
		if err != nil {
			return 0, fmt.Errorf("writing a copy of %s: %w", v.file.path, err)
		}
		if page = end; progress != nil {
			progress(offset+size, total)
		}
	}
	return total, nil
}

// txMeta is the meta page of a read transaction.
type txMeta struct {
	boltfile.Meta
	pair []byte // both meta pages of a file that holds just this transaction
}

// readTxMeta gets the meta page of a transaction from bbolt, since the one in the file may already
// belong to a later commit. bbolt exposes it only as the beginning of its own copy (Tx.WriteTo),
// which metaWriter stops after the meta pages.
func readTxMeta(tx *bolt.Tx) (*txMeta, error) {
	var head metaWriter
	if _, err := tx.WriteTo(&head); !errors.Is(err, errMetaRead) {
		return nil, fmt.Errorf("%d bytes of meta pages: %w", len(head.b), err)
	}
	page := head.b[:len(head.b)/2]
	first, err := boltfile.ReadMeta(bytes.NewReader(page), 0)
	if err != nil || first.PageSize != int64(len(page)) {
		return nil, errors.Join(err, fmt.Errorf("a meta page of %d bytes", len(page)))
	}
	ne := binary.NativeEndian
	m := &txMeta{Meta: first}
	// A transaction writes the meta page with the parity of its id. The other page gets the same
	// content and an older id, so that bbolt and checkMeta accept the pair. A page begins with its
	// number; the meta in it has the id of the transaction at offset 48, and at 56 its checksum.
	txid := uint64(tx.ID())
	for i := range uint64(2) {
		p := append([]byte(nil), page...)
		ne.PutUint64(p, i)
		id := txid
		if i != txid%2 {
			id--
		}
		ne.PutUint64(p[boltfile.MetaOffset+48:], id)
		sum := fnv.New64a()
		sum.Write(p[boltfile.MetaOffset : boltfile.MetaOffset+56])
		ne.PutUint64(p[boltfile.MetaOffset+56:], sum.Sum64())
		m.pair = append(m.pair, p...)
	}
	return m, nil
}

// errMetaRead ends a copy of bbolt after the meta pages.
var errMetaRead = errors.New("enough")

// metaWriter keeps the two meta pages with which bbolt's copy begins, and then fails with
// errMetaRead.
type metaWriter struct {
	b     []byte
	pages int
}

func (w *metaWriter) Write(p []byte) (int, error) {
	if w.pages == 2 {
		return 0, errMetaRead
	}
	w.pages++
	w.b = append(w.b, p...)
	return len(p), nil
}

// VerifyChecksums checks the pages of the B+tree and every checksum: the part of [Snapshot.Verify]
// that detects a damaged disk or copy.
func (v *Snapshot) VerifyChecksums(ctx context.Context) (err error) {
	defer Guard(v.file.path, &err)()
	if err := v.WaitComplete(ctx); err != nil {
		return err
	}
	if err := boltfile.CheckTransaction(ctx, v.handle.file, uint64(v.tx.ID())); err != nil {
		return treeError(ctx, v.file.path, err)
	}
	var faults []error
	err = v.verifyAllChecksums(ctx, func(err error) {
		if len(faults) < maxFaults {
			faults = append(faults, err)
		}
	})
	return errors.Join(append(faults, err)...)
}

// IsFile reports whether info describes the file of the snapshot, or the one that has its path now.
func (v *Snapshot) IsFile(info fs.FileInfo) (bool, error) {
	opened, err := v.handle.file.Stat()
	if err != nil {
		return false, fmt.Errorf("%s: %w", v.file.path, err)
	}
	if named, err := os.Stat(v.file.path); err == nil && os.SameFile(named, info) {
		return true, nil
	}
	return os.SameFile(opened, info), nil
}

// Mode returns the permissions of the file of the snapshot.
func (v *Snapshot) Mode() (fs.FileMode, error) {
	info, err := v.handle.file.Stat()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", v.file.path, err)
	}
	return info.Mode().Perm(), nil
}
