// Package sqlite reads the metadata of documents of fast-plaid and next-plaid, in the SQLite file
// metadata.db of an index folder. After [Register] plaid import imports it.
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

// Register makes package interop, and so every import, read these files. Call it once, when the program
// starts.
func Register() { interop.RegisterPayloads(Open) }

// The engines have one table, or, since next-plaid 1.8, one of small columns and one of the other columns,
// joined by contentColumn.
const (
	metadataTable = "METADATA"
	contentTable  = "METADATA_CONTENT"
	subsetColumn  = "_subset_"
	contentColumn = "_content_id_"
)

// maxValue is the maximum size of a value in bytes. Tests change it.
var maxValue = 64 << 20

const (
	// maxName is the maximum length of the name of a column, which each document repeats.
	maxName = 1024
	// minRow is a lower bound of the size of a row in a file, in bytes.
	minRow = 4
)

// database is an open file.
type database struct {
	name        string
	db          *sql.DB
	conn        *sql.Conn
	copyDir     string // temporary folder of a copy. "" means that the original file is open
	get         *sql.Stmt
	columns     []column
	rows        []int64 // rowid of each document, or noRow
	remaining   int64   // bytes of values that Get may still return, see countBytes
	warnedBytes bool    // Get has warned about a value that is not text
	warn        func(string)
}

// column is a column that becomes a member of the payload.
type column struct {
	name string
	blob bool // its declared type is BLOB
}

// noRow is a rowid that these engines do not assign.
const noRow = math.MinInt64

// Open implements [interop.PayloadReader]. Pending changes next to the file, in metadata.db-wal or
// metadata.db-journal, are applied to a copy in the folder for temporary files.
func Open(ctx context.Context, path string, docs int, warn func(string)) (_ interop.PayloadSource, err error) {
	d := &database{name: filepath.Base(path), warn: warn, rows: make([]int64, docs)}
	for i := range d.rows {
		d.rows[i] = noRow
	}
	defer func() {
		if err != nil {
			err = errors.Join(d.toImportError(ctx, err), d.Close())
		}
	}()
	if err := d.open(ctx, path); err != nil {
		return nil, err
	}
	meta, err := d.describeTable(ctx, metadataTable)
	if err != nil {
		return nil, err
	}
	if meta == nil { // no document has metadata
		return d, nil
	}
	if err := d.prepare(ctx, meta); err != nil {
		return nil, err
	}
	if err := d.findRows(ctx, meta); err != nil {
		return nil, err
	}
	return d, nil
}

// open opens the file, or a copy if there are pending changes.
func (d *database) open(ctx context.Context, path string) error {
	options := url.Values{"mode": {"ro"}, "immutable": {"1"}, "_pragma": {"trusted_schema(0)", "cell_size_check(1)"}}
	// Copy files of pending changes: SQLite applies them by writing, and an import must not change the
	// original folder.
	size := int64(0)
	for _, suffix := range []string{"", "-wal", "-journal"} {
		info, err := os.Stat(path + suffix)
		if err != nil {
			if suffix == "" {
				return err
			}
			continue
		}
		if size += info.Size(); suffix == "" || info.Size() == 0 {
			continue
		}
		if d.copyDir == "" {
			if d.copyDir, err = os.MkdirTemp("", "plaid-metadata-"); err != nil {
				return err
			}
			options = url.Values{"mode": {"rw"}, "_pragma": options["_pragma"]}
		}
		if err := copyFile(ctx, path+suffix, filepath.Join(d.copyDir, d.name+suffix)); err != nil {
			return err
		}
	}
	d.remaining = 2 * size
	if d.copyDir != "" {
		if err := copyFile(ctx, path, filepath.Join(d.copyDir, d.name)); err != nil {
			return err
		}
		path = filepath.Join(d.copyDir, d.name)
	}
	// Open the database.
	name, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if name = filepath.ToSlash(name); !strings.HasPrefix(name, "/") {
		name = "/" + name // a drive of Windows
	}
	source := url.URL{Scheme: "file", Path: name, RawQuery: options.Encode()}
	if d.db, err = sql.Open("sqlite", source.String()); err != nil {
		return err
	}
	if d.conn, err = d.db.Conn(ctx); err != nil {
		return err
	}
	_, err = sqlite.Limit(d.conn, sqlite3.SQLITE_LIMIT_LENGTH, maxValue)
	return err
}

// copyFile copies a file to a new one.
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

// prepare prepares the statement that reads the row of a document.
func (d *database) prepare(ctx context.Context, meta *table) (err error) {
	selected, from := []string{"0", "0"}, metadataTable+" m"
	add := func(alias string, t *table) {
		for _, c := range t.columns {
			if c.name != subsetColumn && c.name != contentColumn {
				d.columns = append(d.columns, c)
				// A plus sign does not change the value, and hides its declared type from the driver.
				selected = append(selected, "+"+alias+`."`+strings.ReplaceAll(c.name, `"`, `""`)+`"`)
			}
		}
	}
	add("m", meta)
	if meta.hasColumn(contentColumn) {
		content, err := d.describeTable(ctx, contentTable)
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
	query := "SELECT " + strings.Join(selected, ", ") + " FROM " + from + " WHERE m." + meta.rowid + " = ?"
	d.get, err = d.conn.PrepareContext(ctx, query)
	return err
}

// table is a table with rowids.
type table struct {
	columns []column
	key     string // the only column of the primary key, or ""
	rowid   string // a name of the rowid
}

// hasColumn reports whether the table has a column.
func (t *table) hasColumn(name string) bool {
	return slices.ContainsFunc(t.columns, func(c column) bool { return strings.EqualFold(c.name, name) })
}

// describeTable returns the description of a table, or nil if none has that name.
func (d *database) describeTable(ctx context.Context, name string) (*table, error) {
	rows, err := d.conn.QueryContext(ctx, `SELECT
			t.type = 'table' AND NOT t.wr, c.name, c.type LIKE 'BLOB%', c.pk > 0 AND sum(c.pk > 0) OVER () = 1
		FROM pragma_table_list t, pragma_table_info(t.name) c
		WHERE t.schema = 'main' AND t.name = ? COLLATE NOCASE ORDER BY c.cid`, name)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	t := &table{}
	for rows.Next() {
		var c column
		var hasRowids, isKey bool
		if err := rows.Scan(&hasRowids, &c.name, &c.blob, &isKey); err != nil {
			return nil, err
		}
		if !hasRowids {
			return nil, d.broken("table %s is not one with rowids", name)
		}
		if len(c.name) > maxName || !utf8.ValidString(c.name) {
			return nil, d.broken("table %s has a column whose name has %d bytes or is not valid UTF-8",
				name, len(c.name))
		}
		if t.columns = append(t.columns, c); isKey {
			t.key = c.name
		}
	}
	if err := rows.Err(); err != nil || len(t.columns) == 0 {
		return nil, err
	}
	names := []string{"rowid", "_rowid_", "oid"} // columns may have some of these names
	i := slices.IndexFunc(names, func(n string) bool { return !t.hasColumn(n) })
	if i < 0 {
		return nil, d.broken("columns of table %s have all names of the rowid", name)
	}
	t.rowid = names[i]
	return t, nil
}

// findRows finds the row of each document.
func (d *database) findRows(ctx context.Context, meta *table) (err error) {
	if !meta.hasColumn(subsetColumn) {
		return d.broken("table %s has no column %s", metadataTable, subsetColumn)
	}
	rows, err := d.conn.QueryContext(ctx, "SELECT "+meta.rowid+", +"+subsetColumn+" FROM "+metadataTable)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	outside, known := 0, 0 // rows of unknown documents, and of others
	// remaining is still twice the size of the file.
	for maxRows := d.remaining / 2 / minRow; rows.Next(); maxRows-- {
		if maxRows < 0 { // a damaged table may have loops
			return d.broken("table %s has more rows than fit into the file", metadataTable)
		}
		var id int64
		var subset any
		if err := rows.Scan(&id, &subset); err != nil {
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
			known++
		}
	}
	if outside > 0 {
		d.warn(fmt.Sprintf("%s has %d rows of documents that are not there", d.name, outside))
	}
	if known < len(d.rows) {
		d.warn(fmt.Sprintf("%s has rows for %d of %d documents", d.name, known, len(d.rows)))
	}
	return rows.Err()
}

// Get implements [interop.PayloadSource]. It omits values that are NULL, and encodes bytes in base64.
func (d *database) Get(ctx context.Context, doc int) ([]byte, error) {
	if d.rows[doc] == noRow {
		return nil, nil
	}
	out, err := d.object(ctx, d.rows[doc])
	return out, d.toImportError(ctx, err)
}

// object reads a row as a JSON object. It returns nil if all values are NULL.
func (d *database) object(ctx context.Context, rowid int64) ([]byte, error) {
	values := make([]any, 2+len(d.columns)) // after the keys of the row in both tables
	pointers := make([]any, len(values))
	for i := range values {
		pointers[i] = &values[i]
	}
	err := d.get.QueryRowContext(ctx, rowid).Scan(pointers...)
	if errors.Is(err, sql.ErrNoRows) { // a damaged table may not find a row that it lists
		return nil, d.broken("%s has no row %d", contentTable, rowid)
	} else if err != nil {
		return nil, err
	}
	if contentKey, foundKey := values[0], values[1]; contentKey == nil || foundKey == nil {
		return nil, d.broken("%s has no row %v", contentTable, contentKey)
	}
	out := []byte{'{'}
	for i, c := range d.columns {
		v := values[2+i]
		if v == nil {
			continue
		}
		text, err := d.valueJSON(c, v)
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

// valueJSON returns a value as JSON.
func (d *database) valueJSON(c column, v any) ([]byte, error) {
	switch v := v.(type) {
	case int64:
		return strconv.AppendInt(nil, v, 10), nil
	case float64:
		if math.IsInf(v, 0) {
			return nil, fmt.Errorf("%w: %s: column %s is %v, which JSON has no number for",
				interop.ErrUnsupported, d.name, c.name, v)
		}
		return json.Marshal(v)
	case []byte:
		if !d.warnedBytes {
			d.warnedBytes = true
			d.warn(fmt.Sprintf("%s has bytes in column %s: base64 in the metadata", d.name, c.name))
		}
		return quoted(base64.StdEncoding.EncodeToString(v)), d.countBytes(len(v))
	case string:
		err := d.countBytes(len(v))
		switch {
		case err == nil && !utf8.ValidString(v):
			err = d.broken("column %s is not valid UTF-8", c.name)
		case c.blob && isNested(v): // next-plaid writes lists and objects as text in BLOB columns
			return []byte(v), err
		}
		return quoted(v), err
	}
	return nil, d.broken("column %s has a %T", c.name, v)
}

// countBytes subtracts the bytes of a value from those that the file can have. Documents of a damaged file may
// share values, so that their total would be unlimited.
func (d *database) countBytes(n int) error {
	if d.remaining -= int64(n); d.remaining < 0 {
		return d.broken("documents have more bytes than the file")
	}
	return nil
}

// isNested reports whether a text is a JSON list or object.
func isNested(text string) bool {
	return text != "" && (text[0] == '[' || text[0] == '{') && jsontext.Check([]byte(text), jsontext.Options{}) == nil
}

// quoted returns a string as JSON.
func quoted(s string) []byte {
	text, _ := jsontext.MarshalUnescaped(s) // a string never fails
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
	if d.copyDir != "" {
		err = errors.Join(err, os.RemoveAll(d.copyDir))
	}
	return err
}

// broken returns [interop.ErrBroken] with a reason.
func (d *database) broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s: %w", interop.ErrBroken, d.name, fmt.Errorf(format, args...))
}

// systemErrors are the error codes of SQLite that do not mean a damaged file.
var systemErrors = []int{
	sqlite3.SQLITE_IOERR,
	sqlite3.SQLITE_FULL,
	sqlite3.SQLITE_CANTOPEN,
	sqlite3.SQLITE_NOMEM,
	sqlite3.SQLITE_PERM,
}

// toImportError converts an error of SQLite into [interop.ErrBroken], except errors of the system and of ctx.
func (d *database) toImportError(ctx context.Context, err error) error {
	var sqliteErr *sqlite.Error
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case !errors.As(err, &sqliteErr):
		return err
	case sqliteErr.Code() == sqlite3.SQLITE_IOERR_SHORT_READ: // the file ends before a page that it names
	case slices.Contains(systemErrors, sqliteErr.Code()&0xff): // the primary code
		return fmt.Errorf("%s: %w", d.name, err)
	}
	return d.broken("%w", err)
}
