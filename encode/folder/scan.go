// Package folder makes texts of the files of a folder: notes, documentation and source
// code, in passages that know their lines.
//
//	[Scan] → [File]            what is there, without what .gitignore files leave out
//	[File.Read] → [Content]    what a file has, with a digest
//	[Content.Texts]            passages: by headings, blocks of code, or sentences
package folder

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/vectors"
)

// File is one of a folder.
type File struct {
	// Path is relative to the folder, with slashes: the id of the file's document.
	Path string
	Size int64
	Time time.Time
	// Mode tells who may read it.
	Mode fs.FileMode
	kind encode.Kind
	root string
}

// Content is what a file has.
type Content struct {
	File
	// Title, where there is one, and Text are those of its kind ([encode.Kind]).
	Title, Text string
	// Digest of the file, in hexadecimal digits.
	Digest string
	// Root names the folder in payloads, and Device the file system that the file is on ([Device]);
	// "" leaves the field out.
	Root, Device string
}

// Passed says how many files were not taken, and why.
type Passed struct {
	Kinds int // of kinds that are no text, by their names
	Large int // larger than the limit
	Names int // whose paths cannot be ids: no UTF-8, with control characters, too long
	// Closed are the paths of files and folders that may not be read, and of folders whose rules
	// are not known: what lies there now is not known either.
	Closed []string
	// Files names the first of them.
	Files []PassedFile
	// Rules are paths of .gitignore files that are too large: their folders are in Closed.
	Rules []string
}

// PassedFile is a file or a folder that was not taken, and why.
type PassedFile struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// mostNamed is how many files are named that were not taken.
const mostNamed = 100

// Name names a file that was not taken, if few are named before it.
func (p *Passed) Name(path, why string) {
	if len(p.Files) < mostNamed {
		p.Files = append(p.Files, PassedFile{path, why})
	}
}

// Close passes over a file or a folder that may not be read.
func (p *Passed) Close(path string) {
	p.Closed = append(p.Closed, path)
	p.Name(path, "it, or what its .gitignore leaves out, cannot be read")
}

// All is how many files and folders that is.
func (p *Passed) All() int { return p.Kinds + p.Large + p.Names + len(p.Closed) }

// Hides tells whether a file may still be there, unseen: in one of Closed.
func (p *Passed) Hides(path string) bool {
	return slices.ContainsFunc(p.Closed, func(at string) bool {
		rest, in := strings.CutPrefix(path, at)
		return in && (rest == "" || rest[0] == '/')
	})
}

// usual is the largest file in bytes that is taken where no other size is given.
const usual = 1 << 20

// ErrFolder: what is to be scanned is no folder.
var ErrFolder = errors.New("no folder")

// Scan finds the files of a folder that are texts, in the order of their paths. Names that
// begin with a dot are passed over, as is what git ignores by .gitignore files, of the folder
// and of those above it in its repository, and by .git/info/exclude. Links are not followed.
// largest is the largest file in bytes that is taken; 0: 1 MiB. dirs, where set, is told of each
// folder that is gone through.
func Scan(ctx context.Context, root string, largest int64, dirs func(path string)) (files []File, passed Passed, err error) {
	info, err := os.Stat(root)
	if err != nil {
		return nil, passed, err
	}
	if !info.IsDir() {
		return nil, passed, fmt.Errorf("%s: %w", root, ErrFolder)
	}
	s := scan{ctx: ctx, root: root, largest: cmp.Or(largest, usual), dirs: dirs}
	rules, err := s.repository()
	if err != nil {
		return nil, passed, err
	}
	err = s.dir(nil, rules)
	return s.files, s.passed, err
}

type scan struct {
	ctx     context.Context
	root    string
	above   []string // names of the path from the top of its repository to the folder
	largest int64
	dirs    func(string)
	files   []File
	passed  Passed
}

// maxRules is the largest .gitignore file that is read.
const maxRules = 1 << 20

// repository finds the repository that the folder is in, and the rules of what is above it.
// The folder itself was asked for: rules for it do not count.
func (s *scan) repository() (rules *rulesOf, err error) {
	at, err := filepath.EvalSymlinks(s.root)
	if err == nil {
		at, err = filepath.Abs(at)
	}
	if err != nil {
		return nil, err
	}
	var dirs []string // from the folder to the top
	for {
		dirs = append(dirs, at)
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			break
		}
		if filepath.Dir(at) == at {
			return nil, nil // it is in none
		}
		at = filepath.Dir(at)
	}
	for i := len(dirs) - 1; i > 0; i-- {
		if rules, err = rulesIn(dirs[i], len(s.above), rules); err != nil {
			return nil, err
		}
		s.above = append(s.above, filepath.Base(dirs[i-1]))
	}
	return rules, nil
}

// rulesIn are the rules of a folder, whose path has so many names below the top of its
// repository, and those above it.
func rulesIn(dir string, depth int, rules *rulesOf) (*rulesOf, error) {
	for _, path := range []string{excludeFile(dir), filepath.Join(dir, ".gitignore")} { // the latter counts more
		if path == "" {
			continue
		}
		text, err := readFile(path, maxRules)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return rules, &rulesError{path, err}
		}
		rules = &rulesOf{above: rules, depth: depth, rules: parseRules(string(text))}
	}
	return rules, nil
}

// rulesError: a file of rules cannot be read, so that it is not known what is left out.
type rulesError struct {
	path string
	err  error
}

func (e *rulesError) Error() string {
	return fmt.Sprintf("what %s leaves out is not known: %v", e.path, e.err)
}

func (e *rulesError) Unwrap() error { return e.err }

// excludeFile is the file of rules that a repository keeps for itself; "" if dir is the top
// of none. A further work tree has a file .git that names its own folder in the repository.
func excludeFile(dir string) string {
	at := filepath.Join(dir, ".git")
	info, err := os.Lstat(at)
	if err != nil {
		return ""
	}
	if !info.IsDir() {
		text, err := readFile(at, 1<<12)
		to, names := strings.CutPrefix(strings.TrimSpace(string(text)), "gitdir:")
		if err != nil || !names {
			return ""
		}
		at = inside(dir, strings.TrimSpace(to))
		if text, err = readFile(filepath.Join(at, "commondir"), 1<<12); err == nil {
			at = inside(at, strings.TrimSpace(string(text)))
		}
	}
	return filepath.Join(at, "info", "exclude")
}

// inside is a path that may be relative to a folder.
func inside(dir, path string) string {
	if path = filepath.FromSlash(path); !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	return path
}

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
		s.close(names)
		return nil
	default:
		return err
	}
	rules, err := rulesIn(at, len(s.above)+len(names), above)
	var unread *rulesError
	switch {
	case err == nil:
	case len(names) > 0 && errors.Is(err, fs.ErrPermission):
		s.close(names)
		return nil
	case len(names) > 0 && errors.Is(err, ErrLarge) && errors.As(err, &unread):
		s.close(names)
		s.passed.Rules = append(s.passed.Rules, unread.path)
		return nil
	default:
		return err
	}
	for _, e := range entries {
		name := e.Name()
		inside := append(names[:len(names):len(names)], name)
		if strings.HasPrefix(name, ".") || rules.ignores(slices.Concat(s.above, inside), e.IsDir()) {
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
		path := strings.Join(inside, "/")
		k, ok := encode.KindOf(name)
		if !ok {
			s.passed.Kinds++
			s.passed.Name(path, "no kind of text by its name")
			continue
		}
		if !canBeID(path) {
			s.passed.Names++
			s.passed.Name(path, "the path cannot be an id")
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if errors.Is(err, fs.ErrPermission) {
			s.close(inside)
			continue
		} else if err != nil {
			return err
		}
		if info.Size() > s.largest {
			s.passed.Large++
			s.passed.Name(path, fmt.Sprintf("%d bytes, more than --max-file", info.Size()))
			continue
		}
		s.files = append(s.files, File{Path: path, Size: info.Size(), Time: info.ModTime(), Mode: info.Mode(), kind: k, root: s.root})
	}
	return nil
}

// close passes over a file or a folder, and what the index has of it is left alone.
func (s *scan) close(names []string) { s.passed.Close(strings.Join(names, "/")) }

// canBeID tells whether documents can be named so: one name that cannot must not keep all
// others out of an index.
func canBeID(path string) bool {
	return vectors.CheckDocument(vectors.Draft{ID: path, Split: true}) == nil
}

// ErrBinary: a file has bytes that are no text, or is not of the kind that its name says.
var ErrBinary = errors.New("no text")

// ErrLarge: a file has grown beyond the limit since it was found.
var ErrLarge = errors.New("too large")

// Read reads a file of at most largest bytes; 0: 1 MiB.
func (f *File) Read(largest int64) (*Content, error) {
	text, err := readFile(filepath.Join(f.root, filepath.FromSlash(f.Path)), cmp.Or(largest, usual))
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	c := &Content{File: *f, Digest: hex.EncodeToString(sum[:16])}
	if c.Title, c.Text, err = f.kind.Text(text); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", f.Path, ErrBinary, err)
	}
	if bytes.IndexByte(text, 0) >= 0 {
		return nil, fmt.Errorf("%s: %w", f.Path, ErrBinary)
	}
	return c, nil
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

// Texts are the passages of a file. The title of each is the path of the file, the title of a page or a
// notebook, and the headings above the passage. The payload has the path, the line in which the passage
// begins, from 1 (always 1 in a file that is not read as it stands), the digest of the file, the title,
// the text, root and device, how the file was cut, the number of its passages and a checksum
// ([ReadEntry]). A file without a word has one passage that is empty, so that it is known.
//
// how says how long passages are; without a unit they are made of that of the file's kind.
func (c *Content) Texts(how encode.Splitting) iter.Seq2[encode.Text, error] {
	return func(yield func(encode.Text, error) bool) {
		whole := func(yield func(encode.Text, error) bool) {
			title := c.Path
			if c.Title != "" && !strings.Contains(c.Text, c.Title) { // a heading comes with its passages
				title += " › " + c.Title
			}
			yield(encode.Text{ID: c.Path, Title: title, Text: c.Text}, nil)
		}
		cut := Cut(how)
		how.By = cmp.Or(how.By, c.kind.Unit)
		var parts []encode.Text
		for t, err := range encode.Passages(context.Background(), whole, how) {
			if err != nil {
				yield(t, fmt.Errorf("%s: %w", c.Path, err))
				return
			}
			parts = append(parts, t)
		}
		line, at := 1, 0
		for _, t := range parts {
			own, err := vectors.PassageOf(t.ID, t.Payload)
			if err != nil {
				yield(t, fmt.Errorf("%s: %w", c.Path, err))
				return
			}
			start := 0 // a file that is no longer than a passage is its text, whatever it begins with
			if own != nil {
				start = own.Start
			}
			if start < at { // passages overlap
				line -= strings.Count(c.Text[start:at], "\n")
			} else {
				line += strings.Count(c.Text[at:start], "\n")
			}
			at = start
			if !c.kind.Written { // lines of the text are not those of the file
				line = 1
			}
			if t.Payload, err = c.payload(&t, cut, len(parts), line, own); err != nil {
				yield(t, fmt.Errorf("%s: %w", c.Path, err))
				return
			}
			if !yield(t, nil) {
				return
			}
		}
	}
}
