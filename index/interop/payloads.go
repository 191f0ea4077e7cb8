package interop

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/internal/jsontext"
)

// What fast-plaid and next-plaid keep beside documents: one table, or since next-plaid 1.8
// one of small columns and one of the others, joined by contentColumn.
const (
	metadataFile  = "metadata.db"
	metadataTable = "METADATA"
	contentTable  = "METADATA_CONTENT"
	subsetColumn  = "_subset_"
	contentColumn = "_content_id_"
)

// Payloads is what the engine keeps beside documents. It is for one goroutine.
type Payloads struct {
	x       *Index
	file    *os.File
	db      *database
	meta    *table
	content *table // nil: all is in meta
	join    int    // column of meta
	at      []place
	rows    int
	left    int64 // bytes of rows that Get may read: each document has its own
	bytes   bool  // a value was no text
}

// Payloads opens what fast-plaid and next-plaid keep beside the documents, in metadata.db;
// nil if there is nothing. What is odd about it becomes a warning.
//
// Errors: [ErrBroken]; [ErrUnsupported] of a file that has changes beside it which were not
// written into it yet.
func (x *Index) Payloads(ctx context.Context) (p *Payloads, err error) {
	f := x.folder
	if !f.hasFile(metadataFile) {
		return nil, nil
	}
	fail := func(err error) error {
		return fmt.Errorf("index folder %s: %w; without %s the documents alone are taken over", x.Dir, err, metadataFile)
	}
	for _, beside := range []string{"-wal", "-journal"} {
		if info, err := os.Stat(filepath.Join(x.Dir, metadataFile+beside)); err == nil && info.Size() > 0 {
			return nil, fail(fmt.Errorf("%w: %s%s has changes that are not in %[2]s yet: end the program that writes there, or run sqlite3 %[4]s 'PRAGMA wal_checkpoint(TRUNCATE)'",
				ErrUnsupported, metadataFile, beside, filepath.Join(x.Dir, metadataFile)))
		}
	}
	file, size, err := f.openFile(metadataFile)
	if err != nil {
		return nil, fail(err)
	}
	if size == 0 { // a database without a table
		return nil, file.Close()
	}
	p = &Payloads{x: x, file: file, at: make([]place, len(x.DocLens))}
	if err := p.open(ctx, file, size); err != nil {
		file.Close()
		return nil, fail(err)
	}
	if p.meta == nil {
		return nil, file.Close()
	}
	return p, nil
}

func (p *Payloads) open(ctx context.Context, r io.ReaderAt, size int64) (err error) {
	if p.db, err = openDatabase(metadataFile, r, size); err != nil {
		return err
	}
	if p.meta, err = p.db.table(ctx, metadataTable); err != nil || p.meta == nil {
		return err
	}
	subset := p.meta.index(subsetColumn)
	if subset < 0 {
		return p.db.broken("table %s has no column %s", metadataTable, subsetColumn)
	}
	if p.join = p.meta.index(contentColumn); p.join >= 0 {
		if p.content, err = p.db.table(ctx, contentTable); err != nil {
			return err
		}
		if p.content == nil || p.content.rowid < 0 || p.content.columns[p.content.rowid].name != contentColumn {
			return p.db.broken("table %s is not there by %s", contentTable, contentColumn)
		}
	}
	outside := 0
	p.left = 2 * size
	err = p.db.scan(ctx, p.meta.root, func(at place, r row) error {
		doc := r.id
		if p.meta.rowid != subset {
			v, err := r.values()
			if err != nil {
				return err
			}
			if subset >= len(v) || v[subset].kind != sqliteInteger {
				return p.db.broken("row %d of %s says no document", r.id, metadataTable)
			}
			doc = v[subset].integer
		}
		switch {
		case doc < 0 || doc >= int64(len(p.at)):
			outside++
		case p.at[doc].page != 0:
			return p.db.broken("document %d has two rows", doc)
		default:
			p.at[doc] = at
			p.rows++
		}
		return nil
	})
	if outside > 0 {
		p.x.warnf("%s has %d rows of documents that are not there", metadataFile, outside)
	}
	if p.rows < len(p.at) {
		p.x.warnf("%s has rows for %d of %d documents", metadataFile, p.rows, len(p.at))
	}
	return err
}

func (t *table) index(name string) int {
	for i, c := range t.columns {
		if c.name == name {
			return i
		}
	}
	return -1
}

// values are those of a row, of which a document has its own.
func (p *Payloads) values(r row) ([]value, error) {
	if p.left -= r.length; p.left < 0 {
		return nil, p.db.broken("documents share rows")
	}
	return r.values()
}

// Get is what is kept beside a document, as a JSON object; nil if nothing is. Values that
// are NULL are left out, and bytes are base64. Each document may be asked for once.
func (p *Payloads) Get(doc int) ([]byte, error) {
	at := p.at[doc]
	if at.page == 0 {
		return nil, nil
	}
	out, err := p.object(at)
	if err != nil {
		return nil, fmt.Errorf("index folder %s: document %d: %w", p.x.Dir, doc, err)
	}
	return out, nil
}

func (p *Payloads) object(at place) ([]byte, error) {
	n, err := p.db.node(at.page)
	if err != nil {
		return nil, err
	}
	r, err := n.row(int(at.cell))
	if err != nil {
		return nil, err
	}
	v, err := p.values(r)
	if err != nil {
		return nil, err
	}
	out, err := p.members([]byte{'{'}, p.meta, v)
	if err != nil || p.content == nil {
		return finished(out), err
	}
	if p.join >= len(v) || v[p.join].kind != sqliteInteger {
		return nil, p.db.broken("%s is no number", contentColumn)
	}
	id := v[p.join].integer
	r, ok, err := p.db.find(p.content.root, id)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, p.db.broken("%s has no row %d", contentTable, id)
	}
	if v, err = p.values(r); err != nil {
		return nil, err
	}
	out, err = p.members(out, p.content, v)
	return finished(out), err
}

func finished(object []byte) []byte {
	if len(object) <= 1 {
		return nil
	}
	return append(object, '}')
}

// members appends the values of a row.
func (p *Payloads) members(out []byte, t *table, row []value) ([]byte, error) {
	for i, c := range t.columns {
		if i >= len(row) || row[i].kind == sqliteNull || c.name == subsetColumn || c.name == contentColumn {
			continue
		}
		var text []byte
		var err error
		switch v := row[i]; v.kind {
		case sqliteInteger:
			text = strconv.AppendInt(nil, v.integer, 10)
		case sqliteFloat:
			if math.IsInf(v.float, 0) || math.IsNaN(v.float) {
				return nil, fmt.Errorf("%w: %s: column %s is %v, which JSON has no number for", ErrUnsupported, p.db.name, c.name, v.float)
			}
			text, err = json.Marshal(v.float)
		case sqliteBlob:
			if !p.bytes {
				p.bytes = true
				p.x.warnf("%s has bytes in column %s: base64 in the payload", p.db.name, c.name)
			}
			text = quoted(base64.StdEncoding.EncodeToString(v.bytes))
		case sqliteText:
			switch {
			case !utf8.Valid(v.bytes):
				return nil, p.db.broken("column %s is not valid UTF-8", c.name)
			case c.blob && isNested(v.bytes): // next-plaid writes lists and objects so
				text = v.bytes
			default:
				text = quoted(string(v.bytes))
			}
		}
		if err != nil {
			return nil, err
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, quoted(c.name)...), ':'), text...)
	}
	return out, nil
}

// isNested tells whether a text is a JSON list or object.
func isNested(text []byte) bool {
	return len(text) > 0 && (text[0] == '[' || text[0] == '{') && jsontext.Check(text, jsontext.Options{Numbers: true}) == nil
}

func quoted(s string) []byte {
	text, _ := jsontext.Plain(s) // a string
	return text
}

// Len is how many documents have a row.
func (p *Payloads) Len() int { return p.rows }

// Close closes the file.
func (p *Payloads) Close() error { return p.file.Close() }
