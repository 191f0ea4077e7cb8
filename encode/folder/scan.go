// Package folder makes texts of the files of a folder: notes, documentation and source
// code, in passages that know their lines.
//
//	[Scan] → [File]            what is there, without what .gitignore files leave out
//	[File.Read] → [Content]    what a file has, with a digest
//	[Content.Texts]            passages: by headings, blocks of code, or sentences
package folder

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/vectors"
)

// File is one of a folder.
type File struct {
	// Path is relative to the folder, with slashes: the id of the file's document.
	Path string
	Size int64
	Time time.Time
	kind kind
	root string
}

// Content is what a file has.
type Content struct {
	File
	Text string
	// Digest of Text, in hexadecimal digits.
	Digest string
	// Root is what payloads are to say of the folder; "": nothing.
	Root string
}

// Passed says how many files were not taken, and why.
type Passed struct {
	Kinds  int // of kinds that are no text, by their names
	Large  int // larger than the limit
	Names  int // whose paths cannot be ids: no UTF-8, with control characters, too long
	Closed int // and folders, that may not be read
}

// Limits of what is taken.
type Limits struct {
	// File is the largest file in bytes; 0: 1 MiB.
	File int64
}

// kind of a file: how it is parted.
type kind = encode.Unit

var kinds = func() map[string]kind {
	all := map[string]kind{}
	for part, names := range map[kind]string{
		encode.ByHeadings:  "md markdown mdx mkd",
		encode.BySentences: "txt text rst adoc asciidoc org tex pod",
		encode.ByBlocks: "go c h cc cpp cxx hh hpp hxx cu cuh cs java kt kts scala swift m mm rs zig py pyi rb php pl pm lua r jl js jsx mjs cjs ts tsx vue svelte " +
			"hs ml mli ex exs erl clj cljs el lisp scm sh bash zsh fish ps1 sql proto thrift graphql s asm v vhd cmake mk dart nim d f f90 pas ada adb ads " +
			"toml yaml yml ini cfg conf nix bzl gradle tf dts dtsi",
	} {
		for name := range strings.FieldsSeq(names) {
			all["."+name] = part
		}
	}
	return all
}()

// named files have no ending.
var named = map[string]kind{
	"makefile": encode.ByBlocks, "dockerfile": encode.ByBlocks, "kconfig": encode.ByBlocks, "cmakelists.txt": encode.ByBlocks,
	"readme": encode.BySentences, "license": encode.BySentences, "copying": encode.BySentences, "authors": encode.BySentences, "todo": encode.BySentences,
	"changelog": encode.BySentences, "news": encode.BySentences, "install": encode.BySentences,
}

func kindOf(name string) (kind, bool) {
	name = strings.ToLower(name)
	if k, ok := named[name]; ok {
		return k, true
	}
	k, ok := kinds[path.Ext(name)]
	return k, ok
}

// ErrFolder: what is to be scanned is no folder.
var ErrFolder = errors.New("no folder")

// Scan finds the files of a folder that are texts, in the order of their paths. Names that
// begin with a dot are passed over, as is what .gitignore files name. Links are not followed.
// dirs, where set, is told of each folder that is gone through.
func Scan(ctx context.Context, root string, limits Limits, dirs func(path string)) (files []File, passed Passed, err error) {
	info, err := os.Stat(root)
	if err != nil {
		return nil, passed, err
	}
	if !info.IsDir() {
		return nil, passed, fmt.Errorf("%s: %w", root, ErrFolder)
	}
	if limits.File == 0 {
		limits.File = 1 << 20
	}
	s := scan{ctx: ctx, root: root, limits: limits, dirs: dirs}
	err = s.dir(nil, nil)
	return s.files, s.passed, err
}

type scan struct {
	ctx    context.Context
	root   string
	limits Limits
	dirs   func(string)
	files  []File
	passed Passed
}

// maxRules is the largest .gitignore file that is read.
const maxRules = 1 << 20

// dir goes through one folder, whose path has some names.
func (s *scan) dir(names []string, above *rulesOf) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	at := filepath.Join(append([]string{s.root}, names...)...)
	if s.dirs != nil { // first: what comes after the folder was read is told of
		s.dirs(at)
	}
	entries, err := os.ReadDir(at)
	switch {
	case err == nil:
	case len(names) > 0 && errors.Is(err, fs.ErrNotExist):
		return nil // gone meanwhile
	case len(names) > 0 && errors.Is(err, fs.ErrPermission):
		s.passed.Closed++
		return nil
	default:
		return err
	}
	rules := above
	if text, err := readFile(filepath.Join(at, ".gitignore"), maxRules); err == nil {
		rules = &rulesOf{above: above, depth: len(names), rules: parseRules(string(text))}
	} else if errors.Is(err, fs.ErrPermission) && len(names) > 0 { // what it leaves out is not known
		s.passed.Closed++
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		inside := append(names[:len(names):len(names)], name)
		if strings.HasPrefix(name, ".") || rules.ignores(inside, e.IsDir()) {
			continue
		}
		if e.IsDir() {
			if err := s.dir(inside, rules); err != nil {
				return err
			}
			continue
		}
		if !e.Type().IsRegular() {
			continue
		}
		k, ok := kindOf(name)
		if !ok {
			s.passed.Kinds++
			continue
		}
		path := strings.Join(inside, "/")
		if !canBeID(path) {
			s.passed.Names++
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if errors.Is(err, fs.ErrPermission) {
			s.passed.Closed++
			continue
		} else if err != nil {
			return err
		}
		if info.Size() > s.limits.File {
			s.passed.Large++
			continue
		}
		s.files = append(s.files, File{Path: path, Size: info.Size(), Time: info.ModTime(), kind: k, root: s.root})
	}
	return nil
}

// passageRoom is the room that ids leave for the numbers of passages.
const passageRoom = 16

// canBeID tells whether documents can be named so: one name that cannot must not keep all
// others out of an index.
func canBeID(path string) bool {
	return len(path) <= vectors.MaxIDBytes-passageRoom && vectors.CheckID(path) == nil && !strings.ContainsFunc(path, unicode.IsControl)
}

// ErrBinary: a file has bytes that are no text.
var ErrBinary = errors.New("no text")

// ErrLarge: a file has grown beyond the limit since it was found.
var ErrLarge = errors.New("too large")

// Read reads a file.
func (f *File) Read(limits Limits) (*Content, error) {
	if limits.File == 0 {
		limits.File = 1 << 20
	}
	text, err := readFile(filepath.Join(f.root, filepath.FromSlash(f.Path)), limits.File)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(text) || strings.IndexByte(string(text), 0) >= 0 {
		return nil, fmt.Errorf("%s: %w", f.Path, ErrBinary)
	}
	sum := sha256.Sum256(text)
	return &Content{File: *f, Text: string(text), Digest: hex.EncodeToString(sum[:16])}, nil
}

// readFile reads at most so many bytes of a regular file.
func readFile(path string, most int64) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w", path, fs.ErrNotExist) // a pipe would wait
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s: %w: more than %d bytes", path, ErrLarge, most)
	}
	return text, err
}
