// Package sqlite reads what fast-plaid and next-plaid keep beside documents, in the SQLite file
// metadata.db of an index folder. [Register] lets plaid import take it along.
package sqlite

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/plaid-ir/plaid/index/interop"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/jsontext"
)

// Register lets package interop, and so every import, read these files. It is called once, when a
// program begins.
func Register() { interop.RegisterPayloads(Open) }

// The engines keep one table, or since next-plaid 1.8 one of small columns and one of the others,
// joined by contentColumn.
const (
	metadataTable = "METADATA"
	contentTable  = "METADATA_CONTENT"
	subsetColumn  = "_subset_"
	contentColumn = "_content_id_"
)

// maxValue bounds the bytes of a value. Tests change it.
var maxValue = 64 << 20

const (
	// maxName bounds the name of a column, which each document repeats.
	maxName = 1024
	// minRow is less than any row takes in a file.
	minRow = 4
)

// database is an open file.
type database struct {
	name    string
	db      *sql.DB
	conn    *sql.Conn
	copied  string // folder to remove; "": the file itself is open
	get     *sql.Stmt
	columns []column
	rows    []int64 // rowid of each document; noRow: it has none
	left    int64   // bytes of values that Get may still return: each document has its own
	bytes   bool    // a value was no text
	warn    func(string)
}

// column is one that becomes a member of a payload.
type column struct {
	name string
	blob bool // declared so
}

// noRow is a rowid that these engines do not give.
const noRow = math.MinInt64

// Open implements [interop.PayloadReader]. Changes that wait beside the file, in metadata.db-wal or
// metadata.db-journal, are applied to a copy in the folder for temporary files.
func Open(ctx context.Context, path string, docs int, warn func(string)) (_ interop.PayloadSource, err error) {
	d := &database{name: filepath.Base(path), warn: warn, rows: make([]int64, docs)}
	for i := range d.rows {
		d.rows[i] = noRow
	}
	defer func() {
		if err != nil {
			err = errors.Join(d.fault(ctx, err), d.Close())
		}
	}()
	if err := d.open(ctx, path); err != nil {
		return nil, err
	}
	meta, err := d.table(ctx, metadataTable)
	if err != nil {
		return nil, err
	}
	if meta == nil { // no document has anything
		return d, nil
	}
	if err := d.prepare(ctx, meta); err != nil {
		return nil, err
	}
	if err := d.find(ctx, meta); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *database) open(ctx context.Context, path string) error {
	options := url.Values{"mode": {"ro"}, "immutable": {"1"}, "_pragma": {"trusted_schema(0)", "cell_size_check(1)"}}
	size := int64(0)
	for _, beside := range []string{"", "-wal", "-journal"} {
		info, err := os.Stat(path + beside)
		if err != nil {
			if beside == "" {
				return err
			}
			continue
		}
		if size += info.Size(); beside == "" || info.Size() == 0 {
			continue
		}
		// SQLite applies changes by writing, and the folder is not ours.
		if d.copied == "" {
			if d.copied, err = os.MkdirTemp("", "plaid-metadata-"); err != nil {
				return err
			}
			options = url.Values{"mode": {"rw"}, "_pragma": options["_pragma"]}
		}
		if err := copyFile(ctx, path+beside, filepath.Join(d.copied, d.name+beside)); err != nil {
			return err
		}
	}
	d.left = 2 * size
	if d.copied != "" {
		if err := copyFile(ctx, path, filepath.Join(d.copied, d.name)); err != nil {
			return err
		}
		path = filepath.Join(d.copied, d.name)
	}
	name, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if name = filepath.ToSlash(name); !strings.HasPrefix(name, "/") {
		name = "/" + name // of Windows
	}
	if d.db, err = sql.Open("sqlite", (&url.URL{Scheme: "file", Path: name, RawQuery: options.Encode()}).String()); err != nil {
		return err
	}
	if d.conn, err = d.db.Conn(ctx); err != nil {
		return err
	}
	_, err = sqlite.Limit(d.conn, sqlite3.SQLITE_LIMIT_LENGTH, maxValue)
	return err
}

func copyFile(ctx context.Context, from, to string) error {
	return files.Read(ctx, from, func(r io.Reader) error {
		f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Close())
	})
}

// prepare prepares what reads the row of a document.
func (d *database) prepare(ctx context.Context, meta *table) (err error) {
	selected, from := []string{"0", "0"}, metadataTable+" m"
	add := func(alias string, t *table) {
		for _, c := range t.columns {
			if c.name != subsetColumn && c.name != contentColumn {
				d.columns = append(d.columns, c)
				// The sign leaves a value as it is, and hides its declared type from the driver.
				selected = append(selected, "+"+alias+`."`+strings.ReplaceAll(c.name, `"`, `""`)+`"`)
			}
		}
	}
	add("m", meta)
	if meta.has(contentColumn) {
		content, err := d.table(ctx, contentTable)
		if err != nil {
			return err
		}
		if content == nil || content.key != contentColumn {
			return d.broken("table %s is not there by %s", contentTable, contentColumn)
		}
		from += " LEFT JOIN " + contentTable + " c USING (" + contentColumn + ")"
		selected[0], selected[1] = "m."+contentColumn, "c."+contentColumn
		add("c", content)
	}
	d.get, err = d.conn.PrepareContext(ctx, "SELECT "+strings.Join(selected, ", ")+" FROM "+from+" WHERE m."+meta.rowid+" = ?")
	return err
}

// table is one with rowids.
type table struct {
	columns []column
	key     string // the column that is the key alone; "": none is
	rowid   string // a name of the rowid
}

func (t *table) has(name string) bool {
	return slices.ContainsFunc(t.columns, func(c column) bool { return strings.EqualFold(c.name, name) })
}

// table describes a table; nil if there is none of that name.
func (d *database) table(ctx context.Context, name string) (*table, error) {
	found, err := d.conn.QueryContext(ctx, `SELECT t.type = 'table' AND NOT t.wr, c.name, c.type LIKE 'BLOB%', c.pk > 0 AND sum(c.pk > 0) OVER () = 1
		FROM pragma_table_list t, pragma_table_info(t.name) c
		WHERE t.schema = 'main' AND t.name = ? COLLATE NOCASE ORDER BY c.cid`, name)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	t := &table{}
	for found.Next() {
		var c column
		var rows, key bool
		if err := found.Scan(&rows, &c.name, &c.blob, &key); err != nil {
			return nil, err
		}
		if !rows {
			return nil, d.broken("table %s is not one with rowids", name)
		}
		if len(c.name) > maxName || !utf8.ValidString(c.name) {
			return nil, d.broken("table %s has a column whose name has %d bytes or is not valid UTF-8", name, len(c.name))
		}
		if t.columns = append(t.columns, c); key {
			t.key = c.name
		}
	}
	if err := found.Err(); err != nil || len(t.columns) == 0 {
		return nil, err
	}
	names := []string{"rowid", "_rowid_", "oid"} // columns may have taken some
	i := slices.IndexFunc(names, func(n string) bool { return !t.has(n) })
	if i < 0 {
		return nil, d.broken("columns of table %s have all names of the rowid", name)
	}
	t.rowid = names[i]
	return t, nil
}

// find finds the row of each document.
func (d *database) find(ctx context.Context, meta *table) (err error) {
	if !meta.has(subsetColumn) {
		return d.broken("table %s has no column %s", metadataTable, subsetColumn)
	}
	found, err := d.conn.QueryContext(ctx, "SELECT "+meta.rowid+", +"+subsetColumn+" FROM "+metadataTable)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, found.Close()) }()
	outside, have := 0, 0
	for most := d.left / 2 / minRow; found.Next(); most-- {
		if most < 0 {
			return d.broken("table %s has more rows than fit into the file", metadataTable)
		}
		var id int64
		var subset any
		if err := found.Scan(&id, &subset); err != nil {
			return err
		}
		switch doc, ok := subset.(int64); {
		case !ok:
			return d.broken("row %d of %s says no document", id, metadataTable)
		case doc < 0 || doc >= int64(len(d.rows)):
			outside++
		case d.rows[doc] != noRow:
			return d.broken("document %d has two rows", doc)
		default:
			d.rows[doc] = id
			have++
		}
	}
	if outside > 0 {
		d.warn(fmt.Sprintf("%s has %d rows of documents that are not there", d.name, outside))
	}
	if have < len(d.rows) {
		d.warn(fmt.Sprintf("%s has rows for %d of %d documents", d.name, have, len(d.rows)))
	}
	return found.Err()
}

// Get implements [interop.PayloadSource]. Values that are NULL are left out, and bytes are base64.
func (d *database) Get(ctx context.Context, doc int) ([]byte, error) {
	if d.rows[doc] == noRow {
		return nil, nil
	}
	out, err := d.object(ctx, d.rows[doc])
	return out, d.fault(ctx, err)
}

func (d *database) object(ctx context.Context, rowid int64) ([]byte, error) {
	values := make([]any, 2+len(d.columns))
	into := make([]any, len(values))
	for i := range values {
		into[i] = &values[i]
	}
	err := d.get.QueryRowContext(ctx, rowid).Scan(into...)
	if errors.Is(err, sql.ErrNoRows) { // which a damaged table says of a row that it listed
		return nil, d.broken("%s has no row %d", contentTable, rowid)
	} else if err != nil {
		return nil, err
	}
	if want, has := values[0], values[1]; want == nil || has == nil {
		return nil, d.broken("%s has no row %v", contentTable, want)
	}
	out := []byte{'{'}
	for i, c := range d.columns {
		v := values[2+i]
		if v == nil {
			continue
		}
		text, err := d.value(c, v)
		if err != nil {
			return nil, err
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, quoted(c.name)...), ':'), text...)
	}
	if len(out) == 1 {
		return nil, nil
	}
	return append(out, '}'), nil
}

// value is a value as JSON.
func (d *database) value(c column, v any) ([]byte, error) {
	switch v := v.(type) {
	case int64:
		return strconv.AppendInt(nil, v, 10), nil
	case float64:
		if math.IsInf(v, 0) {
			return nil, fmt.Errorf("%w: %s: column %s is %v, which JSON has no number for", interop.ErrUnsupported, d.name, c.name, v)
		}
		return json.Marshal(v)
	case []byte:
		if !d.bytes {
			d.bytes = true
			d.warn(fmt.Sprintf("%s has bytes in column %s: base64 in the metadata", d.name, c.name))
		}
		return quoted(base64.StdEncoding.EncodeToString(v)), d.take(len(v))
	case string:
		err := d.take(len(v))
		switch {
		case err == nil && !utf8.ValidString(v):
			err = d.broken("column %s is not valid UTF-8", c.name)
		case c.blob && isNested(v): // next-plaid writes lists and objects so
			return []byte(v), err
		}
		return quoted(v), err
	}
	return nil, d.broken("column %s has a %T", c.name, v)
}

// take counts bytes of values: a file that looks as if documents shared them is refused.
func (d *database) take(n int) error {
	if d.left -= int64(n); d.left < 0 {
		return d.broken("documents have more bytes than the file")
	}
	return nil
}

// isNested reports whether a text is a JSON list or object.
func isNested(text string) bool {
	return text != "" && (text[0] == '[' || text[0] == '{') && jsontext.Check([]byte(text), jsontext.Options{}) == nil
}

func quoted(s string) []byte {
	text, _ := jsontext.Plain(s) // which fails for no string
	return text
}

// Close closes the file, and removes its copy.
func (d *database) Close() (err error) {
	if d.get != nil {
		err = d.get.Close()
	}
	if d.conn != nil {
		err = errors.Join(err, d.conn.Close())
	}
	if d.db != nil {
		err = errors.Join(err, d.db.Close())
	}
	if d.copied != "" {
		err = errors.Join(err, os.RemoveAll(d.copied))
	}
	return err
}

func (d *database) broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s: %w", interop.ErrBroken, d.name, fmt.Errorf(format, args...))
}

// fault says of an error of SQLite what it is for an import.
func (d *database) fault(ctx context.Context, err error) error {
	var of *sqlite.Error
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case !errors.As(err, &of):
		return err
	case of.Code() == sqlite3.SQLITE_IOERR_SHORT_READ: // the file ends before a page that it names
	case slices.Contains([]int{sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PERM}, of.Code()&0xff):
		return fmt.Errorf("%s: %w", d.name, err)
	}
	return d.broken("%w", err)
}
