package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index/interop"
)

// payloads returns those of all documents of a database, "" for one without, and its warnings.
func payloads(ctx context.Context, path string, docs int) (all, warnings []string, err error) {
	d, err := Open(ctx, path, docs, func(s string) { warnings = append(warnings, s) })
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	for doc := range docs {
		b, err := d.Get(ctx, doc)
		if err != nil {
			return nil, nil, err
		}
		if b != nil && !json.Valid(b) {
			return nil, nil, fmt.Errorf("no JSON: %s", b)
		}
		all = append(all, string(b))
	}
	return all, warnings, nil
}

// The files are what the programs themselves wrote, with what make.py of index/interop/testdata/real
// made up.
func TestFilesOfEngines(t *testing.T) {
	corpus, err := os.ReadFile("../../../docs/examples/quickstart/scifact-sample/corpus.jsonl")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(corpus)), "\n")
	for _, engine := range []string{interop.EngineFastPlaid, interop.EngineNextPlaid} {
		all, warnings, err := payloads(t.Context(), filepath.Join("testdata", engine+".db"), len(lines))
		require.NoError(t, err)
		require.Empty(t, warnings)
		for i, line := range lines {
			var from struct{ Title string }
			require.NoError(t, json.Unmarshal([]byte(line), &from))
			want := map[string]any{"name": from.Title, "weight": float64(i) / 4, "open": 0}
			if i%3 == 0 {
				want["open"] = 1
			}
			if i%2 == 0 {
				want["year"] = 1990 + i
			}
			if i%20 == 0 {
				want["note"] = strings.Repeat("long · ", 1500)
			}
			if i >= len(lines)-6 {
				want["added"] = -(1 << 40) - i
			}
			if engine == interop.EngineNextPlaid {
				want["tags"] = []any{"a", i, map[string]any{"deep": nil}}
			}
			text, err := json.Marshal(want)
			require.NoError(t, err)
			require.JSONEq(t, string(text), all[i])
		}
	}
}

// made writes a database.
func made(t testing.TB, statements ...string) string {
	path := filepath.Join(t.TempDir(), "metadata.db")
	write(t, path, statements...)
	return path
}

// write changes a database, and returns its open connection.
func write(t testing.TB, path string, statements ...string) *sql.DB {
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	for _, s := range statements {
		_, err := db.Exec(s)
		require.NoError(t, err, s)
	}
	return db
}

const (
	one   = `CREATE TABLE METADATA (_subset_ INTEGER PRIMARY KEY, a BLOB)`
	split = `CREATE TABLE METADATA (_subset_ INTEGER NOT NULL, _content_id_ INTEGER NOT NULL, small TEXT);
		CREATE TABLE METADATA_CONTENT (_content_id_ INTEGER PRIMARY KEY, a TEXT)`
)

// Layouts, kinds of values, and what is odd and no error.
func TestPayloads(t *testing.T) {
	for name, c := range map[string]struct {
		statements []string
		want       []string
		warnings   []string
	}{
		"by key":           {[]string{one, `INSERT INTO METADATA VALUES (1, 'y'), (0, 'x')`}, []string{`{"a":"x"}`, `{"a":"y"}`}, nil},
		"by column":        {[]string{`CREATE TABLE metadata (a, _subset_ INTEGER)`, `INSERT INTO METADATA VALUES ('y', 1), ('x', 0)`}, []string{`{"a":"x"}`, `{"a":"y"}`}, nil},
		"two tables":       {[]string{split, `INSERT INTO METADATA VALUES (1, 7, 's'), (0, 9, NULL); INSERT INTO METADATA_CONTENT VALUES (7, 'y'), (9, 'x')`}, []string{`{"a":"x"}`, `{"small":"s","a":"y"}`}, nil},
		"numbers":          {[]string{`CREATE TABLE METADATA (_subset_ INTEGER PRIMARY KEY, a DATE, b BOOLEAN, c REAL)`, `INSERT INTO METADATA VALUES (0, '2024-01-02', 1, 3), (1, -9223372036854775808, NULL, -1e300)`}, []string{`{"a":"2024-01-02","b":1,"c":3}`, `{"a":-9223372036854775808,"c":-1e+300}`}, nil},
		"names":            {[]string{`CREATE TABLE METADATA (_subset_ INTEGER, "d,(""" TEXT, città TEXT, rowid TEXT, oid BLOB)`, `INSERT INTO METADATA VALUES (1, 'é·', '', '2', '[1]')`}, []string{"", `{"d,(\"":"é·","città":"","rowid":"2","oid":[1]}`}, []string{"metadata.db has rows for 1 of 2 documents"}},
		"nested":           {[]string{one, `INSERT INTO METADATA VALUES (0, '{"x":[1]}'), (1, '[1')`}, []string{`{"a":{"x":[1]}}`, `{"a":"[1"}`}, nil},
		"bytes":            {[]string{one, `INSERT INTO METADATA VALUES (0, x'010203'), (1, x'')`}, []string{`{"a":"AQID"}`, `{"a":""}`}, []string{"metadata.db has bytes in column a: base64 in the metadata"}},
		"nothing":          {[]string{one, `INSERT INTO METADATA VALUES (0, NULL), (1, NULL)`}, []string{"", ""}, nil},
		"a later column":   {[]string{one, `INSERT INTO METADATA VALUES (0, 'x'), (1, 'y')`, `ALTER TABLE METADATA ADD COLUMN b DEFAULT 'd'`}, []string{`{"a":"x","b":"d"}`, `{"a":"y","b":"d"}`}, nil},
		"other documents":  {[]string{one, `INSERT INTO METADATA VALUES (1, 'x'), (5, 'y')`}, []string{"", `{"a":"x"}`}, []string{"metadata.db has 1 rows of documents that are not there", "metadata.db has rows for 1 of 2 documents"}},
		"UTF-16":           {[]string{`PRAGMA encoding = 'UTF-16'`, one, `INSERT INTO METADATA VALUES (0, 'é'), (1, 'y')`}, []string{`{"a":"é"}`, `{"a":"y"}`}, nil},
		"another table":    {[]string{`CREATE TABLE other (a)`}, []string{"", ""}, nil},
		"an odd file name": {[]string{one, `INSERT INTO METADATA VALUES (0, 'x'), (1, 'y')`}, []string{`{"a":"x"}`, `{"a":"y"}`}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			path := made(t, c.statements...)
			if name == "an odd file name" {
				path = filepath.Join(t.TempDir(), "50%25?# metadata.db")
				text, err := os.ReadFile(made(t, c.statements...))
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(path, text, 0o666))
			}
			all, warnings, err := payloads(t.Context(), path, 2)
			require.NoError(t, err)
			require.Equal(t, c.want, all)
			require.Equal(t, c.warnings, warnings)
		})
	}
}

// Each mistake is an error of a kind that names the file.
func TestMistakes(t *testing.T) {
	defer func(n int) { maxValue = n }(maxValue)
	maxValue = 300000
	for name, c := range map[string]struct {
		statements []string
		kind       error
		says       string
	}{
		"no documents":  {[]string{`CREATE TABLE METADATA (a)`}, interop.ErrBroken, "table METADATA has no column _subset_"},
		"no rowids":     {[]string{`CREATE TABLE METADATA (_subset_ INTEGER PRIMARY KEY) WITHOUT ROWID`}, interop.ErrBroken, "table METADATA is not one with rowids"},
		"a view":        {[]string{`CREATE VIEW METADATA AS SELECT 0 AS _subset_`}, interop.ErrBroken, "table METADATA is not one with rowids"},
		"a long name":   {[]string{`CREATE TABLE METADATA (_subset_ INTEGER, "` + strings.Repeat("n", maxName+1) + `")`}, interop.ErrBroken, "has 1025 bytes"},
		"rowids hidden": {[]string{`CREATE TABLE METADATA (_subset_ INTEGER, rowid, oid, _rowid_)`}, interop.ErrBroken, "all names of the rowid"},
		"two rows":      {[]string{`CREATE TABLE METADATA (_subset_ INTEGER)`, `INSERT INTO METADATA VALUES (0), (0)`}, interop.ErrBroken, "document 0 has two rows"},
		"a row of none": {[]string{`CREATE TABLE METADATA (_subset_ INTEGER)`, `INSERT INTO METADATA VALUES ('x')`}, interop.ErrBroken, "row 1 of METADATA says no document"},
		"no content":    {[]string{`CREATE TABLE METADATA (_subset_ INTEGER, _content_id_ INTEGER)`}, interop.ErrBroken, "METADATA_CONTENT is not there"},
		"no row there":  {[]string{split, `INSERT INTO METADATA VALUES (0, 7, 's')`}, interop.ErrBroken, "METADATA_CONTENT has no row 7"},
		"shared rows":   {[]string{split, `INSERT INTO METADATA VALUES (0, 7, ''), (1, 7, ''), (2, 7, '')`, `INSERT INTO METADATA_CONTENT VALUES (7, hex(zeroblob(50000)))`}, interop.ErrBroken, "more bytes than the file"},
		"not UTF-8":     {[]string{one, `INSERT INTO METADATA VALUES (0, CAST(x'ff' AS TEXT))`}, interop.ErrBroken, "column a is not valid UTF-8"},
		"not finite":    {[]string{one, `INSERT INTO METADATA VALUES (0, 9e999)`}, interop.ErrUnsupported, "column a is +Inf"},
		"a long value":  {[]string{one, `INSERT INTO METADATA VALUES (0, zeroblob(300001))`}, interop.ErrBroken, "too big"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := payloads(t.Context(), made(t, c.statements...), 3)
			require.ErrorIs(t, err, c.kind)
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, "metadata.db: ")
		})
	}
	good, err := os.ReadFile(made(t, one, `INSERT INTO METADATA VALUES (0, 'x'), (1, 'y')`))
	require.NoError(t, err)
	for name, text := range map[string]string{"other": strings.Repeat("no database ", 100), "short": "SQLite", "cut short": string(good[:5000])} {
		path := filepath.Join(t.TempDir(), "metadata.db")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
		_, _, err := payloads(t.Context(), path, 2)
		require.ErrorIs(t, err, interop.ErrBroken, name)
	}
	_, _, err = payloads(t.Context(), filepath.Join(t.TempDir(), "metadata.db"), 2)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Any byte may be wrong: reading ends, with payloads or an error of a kind.
func FuzzOpen(f *testing.F) {
	for _, statements := range []string{one + `; INSERT INTO METADATA VALUES (0, 'x'), (1, 'y')`, split + `; INSERT INTO METADATA VALUES (0, 7, 's'); INSERT INTO METADATA_CONTENT VALUES (7, hex(zeroblob(3000)))`} {
		text, err := os.ReadFile(made(f, `PRAGMA page_size = 512`, statements))
		require.NoError(f, err)
		f.Add(text)
		r := rand.New(rand.NewPCG(1, 2))
		for range 40 {
			flipped := append([]byte{}, text...)
			for range 1 + r.IntN(3) {
				flipped[r.IntN(len(flipped))] ^= byte(1 + r.IntN(255))
			}
			f.Add(flipped)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "metadata.db")
		require.NoError(t, os.WriteFile(path, text, 0o666))
		if _, _, err := payloads(t.Context(), path, 5); err != nil && !errors.Is(err, interop.ErrBroken) && !errors.Is(err, interop.ErrUnsupported) {
			t.Fatalf("error of no kind: %v", err)
		}
	})
}

// folder is what is in a folder.
func folder(t *testing.T, dir string) map[string]string {
	all := map[string]string{}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		all[e.Name()] = string(text)
	}
	return all
}

// What waits beside the file belongs to it, also while a program has it open or after it was killed,
// and nothing is written there. An unfinished transaction is undone.
func TestWaitingChanges(t *testing.T) {
	rows := `WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i+1 FROM n WHERE i < 2000) INSERT INTO METADATA SELECT i, hex(zeroblob(100)) FROM n`
	for mode, c := range map[string]struct {
		begin, change string
		beside        string
		want          []string
	}{
		"WAL":    {`PRAGMA journal_mode = WAL`, `UPDATE METADATA SET a = 'z' WHERE _subset_ = 1`, "-wal", []string{`{"a":"x"}`, `{"a":"z"}`}},
		"DELETE": {`PRAGMA cache_size = 10`, `BEGIN; UPDATE METADATA SET a = 'z' WHERE _subset_ = 1; ` + rows, "-journal", []string{`{"a":"x"}`, `{"a":"y"}`}},
	} {
		temporary := t.TempDir()
		t.Setenv("TMPDIR", temporary)
		t.Setenv("TMP", temporary)
		open := filepath.Join(t.TempDir(), "metadata.db")
		write(t, open, one, `INSERT INTO METADATA VALUES (0, 'x'), (1, 'y')`, c.begin, c.change)
		path := filepath.Join(t.TempDir(), "metadata.db") // as after kill -9
		for _, name := range []string{"", c.beside} {
			text, err := os.ReadFile(open + name)
			require.NoError(t, err)
			require.NotEmpty(t, text)
			require.NoError(t, os.WriteFile(path+name, text, 0o444))
		}
		before := folder(t, filepath.Dir(path))
		all, _, err := payloads(t.Context(), path, 2)
		require.NoError(t, err)
		require.Equal(t, c.want, all, mode)
		require.Equal(t, before, folder(t, filepath.Dir(path)))
		require.Empty(t, folder(t, temporary))
	}
}

func TestCancelled(t *testing.T) {
	path := made(t, one, `WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i < 50000) INSERT INTO METADATA SELECT i, 'x' FROM n`)
	ctx, cancel := context.WithCancel(t.Context())
	d, err := Open(ctx, path, 50001, func(string) {})
	require.NoError(t, err)
	defer d.Close()
	cancel()
	_, err = d.Get(ctx, 0)
	require.ErrorIs(t, err, context.Canceled)
	_, err = Open(ctx, path, 50001, func(string) {})
	require.ErrorIs(t, err, context.Canceled)
}
