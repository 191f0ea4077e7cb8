package encode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/jsontext"
)

// Kind is the kind of a file in a folder, by its name. Each file is one text.
type Kind struct {
	// Unit is the best unit for passages of its texts.
	Unit Unit
	// Written reports whether the text is the file as it is, so that its lines are those of the file.
	Verbatim bool
	// read converts the content to title and text. nil means that the content is the text.
	read func(string) (title, text string, err error)
}

// Kinds names the kinds of files that are read in folders, for messages.
const Kinds = "text, Markdown, web pages (.html), notebooks (.ipynb) and source code"

// kindsByEnd maps suffixes of names to kinds, kindsByName whole names. Both are in lower case.
var kindsByEnd, kindsByName = func() (ends, names map[string]Kind) {
	ends, names = map[string]Kind{}, map[string]Kind{}
	for _, k := range []struct {
		Kind
		ends, names string
	}{
		{Kind{ByHeadings, true, nil}, "md markdown mdx mkd", ""},
		{
			Kind{BySentences, true, nil}, "txt text rst adoc asciidoc org tex pod",
			"readme license copying authors todo changelog news install",
		},
		{
			Kind{ByBlocks, true, nil},
			"go c h cc cpp cxx hh hpp hxx cu cuh cs java kt kts scala swift m mm rs zig py pyi rb php pl pm " +
				"lua r jl js jsx mjs cjs ts tsx vue svelte hs ml mli ex exs erl clj cljs el lisp scm sh bash zsh " +
				"fish ps1 sql proto thrift graphql s asm v vhd cmake mk dart nim d f f90 pas ada adb ads toml " +
				"yaml yml ini cfg conf nix bzl gradle tf dts dtsi",
			"makefile dockerfile kconfig cmakelists.txt",
		},
		{Kind{BySentences, false, pageText}, "html htm", ""},
		{Kind{ByHeadings, false, notebookText}, "ipynb", ""},
	} {
		for end := range strings.FieldsSeq(k.ends) {
			ends["."+end] = k.Kind
		}
		for name := range strings.FieldsSeq(k.names) {
			names[name] = k.Kind
		}
	}
	return ends, names
}()

// KindByName returns the kind of a file by its name; false means a kind other than [Kinds]. Reading a
// folder and watching one select files by it.
func KindByName(name string) (Kind, bool) {
	name = strings.ToLower(path.Base(filepath.ToSlash(name)))
	if k, ok := kindsByName[name]; ok {
		return k, true
	}
	k, ok := kindsByEnd[path.Ext(name)]
	return k, ok
}

// Text converts the content of a file to its title, which may be "", and its text. A byte order mark
// at the beginning is removed.
func (k Kind) Text(content []byte) (title, text string, err error) {
	text = string(jsontext.TrimByteOrderMark(content))
	if err := checkUTF8(text); err != nil {
		if packing := files.PackingName(content); packing != "" {
			err = fmt.Errorf("it is compressed by %s: unpack it first", packing)
		}
		return "", "", cmp.Or(foreignContentError(content), err)
	}
	if k.read == nil {
		return "", text, nil
	}
	return k.read(text)
}

// wholeText reads a file as one text.
func wholeText(r io.Reader, id string, k Kind) (t Text, err error) {
	b, err := io.ReadAll(io.LimitReader(r, maxTextLine+1))
	if err == nil && len(b) > maxTextLine {
		err = fmt.Errorf("has more than %d bytes", maxTextLine)
	}
	if err != nil {
		return t, err
	}
	t.ID = id
	t.Title, t.Text, err = k.Text(b)
	return t, err
}

// parseWhole returns a parser that reads a file as one text, whose id is the name.
func parseWhole(name string, k Kind) parser {
	return func(ctx context.Context, r io.Reader, yield func(Text, error) bool) error {
		t, err := wholeText(r, name, k)
		if err = cmp.Or(ctx.Err(), err); err != nil {
			return err
		}
		yield(t, nil)
		return nil
	}
}

// folderTexts reads the files below a folder that are texts by their names ([KindByName]), in the order of
// their names. Ids are paths within the folder, with slashes. Links in it, and files and folders
// whose names begin with a dot, are skipped. skipped, if not nil, is called with each other file that
// is not read.
func folderTexts(ctx context.Context, dir string, skipped func(string)) iter.Seq2[Text, error] {
	return func(yield func(Text, error) bool) {
		stopped := errors.New("stopped")
		read, skippedFiles, advice := 0, 0, ""
		root := dir
		if info, err := os.Lstat(dir); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			root += string(filepath.Separator) // the folder that it leads to
		}
		err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return err
			}
			hidden := name != root && strings.HasPrefix(d.Name(), ".")
			if d.IsDir() && hidden {
				return fs.SkipDir
			}
			if !d.Type().IsRegular() || hidden {
				return nil
			}
			kind, ok := KindByName(name)
			if !ok {
				if skippedFiles++; skipped != nil {
					skipped(name)
				}
				advice = cmp.Or(advice, foreignAdvice(strings.ToLower(filepath.Ext(name))))
				return nil
			}
			read++
			rel, err := filepath.Rel(root, name)
			if err != nil {
				return err
			}
			f, err := os.Open(name)
			if err != nil {
				return err
			}
			defer f.Close()
			t, err := wholeText(f, path.Clean(filepath.ToSlash(rel)), kind)
			if err != nil {
				return fileError(name, err)
			}
			t.From.Path = name
			if !yield(t, nil) {
				return stopped
			}
			return nil
		})
		if err == nil && read == 0 {
			err = fmt.Errorf("%w: none is one of %s by its name; other files: %d", ErrNoTexts, Kinds, skippedFiles)
			if advice != "" {
				err = fmt.Errorf("%w; of one of these: %s", err, advice)
			}
			err = &TextError{Path: dir, Row: -1, Err: err}
		}
		if err != nil && !errors.Is(err, stopped) {
			yield(Text{}, err)
		}
	}
}
