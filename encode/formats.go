package encode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
)

// Format is how the texts of a file are written.
type Format string

// The formats.
const (
	FormatJSONL Format = "jsonl" // as for [JSONL]
	FormatCSV   Format = "csv"   // as for [CSV]
	FormatTSV   Format = "tsv"   // the same with tabs
	FormatLines Format = "lines" // as for [Lines]
)

// ErrSuffix: the name of a file of texts does not tell their format.
var ErrSuffix = errors.New("unknown suffix")

// Formats are all of them.
func Formats() []Format { return []Format{FormatJSONL, FormatCSV, FormatTSV, FormatLines} }

// FormatOf is the format of a file by its name, without .gz: tables end in .csv
// and .tsv, lines in .txt, JSON lines in .jsonl, .ndjson, .json or nothing; "" for a
// name that ends otherwise.
func FormatOf(name string) Format {
	switch strings.ToLower(filepath.Ext(strings.TrimSuffix(name, ".gz"))) {
	case ".csv":
		return FormatCSV
	case ".tsv":
		return FormatTSV
	case ".txt":
		return FormatLines
	case ".jsonl", ".ndjson", ".json", "":
		return FormatJSONL
	}
	return ""
}

func parserOf(f Format) parser {
	switch f {
	case FormatCSV:
		return parseTable(',')
	case FormatTSV:
		return parseTable('\t')
	case FormatLines:
		return parseLines
	}
	return parseJSONL
}

// Texts reads a folder as [Folder] does, or a file in a format, "": that of
// [FormatOf], which must know it ([ErrSuffix]). A sequence over a regular file or a folder can be gone through again.
func Texts(ctx context.Context, name string, f Format) iter.Seq2[Text, error] {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return Folder(ctx, name)
	}
	if f == "" {
		if f = FormatOf(name); f == "" {
			return func(yield func(Text, error) bool) {
				yield(Text{}, fmt.Errorf("%s: %w: %q is none of .jsonl, .ndjson, .json, .csv, .tsv and .txt", name, ErrSuffix, filepath.Ext(name)))
			}
		}
	}
	return parserOf(f).file(ctx, name)
}

// ReadTexts reads texts in a format, "": [FormatJSONL], from what can be read once.
// The name is for errors.
func ReadTexts(ctx context.Context, r io.Reader, name string, f Format) iter.Seq2[Text, error] {
	return parserOf(f).stream(ctx, r, name)
}
