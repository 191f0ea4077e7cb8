package encode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/files"
)

// Tab-separated text is literal: each line is a document, whatever quotation marks there are.
func TestTSVIsLiteral(t *testing.T) {
	dir := t.TempDir()
	for content, want := range map[string][]Text{
		"id\ttext\n1\t\"late again.\n2\tnobody said.\"\n3\tseals\n": {
			{ID: "1", Text: `"late again.`}, {ID: "2", Text: `nobody said."`}, {ID: "3", Text: "seals"},
		},
		"id\ttext\n1\tA 5\" nail\n2\t\"Fishing\" boats\n3\t\"\n4\t\"\"\n": {
			{ID: "1", Text: `A 5" nail`}, {ID: "2", Text: `"Fishing" boats`}, {ID: "3", Text: `"`}, {ID: "4", Text: `""`},
		},
		"\ufeffid\ttext\r\n1\ta \\t, b\r\n\r\n\"2\"\t\r\n": {{ID: "1", Text: `a \t, b`}, {ID: `"2"`}},
		"text\n\"a\n\nb\"": {{Text: `"a`}, {}, {Text: `b"`}},
	} {
		got, err := all((&Reader{}).Texts(t.Context(), write(t, dir, "a.tsv", content)))
		require.NoError(t, err, content)
		require.Equal(t, want, got, content)
	}
	for content, says := range map[string]string{
		"":                                  "bad.tsv: is empty: want a line that names the columns",
		"id\ttext\n1\ta\n2\tb\tc\n":         "bad.tsv: line 3: wrong number of fields: 3, line 1 has 2",
		"id\ttext\n1\ta\n2\n":               "bad.tsv: line 3: wrong number of fields: 1, line 1 has 2",
		"\nid\tbody\n1\ta\n":                "bad.tsv: line 2: no text field: there is no column text, only id, body",
		"id\ttext\n1\t\xff\n":               "bad.tsv: line 2: column text is not valid UTF-8",
		"id\tid\ttext\n":                    `names column "id" twice`,
		strings.Repeat("x", 9999) + "\ta\n": "…, a; the first line names the columns",
	} {
		_, err := all((&Reader{}).Texts(t.Context(), write(t, dir, "bad.tsv", content)))
		require.ErrorContains(t, err, says)
		require.Less(t, len(err.Error()), 500)
	}
}

// A first line that is an id and a text is a document; one that may be names of columns is never
// taken for a document, nor a document for names.
func TestTSVWithoutHeader(t *testing.T) {
	for first, want := range map[string]*Text{
		"0\tThe ferry was late.":               {ID: "0", Text: "The ferry was late."},
		"174249\tdoes xpress bet charge":       {ID: "174249", Text: "does xpress bet charge"},
		"7\tseals":                             {ID: "7", Text: "seals"},
		"7\t":                                  {ID: "7"},
		"D1\tThe ferry was late.":              {ID: "D1", Text: "The ferry was late."},
		"msmarco_passage_00_1\t\"a quote\" of": {ID: "msmarco_passage_00_1", Text: `"a quote" of`},
		"id\tbody":                             nil, // names, and none is text
		"docno\tcontents":                      nil,
		"Doc ID\tThe text of it":               nil,
		"field1\tfield2":                       nil,
		"0\t1":                                 nil, // as pandas numbers columns
		"0\tTitle":                             nil,
		"owl\tOwls hunt at night":              nil,
		"1\tOwls\thunt":                        nil,
	} {
		r := strings.NewReader(first + "\n2\tmore\n")
		got, err := all((&Reader{Format: FormatTSV}).Read(t.Context(), r, "a.tsv"))
		if want == nil {
			require.ErrorIs(t, err, ErrNoTextField, first)
			require.ErrorContains(t, err, "the first line names the columns: if it is a text already, put one in front of it")
			continue
		}
		require.NoError(t, err, first)
		require.Equal(t, []Text{*want, {ID: "2", Text: "more"}}, got, first)
	}
	named := &Reader{Format: FormatTSV, Fields: Fields{Text: "body"}}
	_, err := all(named.Read(t.Context(), strings.NewReader("0\tThe ferry was late.\n"), "a.tsv"))
	require.ErrorContains(t, err, "there is no column body, only 0, The ferry was late.")
	_, err = all((&Reader{Format: FormatTSV}).Read(t.Context(), strings.NewReader("0\ta\n1\tb\tc\n"), "a.tsv"))
	require.EqualError(t, err, "a.tsv: line 2: wrong number of fields: 3, line 1 has 2; tabs separate fields, and quotation marks do not join them")
}

// A field that was named has to be in some object; the error says what there is.
func TestNamedFieldsAreThere(t *testing.T) {
	const jsonl = `{"_id": "a", "title": "T", "text": "x"}` + "\n" + `{"_id": "b", "title": "U", "text": null, "txt2": 1}`
	for says, r := range map[string]Reader{
		"line 1: no text field: no object has txt, this one has _id, text, title":   {Fields: Fields{Text: "txt"}},
		"line 1: no such field: the object has no identifier, only _id, text":       {Fields: Fields{ID: "identifier"}},
		"line 1: no such field: no object has nope, this one has _id, text, title":  {Fields: Fields{Title: "nope"}},
		"no text field: there is no column txt, only _id, title, text":              {Format: FormatCSV, Fields: Fields{Text: "txt"}},
		"no such field: there is no column identifier, only _id, title, text":       {Format: FormatCSV, Fields: Fields{ID: "identifier"}},
		"no such field: there is no column nope, only _id, title, text":             {Format: FormatTSV, Fields: Fields{Title: "nope"}},
		"stdin: no such field: there is no body: it has texts without fields":       {Format: FormatLines, Fields: Fields{Text: "body"}},
		"stdin: no such field: there is no identifier: it has texts without fields": {Format: FormatHTML, Fields: Fields{ID: "identifier"}},
		"stdin: no such field: there is no head: it has texts without fields":       {Format: FormatNotebook, Fields: Fields{Title: "head"}},
	} {
		content := map[Format]string{FormatCSV: "_id,title,text\na,T,x\n", FormatTSV: "_id\ttitle\ttext\na\tT\tx\n"}[r.Format]
		if r.Format == "" {
			content = jsonl
		}
		_, err := all(r.Read(t.Context(), strings.NewReader(content), "stdin"))
		require.ErrorContains(t, err, says)
	}
	dir := t.TempDir()
	write(t, dir, "a.md", "x")
	_, err := all((&Reader{Fields: Fields{Text: "body"}}).Texts(t.Context(), dir))
	require.ErrorIs(t, err, ErrNoField)

	// In some objects is enough, and null is there.
	got, err := all((&Reader{Fields: Fields{Title: "sub"}}).Read(t.Context(), strings.NewReader(jsonl+"\n"+`{"sub": "S", "_id": "c"}`), "stdin"))
	require.NoError(t, err)
	require.Equal(t, []string{"", "", "S"}, []string{got[0].Title, got[1].Title, got[2].Title})
	got, err = all((&Reader{Fields: Fields{ID: "txt2"}}).Read(t.Context(), strings.NewReader(`{"txt2": 1, "text": "x"}`+"\n"+jsonl), "stdin"))
	require.ErrorContains(t, err, "line 2: no such field: the object has no txt2")
	require.Equal(t, []Text{{ID: "1", Text: "x"}}, got)
	got, err = all((&Reader{Fields: Fields{ID: "title", Text: "title"}}).Read(t.Context(), strings.NewReader(jsonl), "stdin"))
	require.NoError(t, err)
	require.Equal(t, Text{ID: "T", Text: "T", Payload: []byte(`{"_id":"a","text":"x"}`)}, got[0])
	got, err = all((&Reader{Format: FormatCSV, Fields: Fields{ID: "title", Text: "title"}}).Read(t.Context(), strings.NewReader("title,n\nT,1\n"), "stdin"))
	require.NoError(t, err)
	require.Equal(t, []Text{{ID: "T", Text: "T", Payload: []byte(`{"n":1}`)}}, got)
}

// A cell is a number if nothing is lost by that.
func TestCellValues(t *testing.T) {
	for cell, want := range map[string]string{
		"2019": "2019", "-3": "-3", "0": "0", "0.5": "0.5", "-12.25": "-12.25", "9007199254740993": `"9007199254740993"`, "9007199254740992": "9007199254740992",
		"007": `"007"`, "1.50": `"1.50"`, "1.0": `"1.0"`, "1e3": `"1e3"`, "+1": `"+1"`, ".5": `".5"`, "5.": `"5."`, "-0": `"-0"`, "": "null", " 1": `" 1"`, "1-2": `"1-2"`,
		"2019-01-02": `"2019-01-02"`, "NaN": `"NaN"`, "1.2.3": `"1.2.3"`, "-": `"-"`, "0.0000001": `"0.0000001"`, "100000000000000000000": "100000000000000000000",
		"1000000000000000000000": `"1000000000000000000000"`, "0x10": `"0x10"`,
	} {
		for _, f := range []Format{FormatCSV, FormatTSV} {
			content := "text,n\nx," + cell + "\n"
			if f == FormatTSV {
				content = strings.ReplaceAll(content, ",", "\t")
			}
			got, err := all((&Reader{Format: f}).Read(t.Context(), strings.NewReader(content), "a"))
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf(`{"n":%s}`, want), string(got[0].Payload), "%q", cell)
		}
	}
}

// A row of CSV whose quotation mark is not closed takes no more memory than a line may.
func TestCSVIsBounded(t *testing.T) {
	head := "text\na\n"
	endless := io.MultiReader(strings.NewReader(head+`"`), io.LimitReader(zeros{}, maxTextLine+(1<<20)))
	got, err := all((&Reader{Format: FormatCSV}).Read(t.Context(), endless, "a.csv"))
	require.ErrorIs(t, err, files.ErrLongLine)
	require.Len(t, got, 1)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

// Compressed texts are unpacked, from files and from pipes; a part of them is an error.
func TestPackedTexts(t *testing.T) {
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b)
	require.NoError(t, err)
	_, err = io.WriteString(z, "id\ttext\n1\ta\n")
	require.NoError(t, err)
	require.NoError(t, z.Close())
	want := []Text{{ID: "1", Text: "a"}}
	dir := t.TempDir()
	for _, name := range []string{"a.tsv.zst", "b.tsv", "c.TSV.ZST"} {
		got, err := all((&Reader{}).Texts(t.Context(), write(t, dir, name, b.String())))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	got, err := all((&Reader{Format: FormatTSV}).Read(t.Context(), bytes.NewReader(b.Bytes()), "stdin"))
	require.NoError(t, err)
	require.Equal(t, want, got)
	_, err = all((&Reader{}).Texts(t.Context(), write(t, dir, "cut.tsv.zst", b.String()[:b.Len()-4])))
	require.ErrorContains(t, err, "cut.tsv.zst: bad compressed data: zstd: is cut short")
	_, err = all((&Reader{}).Texts(t.Context(), write(t, dir, "a.jsonl.xz", `{"text": "x"}`)))
	require.ErrorIs(t, err, files.ErrPacked)
	_, err = all((&Reader{}).Texts(t.Context(), write(t, dir, "a.bin.zst", "")))
	require.ErrorIs(t, err, ErrSuffix)
}

// What is wrong with a line of JSON is said.
func TestLinesOfJSON(t *testing.T) {
	for line, says := range map[string]string{
		"{":                                     "line 1: ends within the JSON object: the file is cut short, or the object goes on in the next line",
		`{"_id": "a", "text": "x`:               "line 1: ends within the JSON object",
		`{"text": "x", "n": NaN}`:               "line 1: not a JSON object: byte 20: JSON has no NaN: write null",
		`{"text": "x", "n": -Infinity}`:         "JSON has no Infinity: write null",
		`{"text": "x"}{"text": "y"}`:            "line 1: not a JSON object: byte 14: the line goes on after the object",
		`{"text": "x"},`:                        "the line goes on after the object",
		`{'text': 'x'}`:                         "not a JSON object: byte 2: invalid character '\\''",
		"{\"text\": \"y\"}\n\ufeff{\"text\":3}": "line 2: text is not a string",
	} {
		_, err := all((&Reader{}).Read(t.Context(), strings.NewReader(line), "a.jsonl"))
		require.ErrorContains(t, err, says)
	}
}

// Errors of Each have the place of the text, in every format.
func TestEachHasPlace(t *testing.T) {
	dir := t.TempDir()
	r := &Reader{Convert: func(t Text) (Text, error) {
		if t.Text == "bad" {
			return t, errors.New("refused")
		}
		return t, nil
	}}
	for name, content := range map[string]string{
		"a.jsonl": "{\"_id\":\"1\",\"text\":\"a\"}\n{\"_id\":\"2\",\"text\":\"bad\"}\n",
		"a.tsv":   "1\ta\n2\tbad\n",
	} {
		_, err := all(r.Texts(t.Context(), write(t, dir, name, content)))
		require.EqualError(t, err, filepath.Join(dir, name)+`: line 2: id "2": refused`)
	}
	folder := filepath.Join(dir, "folder")
	require.NoError(t, os.Mkdir(folder, 0o777))
	_, err := all(r.Texts(t.Context(), filepath.Dir(write(t, folder, "b.md", "bad"))))
	require.EqualError(t, err, filepath.Join(folder, "b.md")+`: id "b.md": refused`)
}
