package interop

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// withDocuments is an index of n documents in a folder, which has nothing else.
func withDocuments(dir string, n int) *Index {
	return &Index{Dir: dir, DocLens: make([]int32, n), folder: newFolder(dir)}
}

// payloadsOf are those of all documents; of one without, nil.
func payloadsOf(t *testing.T, x *Index) (all []string) {
	p, err := x.Payloads(t.Context())
	require.NoError(t, err)
	require.NotNil(t, p)
	for doc := range x.DocLens {
		b, err := p.Get(doc)
		require.NoError(t, err)
		all = append(all, string(b))
	}
	require.NoError(t, p.Close())
	return all
}

// TestBundledPayloads reads what the programs themselves keep beside the documents of
// testdata/real, as make.py made it up.
func TestBundledPayloads(t *testing.T) {
	corpus, err := os.ReadFile(filepath.Join("..", "..", "docs", "examples", "quickstart", "scifact-sample", "corpus.jsonl"))
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(corpus)), "\n")
	for _, engine := range []string{EngineFastPlaid, EngineNextPlaid} {
		t.Run(engine, func(t *testing.T) {
			x := reopen(t, filepath.Join("testdata", "real", engine))
			all := payloadsOf(t, x)
			require.Empty(t, x.Warnings)
			require.Len(t, all, len(lines))
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
				if engine == EngineNextPlaid {
					want["tags"] = []any{"a", i, map[string]any{"deep": nil}}
				}
				text, err := json.Marshal(want)
				require.NoError(t, err)
				require.JSONEq(t, string(text), all[i])
			}
			require.NoError(t, x.Unchanged())
		})
	}
}

// sqliteScript writes a database with a table METADATA, and prints what Python reads of it.
const sqliteScript = `
import json, random, sqlite3, sys
path, seed = sys.argv[1], int(sys.argv[2])
r = random.Random(seed)
db = sqlite3.connect(path)
db.execute(f"PRAGMA page_size={r.choice([512, 1024, 4096, 65536])}")
if r.random() < .3:
    db.execute(f"PRAGMA auto_vacuum={r.choice([1, 2])}")
mode, n = seed % 3, r.choice([1, 3, 40, 300])
db.execute('CREATE TABLE other (x)')
names = ["a", "B b", 'c"c', "d,(", "e"]
quote = lambda s: '"' + s.replace('"', '""') + '"'
kinds = ["INTEGER", "REAL", "TEXT", "BLOB", ""]
cols = ", ".join(f"{quote(c)} {r.choice(kinds)}" for c in names[:4])
if mode == 0:
    db.execute(f'CREATE TABLE METADATA ("_subset_" INTEGER PRIMARY KEY, {cols})')
elif mode == 1:
    db.execute(f'CREATE TABLE METADATA ({cols}, "_subset_" INTEGER NOT NULL)')
else:
    db.execute(f'CREATE TABLE METADATA ("_subset_" INTEGER NOT NULL, "_content_id_" INTEGER NOT NULL)')
    db.execute(f'CREATE TABLE METADATA_CONTENT ("_content_id_" INTEGER PRIMARY KEY, {cols})')
fat = "METADATA_CONTENT" if mode == 2 else "METADATA"
def value():
    return r.choice([
        None, 0, 1, -1, r.randrange(-2**63, 2**63), r.randrange(-40000, 40000), r.random(), -1e300, 3.0, "",
        "é·" * r.choice([1, 1, 1, 30, 30, 2000, 20000]), "[1, {\"x\": null}]", "{no json", "x" * r.randrange(600),
    ])
def insert(i, names):
    marks = ", ".join("?" * len(names))
    listed = ", ".join(map(quote, names))
    values = [value() for _ in names]
    if mode == 2:
        c = db.execute(f"INSERT INTO METADATA_CONTENT ({listed}) VALUES ({marks})", values).lastrowid
        db.execute("INSERT INTO METADATA VALUES (?, ?)", (i, c))
    else:
        db.execute(f'INSERT INTO METADATA (_subset_, {listed}) VALUES (?, {marks})', [i, *values])
order = list(range(n))
if r.random() < .5:
    r.shuffle(order)
for i in order:
    insert(i, names[:4])
    db.execute("INSERT INTO other VALUES (?)", ("y" * r.randrange(300),))
db.execute(f'ALTER TABLE {fat} ADD COLUMN "e" TEXT')
gone = [i for i in range(n) if r.random() < .2]
for i in gone:
    db.execute("DELETE FROM METADATA WHERE _subset_ = ?", (i,))
for i in gone[::2]:
    insert(i, names)
db.commit()
if r.random() < .3:
    db.execute("VACUUM")
db.commit()
join = " JOIN METADATA_CONTENT USING (_content_id_)" if mode == 2 else ""
rows = [None] * n
listed = ", ".join(map(quote, names))
blob = {c[1] for c in db.execute(f"PRAGMA table_info({fat})") if c[2] == "BLOB"}
for row in db.execute(f"SELECT _subset_, {listed} FROM METADATA{join}"):
    o = {}
    for k, v in zip(names, row[1:]):
        if v is not None:
            if k in blob and isinstance(v, str) and v.startswith("["):
                v = json.loads(v)
            o[k] = v
    rows[row[0]] = o
db.close()
print(json.dumps(rows))
`

// What is read of a table is what SQLite reads of it.
func TestPayloadsOfRandomDatabases(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
	for seed := range 12 {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			dir := t.TempDir()
			out, err := exec.Command("python3", "-c", sqliteScript, filepath.Join(dir, metadataFile), fmt.Sprint(seed)).Output()
			require.NoError(t, err)
			var want []json.RawMessage
			require.NoError(t, json.Unmarshal(out, &want))
			all := payloadsOf(t, withDocuments(dir, len(want)))
			for i, got := range all {
				if got == "" {
					require.Contains(t, []string{"null", "{}"}, string(want[i]), i)
					continue
				}
				require.JSONEq(t, string(want[i]), got, i)
			}
		})
	}
}

// sqliteFile is a database of one page a table: the schema, and one leaf each.
func sqliteFile(tables ...sqliteTable) []byte {
	const page = 512
	out := make([]byte, page)
	copy(out, sqliteMagic)
	binary.BigEndian.PutUint16(out[16:], page)
	binary.BigEndian.PutUint32(out[56:], 1)
	var schema [][]any
	for i, t := range tables {
		schema = append(schema, []any{"table", t.name, t.name, i + 2, t.sql})
	}
	leaf(out, sqliteHead, schema, nil)
	for _, t := range tables {
		p := make([]byte, page)
		leaf(p, 0, t.rows, t.ids)
		out = append(out, p...)
	}
	return out
}

type sqliteTable struct {
	name, sql string
	rows      [][]any
	ids       []int
}

// leaf writes rows into a page; rowids are ids, or from 1.
func leaf(page []byte, begin int, rows [][]any, ids []int) {
	page[begin] = sqliteLeaf
	binary.BigEndian.PutUint16(page[begin+3:], uint16(len(rows)))
	end := len(page)
	for i, row := range rows {
		var types, body []byte
		for _, v := range row {
			switch v := v.(type) {
			case nil:
				types = append(types, 0)
			case int:
				types, body = append(types, 1), append(body, byte(v))
			case string:
				types, body = append(types, varint(13+2*len(v))...), append(body, v...)
			case []byte:
				types, body = append(types, varint(12+2*len(v))...), append(body, v...)
			case float64:
				types, body = append(types, 7), binary.BigEndian.AppendUint64(body, math.Float64bits(v))
			}
		}
		record := append(append(varint(len(types)+1), types...), body...)
		id := i + 1
		if ids != nil {
			id = ids[i]
		}
		cell := append(append(varint(len(record)), varint(id)...), record...)
		end -= len(cell)
		copy(page[end:], cell)
		binary.BigEndian.PutUint16(page[begin+8+2*i:], uint16(end))
	}
}

func varint(v int) []byte {
	if v < 0x80 {
		return []byte{byte(v)}
	}
	return []byte{byte(v>>7) | 0x80, byte(v & 0x7f)}
}

// metadataOf is a database of documents with a field a.
func metadataOf(rows [][]any, ids ...int) []byte {
	return sqliteFile(sqliteTable{metadataTable, `CREATE TABLE METADATA ("_subset_" INTEGER PRIMARY KEY, "a" BLOB)`, rows, ids})
}

// Each mistake of a database is an error that names it, or a warning.
func TestPayloadMistakes(t *testing.T) {
	good := metadataOf([][]any{{nil, "x"}, {nil, "y"}}, 0, 1)
	change := func(at int, to ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], to)
		return b
	}
	other := sqliteTable{"other", `CREATE TABLE other (a)`, nil, nil}
	many := sqliteFile(sqliteTable{metadataTable, `CREATE TABLE METADATA (_subset_ INTEGER, a)`, nil, nil}, other, other)
	for _, number := range []int{2, 3} { // each is the child of the one before in all of its cells
		page := many[512*(number-1) : 512*number]
		clear(page)
		page[0], page[4], page[11] = sqliteInner, 99, byte(number+1)
		copy(page[507:], []byte{0, 0, 0, byte(number + 1), 1})
		for i := range 99 {
			binary.BigEndian.PutUint16(page[12+2*i:], 507)
		}
	}
	split := func(ids ...int) []byte {
		return sqliteFile(
			sqliteTable{metadataTable, `CREATE TABLE METADATA (_subset_ INTEGER, _content_id_ INTEGER)`, [][]any{{0, 7}, {1, 7}}, nil},
			sqliteTable{contentTable, `CREATE TABLE METADATA_CONTENT (_content_id_ INTEGER PRIMARY KEY, a TEXT)`, [][]any{{nil, "x"}}, ids})
	}
	for name, c := range map[string]struct {
		file []byte
		kind error
		says string
	}{
		"no database":    {[]byte("PK\x03\x04 something else that is long enough to have a header of a database, " + strings.Repeat("x", 100)), ErrBroken, "metadata.db: is no SQLite file"},
		"a short file":   {[]byte("SQLite"), ErrBroken, "is no SQLite file"},
		"size of pages":  {change(16, 3, 0), ErrBroken, "pages of 768 bytes"},
		"reserved":       {change(20, 200), ErrBroken, "pages of 512 bytes, 312 of them used"},
		"UTF-16":         {change(59, 2), ErrUnsupported, "text is not UTF-8"},
		"no tree":        {change(512, 7), ErrBroken, "page 2 is no page of a table"},
		"a circle":       {change(512, sqliteInner, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2), ErrBroken, "page 2 is in a circle"},
		"many parents":   {many, ErrBroken, "is in a circle"},
		"cells":          {change(515, 9), ErrBroken, "page 2 has 2306 cells"},
		"a cell outside": {change(520, 9, 9), ErrBroken, "cell 0 begins at byte 2313"},
		"no documents":   {sqliteFile(sqliteTable{metadataTable, `CREATE TABLE METADATA (a)`, nil, nil}), ErrBroken, "table METADATA has no column _subset_"},
		"no rowids":      {sqliteFile(sqliteTable{metadataTable, `CREATE TABLE METADATA (_subset_ INTEGER PRIMARY KEY) WITHOUT ROWID`, nil, nil}), ErrBroken, "not one with rowids alone"},
		"broken SQL":     {sqliteFile(sqliteTable{metadataTable, `CREATE TABLE METADATA ("a`, nil, nil}), ErrBroken, "a name does not end"},
		"two rows":       {sqliteFile(sqliteTable{metadataTable, `CREATE TABLE METADATA (_subset_ INTEGER, a)`, [][]any{{0, "x"}, {0, "y"}}, nil}), ErrBroken, "document 0 has two rows"},
		"a row of none":  {sqliteFile(sqliteTable{metadataTable, `CREATE TABLE METADATA (_subset_ INTEGER, a)`, [][]any{{"x", "x"}}, nil}), ErrBroken, "row 1 of METADATA says no document"},
		"no content":     {sqliteFile(sqliteTable{metadataTable, `CREATE TABLE METADATA (_subset_ INTEGER, _content_id_ INTEGER)`, [][]any{{0, 7}}, nil}), ErrBroken, "METADATA_CONTENT is not there"},
		"no row there":   {split(3), ErrBroken, "METADATA_CONTENT has no row 7"},
		"not UTF-8":      {metadataOf([][]any{{nil, "\xff"}}, 0), ErrBroken, "column a is not valid UTF-8"},
		"not finite":     {metadataOf([][]any{{nil, math.Inf(1)}}, 0), ErrUnsupported, "column a is +Inf"},
		"cut short":      {good[:700], ErrBroken, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, metadataFile), c.file, 0o666))
			err := readAll(t, withDocuments(dir, 2))
			require.ErrorIs(t, err, c.kind)
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, dir)
			require.ErrorContains(t, err, metadataFile)
		})
	}
	for _, beside := range []string{"-wal", "-journal"} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, metadataFile), good, 0o666))
		require.NoError(t, os.WriteFile(filepath.Join(dir, metadataFile+beside), nil, 0o666))
		require.NoError(t, readAll(t, withDocuments(dir, 2)))
		require.NoError(t, os.WriteFile(filepath.Join(dir, metadataFile+beside), []byte("x"), 0o666))
		err := readAll(t, withDocuments(dir, 2))
		require.ErrorIs(t, err, ErrUnsupported)
		require.ErrorContains(t, err, "metadata.db"+beside+" has changes that are not in metadata.db yet")
		require.ErrorContains(t, err, "run sqlite3 "+filepath.Join(dir, metadataFile)+" 'PRAGMA wal_checkpoint")
	}
	// Odd, and no error.
	for _, c := range []struct {
		file     []byte
		want     []string
		warnings []string
	}{
		{good, []string{`{"a":"x"}`, `{"a":"y"}`}, nil},
		{metadataOf([][]any{{nil, "x"}, {nil, "y"}}, 1, 5), []string{"", `{"a":"x"}`}, []string{"metadata.db has 1 rows of documents that are not there", "metadata.db has rows for 1 of 2 documents"}},
		{metadataOf([][]any{{nil, []byte{1, 2, 3}}, {nil, "[1"}}, 0, 1), []string{`{"a":"AQID"}`, `{"a":"[1"}`}, []string{"metadata.db has bytes in column a: base64 in the payload"}},
		{sqliteFile(sqliteTable{metadataTable, "CREATE TABLE METADATA (\n_subset_ INTEGER PRIMARY KEY,\tcittà TEXT, х BLOB)", [][]any{{nil, "x", "[1]"}}, []int{1}}), []string{"", `{"città":"x","х":[1]}`}, []string{"metadata.db has rows for 1 of 2 documents"}},
		{metadataOf([][]any{{nil, `{"x":[1]}`}, {nil}}, 0, 1), []string{`{"a":{"x":[1]}}`, ""}, nil},
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, metadataFile), c.file, 0o666))
		x := withDocuments(dir, 2)
		require.Equal(t, c.want, payloadsOf(t, x))
		require.Equal(t, c.warnings, x.Warnings)
	}
	for _, none := range [][]byte{nil, sqliteFile()} { // a database without the table
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, metadataFile), none, 0o666))
		p, err := withDocuments(dir, 2).Payloads(t.Context())
		require.NoError(t, err)
		require.Nil(t, p)
	}
}

// readAll reads all payloads, and returns the first error.
func readAll(t testing.TB, x *Index) error {
	p, err := x.Payloads(t.Context())
	if err != nil || p == nil {
		return err
	}
	defer p.Close()
	return getAll(t, p)
}

// getAll is readAll of what is open.
func getAll(t testing.TB, p *Payloads) error {
	for doc := range p.at {
		b, err := p.Get(doc)
		if err != nil {
			return err
		}
		if b != nil && !json.Valid(b) {
			t.Fatalf("no JSON: %s", b)
		}
	}
	return nil
}

// FuzzPayloads reads any file as a database.
func FuzzPayloads(f *testing.F) {
	f.Add(metadataOf([][]any{{nil, "x"}, {nil, "y"}}, 0, 1))
	f.Add(sqliteFile(
		sqliteTable{metadataTable, `CREATE TABLE METADATA (_subset_ INTEGER, _content_id_ INTEGER)`, [][]any{{0, 7}, {1, 8}}, nil},
		sqliteTable{contentTable, `CREATE TABLE METADATA_CONTENT (_content_id_ INTEGER PRIMARY KEY, a TEXT)`, [][]any{{nil, "x"}, {nil, 1.5}}, []int{7, 8}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := &Payloads{x: withDocuments("", 5), at: make([]place, 5)}
		err := p.open(t.Context(), bytes.NewReader(data), int64(len(data)))
		if err == nil && p.meta != nil {
			err = getAll(t, p)
		}
		if err != nil && !isFault(err) {
			t.Fatalf("error of no kind: %v", err)
		}
	})
}
