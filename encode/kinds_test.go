package encode

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const notebookSeed = `{"nbformat": 4, "metadata": {"language_info": {"name": "python"}}, "cells": [
 {"cell_type": "markdown", "source": ["# Owls\n", "They hunt."]},
 {"cell_type": "code", "source": "# not a heading\nx = 1", "outputs": [{"data": {"image/png": "AAAA"}}]},
 {"cell_type": "code", "source": []}, {"cell_type": "raw", "source": "raw"}]}`

// A notebook is its cells, code in fences, without their output.
func TestNotebook(t *testing.T) {
	dir := t.TempDir()
	const body = "# Owls\nThey hunt.\n\n```python\n# not a heading\nx = 1\n```\n\nraw"
	path := write(t, dir, "a.ipynb", "\ufeff"+notebookSeed)
	for _, from := range []string{path, dir} {
		got, err := all((&Reader{}).Texts(t.Context(), from))
		require.NoError(t, err)
		require.Equal(t, []Text{{ID: "a.ipynb", Title: "Owls", Text: body}}, got)
	}
	k, ok := KindByName("x/A.IPYNB")
	require.True(t, ok)
	require.Equal(t, ByHeadings, k.Unit)
	for content, want := range map[string][2]string{
		`{"metadata": {"title": "T", "kernelspec": {"language": "a b` + "`" + `"}}, "cells": [{"cell_type": "code", "source": "` + "```" + `"}]}`: {"T", "````a-b\n```\n````"},
		`{"worksheets": [{"cells": [{"cell_type": "heading", "level": 2, "source": "H"}, {"cell_type": "code", "input": ["a\n", "b"]}]}]}`:        {"H", "## H\n\n```\na\nb\n```"},
		`{"cells": []}`: {"", ""},
	} {
		title, text, err := k.Text([]byte(content))
		require.NoError(t, err)
		require.Equal(t, want, [2]string{title, text})
	}
	for content, says := range map[string]string{
		"": "is not a notebook", "{}": "it has no cells", "[]": "is not a notebook", `{"cells": [{"source": 3}]}`: "the source of a cell is not text",
		strings.Repeat("[", 200): "is not a notebook",
	} {
		_, _, err := k.Text([]byte(content))
		require.ErrorContains(t, err, says, content)
	}
}

// A file that is no text is refused with advice, in a folder as elsewhere.
func TestKindOfOtherContent(t *testing.T) {
	k, _ := KindByName("a.md")
	for content, says := range map[string]string{
		"\xff\xfea\x00": "it is UTF-16: iconv -f UTF-16", "%PDF-1.4\n\xe2": "it is a PDF", "\x1f\x8b\x08\xff": "it is compressed by gzip",
		"caf\xe9": "if it is Latin-1",
	} {
		_, _, err := k.Text([]byte(content))
		require.ErrorContains(t, err, says)
	}
}

// Folders are read for the same kinds by all who read them.
func TestKindOf(t *testing.T) {
	for name, unit := range map[string]Unit{
		"a.MD": ByHeadings, "sub/b.txt": BySentences, "c.html": BySentences, "d.htm": BySentences, "e.go": ByBlocks, "CMakeLists.txt": ByBlocks, "README": BySentences,
	} {
		k, ok := KindByName(name)
		require.True(t, ok, name)
		require.Equal(t, unit, k.Unit, name)
		require.Equal(t, !strings.Contains(name, "htm"), k.Verbatim, name)
	}
	for _, name := range []string{"a.pdf", "a.json", "a.gz", "noending", ""} {
		_, ok := KindByName(name)
		require.False(t, ok, name)
	}
}

func FuzzNotebook(f *testing.F) {
	f.Add(notebookSeed)
	f.Add(`{"worksheets":[{"cells":[{"cell_type":"heading","level":9,"source":"H"}]}]}`)
	f.Fuzz(func(t *testing.T, content string) {
		title, text, err := notebookText(content)
		if err == nil {
			require.NoError(t, checkUTF8(title+text))
		}
	})
}
