package formats

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/plaid-ir/plaid/vectors"
)

// parquetRows is the rows of a Parquet file.
type parquetRows struct {
	f       *os.File
	columns *arrow.Schema
	batch   int64   // rows of a record
	ends    []int64 // the row after each row group
}

// recordBytes is the approximate size of a record in memory.
const recordBytes = 32 << 20

// openParquet reads the metadata of a Parquet file, and selects the number of rows of a record.
func openParquet(_ context.Context, f *os.File) (*parquetRows, error) {
	p := &parquetRows{f: f}
	r, err := p.reader()
	if err != nil {
		return nil, err
	}
	p.columns, err = r.Schema()
	if err != nil {
		return nil, malformed(err)
	}
	meta := r.ParquetReader().MetaData()
	var bytes, rows int64
	for _, g := range meta.RowGroups {
		bytes += max(g.GetTotalByteSize(), 0)
		rows += g.GetNumRows()
		p.ends = append(p.ends, rows)
	}
	rowBytes := max(bytes/max(meta.GetNumRows(), 1), 1)
	p.batch = max(min(recordBytes/rowBytes, 1024), 1)
	return p, nil
}

// reader returns a new reader of the file, which is for one pass.
func (p *parquetRows) reader() (*pqarrow.FileReader, error) {
	info, err := p.f.Stat()
	if err != nil {
		return nil, err
	}
	r, err := file.NewParquetReader(io.NewSectionReader(p.f, 0, info.Size()))
	if err != nil {
		return nil, malformed(err)
	}
	if err := checkStoredSchema(r.MetaData().KeyValueMetadata()); err != nil {
		return nil, err
	}
	fr, err := pqarrow.NewFileReader(r, pqarrow.ArrowReadProperties{BatchSize: p.batch}, memory.NewGoAllocator())
	return fr, malformed(err)
}

// checkStoredSchema checks the Arrow schema that a Parquet file may have in its metadata.
func checkStoredSchema(pairs metadata.KeyValueMetadata) error {
	value := pairs.FindValue("ARROW:schema")
	if value == nil {
		return nil
	}
	b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(*value, "="))
	if err != nil {
		return fmt.Errorf("%w: the stored schema of Arrow: %w", vectors.ErrFormat, err)
	}
	const isStream = true
	return checkArrow(context.Background(), bytes.NewReader(b), int64(len(b)), isStream)
}

func (p *parquetRows) schema() *arrow.Schema { return p.columns }

func (p *parquetRows) records(ctx context.Context, from int64, selected []int) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		r, err := p.reader()
		if err != nil {
			yield(record{}, err)
			return
		}
		// The columns to read.
		var leaves []int
		for i := range r.Manifest.Fields {
			if selected == nil || slices.Contains(selected, i) {
				leaves = appendLeaves(leaves, &r.Manifest.Fields[i])
			}
		}
		// The row groups to read, from the one of the row on: a reader that seeks within a row group
		// fails on lists (number of decoded rep/def levels did not match).
		// A group that ends at the row does not have it, hence from+1.
		endsBefore := func(end, from int64) int { return cmp.Compare(end, from+1) }
		group, _ := slices.BinarySearchFunc(p.ends, from, endsBefore)
		first, groups := int64(0), []int{}
		if group > 0 {
			first = p.ends[group-1]
		}
		for i := group; i < len(p.ends); i++ {
			groups = append(groups, i)
		}
		if len(groups) == 0 {
			return
		}
		// Read record by record.
		rr, err := r.GetRecordReader(ctx, leaves, groups)
		if err != nil {
			yield(record{}, malformed(err))
			return
		}
		defer rr.Release()
		for {
			batch, err := rr.Read()
			if errors.Is(err, io.EOF) || err == nil && batch == nil {
				return
			}
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(record{}, malformed(err))
				return
			}
			if !yield(record{first, batch}, nil) {
				return
			}
			first += batch.NumRows()
		}
	}
}

// appendLeaves appends the columns of the file that store a field.
func appendLeaves(leaves []int, f *pqarrow.SchemaField) []int {
	if f.IsLeaf() {
		leaves = append(leaves, f.ColIndex)
	}
	for i := range f.Children {
		leaves = appendLeaves(leaves, &f.Children[i])
	}
	return leaves
}
