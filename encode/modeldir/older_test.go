package modeldir_test

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/internal/testing/modeltest"
)

// older are the folders of testdata/older.py.
type older struct {
	Lines   []string
	Folders map[string]struct {
		Files map[string]string
		IDs   [][]int32
		Whole []int32
	}
}

func readOlder(t testing.TB) (o older) {
	f, err := os.Open(filepath.Join("testdata", "older.json.gz"))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	require.NoError(t, json.NewDecoder(z).Decode(&o))
	return o
}

// with is a folder of PyLate's with other files of a tokenizer.
func with(t testing.TB, files map[string]string) string {
	dir := t.TempDir()
	modeltest.PyLate(t, dir, "bert")
	require.NoError(t, os.Remove(filepath.Join(dir, "tokenizer.json")))
	modeltest.Edit(t, filepath.Join(dir, "config.json"), map[string]any{"vocab_size": 4000})
	modeltest.Edit(t, filepath.Join(dir, "config_sentence_transformers.json"), map[string]any{
		"query_prefix": "", "document_prefix": "", "skiplist_words": []string{}, "do_query_expansion": false,
	})
	for name, text := range files {
		modeltest.WriteFile(t, filepath.Join(dir, name), []byte(text))
	}
	return dir
}

// TestOlderTokenizers: vocabularies without tokenizer.json give the ids of AutoTokenizer, and so does
// tokenizer.json with other settings than those of its class.
func TestOlderTokenizers(t *testing.T) {
	o := readOlder(t)
	require.Greater(t, len(o.Folders), 9)
	for name, folder := range o.Folders {
		t.Run(name, func(t *testing.T) {
			c, err := modeldir.Read(with(t, folder.Files), nil)
			require.NoError(t, err)
			if strings.HasPrefix(name, "class ") {
				require.Contains(t, c.Warnings[0], "tokenizer_config.json: ")
				require.Contains(t, c.Warnings[0], ": the class takes the first")
			} else {
				require.Empty(t, c.Warnings)
			}
			for i, line := range o.Lines {
				ids, err := c.Tokenizer.EncodeIDs([]int32{}, line)
				require.NoError(t, err)
				require.Equal(t, folder.IDs[i], ids, "%q", line)
			}
			ids, err := c.Tokenizer.EncodeIDs(c.Tokenizer.Prefix(), "a text")
			require.NoError(t, err)
			require.Equal(t, folder.Whole, slices.Concat(ids, c.Tokenizer.Suffix()))
			mask := "[MASK]"
			switch {
			case name == "no class":
				mask = "" // PreTrainedTokenizerFast has no tokens of its own
			case c.Tokenizer.Piece(0) == "<s>":
				mask = "<mask>"
			}
			require.Equal(t, mask, c.Tokenizer.Piece(c.Expand.Mask))
		})
	}
}

// FuzzOlderTokenizer: files of a tokenizer are read, or refused with an error of this package; what
// is read tokenizes.
func FuzzOlderTokenizer(f *testing.F) {
	for _, folder := range readOlder(f).Folders {
		if folder.Files["tokenizer.json"] != "" {
			continue
		}
		files := folder.Files
		f.Add(files["vocab.txt"], files["vocab.json"], files["merges.txt"],
			files["tokenizer_config.json"], files["added_tokens.json"])
	}
	dir := with(f, nil)
	f.Fuzz(func(t *testing.T, lines, vocab, merges, config, added string) {
		for name, text := range map[string]string{
			"vocab.txt": lines, "vocab.json": vocab, "merges.txt": merges,
			"tokenizer_config.json": config, "added_tokens.json": added,
		} {
			path := filepath.Join(dir, name)
			if text != "" {
				require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			} else if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
				require.NoError(t, err)
			}
		}
		c, err := modeldir.Read(dir, nil)
		if err != nil {
			var me *modeldir.ModelError
			require.ErrorAs(t, err, &me)
			return
		}
		for _, text := range []string{"a [MASK] text, and <mask> more", "\u00e9\n\u6771\u4eac\x00"} {
			_, err = c.Tokenizer.EncodeIDs(nil, text)
			require.NoError(t, err)
		}
	})
}
