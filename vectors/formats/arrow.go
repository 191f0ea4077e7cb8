package formats

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"sort"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/plaid-ir/plaid/vectors"
)

// arrowMagic is the first and the last bytes of an IPC file. A stream does not have it.
const arrowMagic = "ARROW1"

// arrowRows is the rows of an IPC file or stream.
type arrowRows struct {
	columns *arrow.Schema
	load    func(i int) (arrow.RecordBatch, error)
	starts  []int64 // the first row of each batch, and the number of rows
}

// openArrow opens an IPC file or stream, after checking it.
func openArrow(ctx context.Context, f *os.File, size int64) (*arrowRows, error) {
	head := make([]byte, len(arrowMagic))
	if _, err := f.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	isFile := string(head) == arrowMagic
	if err := checkArrow(ctx, f, size, !isFile); err != nil {
		return nil, err
	}
	if isFile {
		return openIPCFile(ctx, io.NewSectionReader(f, 0, size))
	}
	return openIPCStream(ctx, f, size)
}

// openIPCFile opens an IPC file, and reads the numbers of rows of its batches.
func openIPCFile(ctx context.Context, in *io.SectionReader) (*arrowRows, error) {
	// A limit of 0 allows a batch of any size; the default is 256 MiB.
	r, err := ipc.NewFileReader(in, ipc.WithAllocator(memory.NewGoAllocator()), ipc.WithBodySizeLimit(0))
	if err != nil {
		return nil, malformed(err)
	}
	a := &arrowRows{columns: r.Schema(), load: r.RecordBatchAt, starts: []int64{0}}
	for i := range r.NumRecords() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		b, err := r.RecordBatchAt(i)
		if err != nil {
			return nil, malformed(err)
		}
		a.starts = append(a.starts, a.starts[i]+b.NumRows())
		b.Release()
	}
	return a, nil
}

// counter counts the bytes that are read.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// openIPCStream opens a stream, and records the offsets of its batches. A batch is loaded later as a short
// stream of its own: the schema, and the batch.
func openIPCStream(ctx context.Context, f *os.File, size int64) (*arrowRows, error) {
	in := &counter{r: io.NewSectionReader(f, 0, size)}
	r, err := ipc.NewReader(in, ipc.WithAllocator(memory.NewGoAllocator()))
	if err != nil {
		return nil, malformed(err)
	}
	defer r.Release()
	schema := make([]byte, in.n)
	if _, err := f.ReadAt(schema, 0); err != nil {
		return nil, err
	}
	for _, field := range r.Schema().Fields() {
		if field.Type.ID() == arrow.DICTIONARY {
			return nil, fmt.Errorf("%w: column %s of a stream is a dictionary; write it as a file of Arrow or Parquet",
				vectors.ErrFormat, field.Name)
		}
	}
	a := &arrowRows{columns: r.Schema(), starts: []int64{0}}
	ends := []int64{in.n} // offsets of the ends of the schema and of each batch
	for r.Next() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		a.starts = append(a.starts, a.starts[len(a.starts)-1]+r.RecordBatch().NumRows())
		ends = append(ends, in.n)
	}
	if err := r.Err(); err != nil && !errors.Is(err, io.EOF) {
		return nil, malformed(err)
	}
	a.load = func(i int) (arrow.RecordBatch, error) {
		stream := io.MultiReader(bytes.NewReader(schema), io.NewSectionReader(f, ends[i], ends[i+1]-ends[i]))
		r, err := ipc.NewReader(stream, ipc.WithAllocator(memory.NewGoAllocator()))
		if err != nil {
			return nil, err
		}
		defer r.Release()
		if !r.Next() {
			return nil, fmt.Errorf("%w: batch %d is not where it was: %w", vectors.ErrChanged, i, errors.Join(r.Err()))
		}
		b := r.RecordBatch()
		b.Retain()
		return b, nil
	}
	return a, nil
}

func (a *arrowRows) schema() *arrow.Schema { return a.columns }

func (a *arrowRows) records(ctx context.Context, from int64, _ []int) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		first := sort.Search(len(a.starts)-1, func(i int) bool { return a.starts[i+1] > from })
		for i := first; i+1 < len(a.starts); i++ {
			err := ctx.Err()
			var b arrow.RecordBatch
			if err == nil {
				b, err = a.load(i)
				err = malformed(err)
			}
			if err != nil {
				yield(record{}, err)
				return
			}
			wantsMore := yield(record{a.starts[i], b}, nil)
			b.Release()
			if !wantsMore {
				return
			}
		}
	}
}
