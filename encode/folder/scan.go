// Package folder reads the files of a folder as texts: notes, documentation and source
// code, in passages with their line numbers.
//
//	[Scan] → [File]            the files, without those that .gitignore files exclude
//	[File.Read] → [Content]    the content of a file, with a digest
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

// File is a file of a folder.
type File struct {
	// Path is relative to the folder, with slashes: the id of the file's document.
	Path string
	Size int64
	Time time.Time
	// Mode holds the permissions.
	Mode fs.FileMode
	kind encode.Kind
	root string
}

// Content is the content of a file.
type Content struct {
	File
	// Title, which may be "", and Text are read by the kind of the file ([encode.Kind]).
	Title, Text string
	// Digest is a digest of the file, in hexadecimal digits.
	Digest string
	// Root names the folder in payloads, and Device the file system that the file is on ([Device]);
	// "" leaves the field out.
	Root, Device string
}

// Skipped counts the files that were skipped, by reasons.
type Skipped struct {
	Kinds int // not of a kind of text, by their names
	Large int // larger than the limit
	Names int // with paths that cannot be ids: not UTF-8, with control characters, or too long
	// Closed are the paths of files and folders that may not be read, and of folders whose rules
	// are unknown: their files are unknown, too.
	Closed []string
	// Files names the first files that were skipped.
	Files []SkippedFile
	// Rules are paths of .gitignore files that are too large: their folders are in Closed.
	Rules []string
}

// SkippedFile is a file or folder that was skipped, and why.
type SkippedFile struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// maxNamed is how many skipped files are named.
const maxNamed = 100

// AddFile names a skipped file, unless the list is full.
func (p *Skipped) AddFile(path, why string) {
	if len(p.Files) < maxNamed {
		p.Files = append(p.Files, SkippedFile{path, why})
	}
}

// AddClosed adds a file or folder that may not be read.
func (p *Skipped) AddClosed(path string) {
	p.Closed = append(p.Closed, path)
	p.AddFile(path, "it, or its .gitignore, cannot be read")
}

// Count returns the number of skipped files and folders.
func (p *Skipped) Count() int { return p.Kinds + p.Large + p.Names + len(p.Closed) }

// MayHide reports whether a file may still exist, since it is in one of Closed.
func (p *Skipped) MayHide(path string) bool {
	return slices.ContainsFunc(p.Closed, func(closed string) bool {
		below, in := strings.CutPrefix(path, closed)
		return in && (below == "" || below[0] == '/')
	})
}

// defaultMaxFile is the default size of the largest file that is read, in bytes.
const defaultMaxFile = 1 << 20

// ErrFolder reports a path that is not a folder.
var ErrFolder = errors.New("no folder")

// Scan returns the files of a folder that are texts, in the order of their paths. It skips names that
// begin with a dot, and paths that git ignores by the .gitignore files of the folder,
// of those above it in its repository, and by .git/info/exclude. It does not follow links.
// largest is the size of the largest file that is read, in bytes. 0 means 1 MiB. visitDir is called with
// each folder before it is read. It may be nil.
func Scan(
	ctx context.Context, root string, largest int64, visitDir func(path string),
) (files []File, skipped Skipped, err error) {
	info, err := os.Stat(root)
	if err != nil {
		return nil, skipped, err
	}
	if !info.IsDir() {
		return nil, skipped, fmt.Errorf("%s: %w", root, ErrFolder)
	}
	s := scan{ctx: ctx, root: root, largest: cmp.Or(largest, defaultMaxFile), visitDir: visitDir}
	rules, err := s.rulesAbove()
	if err != nil {
		return nil, skipped, err
	}
	err = s.scanDir(nil, rules)
	return s.files, s.skipped, err
}

// scan is the state of a call of Scan.
type scan struct {
	ctx      context.Context
	root     string
	above    []string // names of the path from the top of its repository to the folder
	largest  int64
	visitDir func(string)
	files    []File
	skipped  Skipped
}

// maxRules is the size of the largest .gitignore file that is read, in bytes.
const maxRules = 1 << 20

// rulesAbove finds the repository that the folder is in, sets above, and returns the rules of the folders
// between its top and the folder.
// Rules that ignore the folder itself do not count, since the caller asked for it.
func (s *scan) rulesAbove() (rules *ruleChain, err error) {
	dir, err := filepath.EvalSymlinks(s.root)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return nil, err
	}
	var dirs []string // from the folder to the top
	for {
		dirs = append(dirs, dir)
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			break
		}
		if filepath.Dir(dir) == dir {
			return nil, nil // not in a repository
		}
		dir = filepath.Dir(dir)
	}
	for i := len(dirs) - 1; i > 0; i-- {
		if rules, err = rulesIn(dirs[i], len(s.above), rules); err != nil {
			return nil, err
		}
		s.above = append(s.above, filepath.Base(dirs[i-1]))
	}
	return rules, nil
}

// rulesIn reads the rules of a folder, whose path below the top of its repository has depth names, and
// puts them before those above it.
func rulesIn(dir string, depth int, rules *ruleChain) (*ruleChain, error) {
	for _, path := range []string{excludeFile(dir), filepath.Join(dir, ".gitignore")} { // .gitignore counts more
		if path == "" {
			continue
		}
		text, err := readFile(path, maxRules)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return rules, &rulesError{path, err}
		}
		rules = &ruleChain{above: rules, depth: depth, rules: parseRules(string(text))}
	}
	return rules, nil
}

// rulesError reports a file of rules that cannot be read, so that the ignored files are unknown.
type rulesError struct {
	path string
	err  error
}

func (e *rulesError) Error() string {
	return fmt.Sprintf("%s cannot be read, so that the ignored files are unknown: %v", e.path, e.err)
}

func (e *rulesError) Unwrap() error { return e.err }

// excludeFile returns the file of rules in a repository's .git folder. "" means that dir is not the top
// of a repository. An additional work tree has a file .git that names its folder in the repository.
func excludeFile(dir string) string {
	gitDir := filepath.Join(dir, ".git")
	info, err := os.Lstat(gitDir)
	if err != nil {
		return ""
	}
	if !info.IsDir() {
		text, err := readFile(gitDir, 1<<12)
		target, hasTarget := strings.CutPrefix(strings.TrimSpace(string(text)), "gitdir:")
		if err != nil || !hasTarget {
			return ""
		}
		gitDir = resolvePath(dir, strings.TrimSpace(target))
		if text, err = readFile(filepath.Join(gitDir, "commondir"), 1<<12); err == nil {
			gitDir = resolvePath(gitDir, strings.TrimSpace(string(text)))
		}
	}
	return filepath.Join(gitDir, "info", "exclude")
}

// resolvePath returns a path that may be relative to dir.
func resolvePath(dir, path string) string {
	if path = filepath.FromSlash(path); !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	return path
}

// scanDir scans a folder, whose path below the root consists of names. above are the rules of the folders
// above it.
func (s *scan) scanDir(names []string, above *ruleChain) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	// Read the folder and its rules.
	dir := filepath.Join(append([]string{s.root}, names...)...)
	if s.visitDir != nil { // before the folder is read, so that a watcher sees later changes
		s.visitDir(dir)
	}
	entries, err := os.ReadDir(dir)
	switch {
	case err == nil:
	case len(names) > 0 && errors.Is(err, fs.ErrNotExist):
		return nil // removed meanwhile
	case len(names) > 0 && errors.Is(err, fs.ErrPermission):
		s.skipClosed(names)
		return nil
	default:
		return err
	}
	rules, err := rulesIn(dir, len(s.above)+len(names), above)
	var unread *rulesError
	switch {
	case err == nil:
	case len(names) > 0 && errors.Is(err, fs.ErrPermission):
		s.skipClosed(names)
		return nil
	case len(names) > 0 && errors.Is(err, ErrLarge) && errors.As(err, &unread):
		s.skipClosed(names)
		s.skipped.Rules = append(s.skipped.Rules, unread.path)
		return nil
	default:
		return err
	}
	// Scan the folders in it, and select its files.
	for _, e := range entries {
		name := e.Name()
		child := append(names[:len(names):len(names)], name)
		if strings.HasPrefix(name, ".") || rules.ignores(slices.Concat(s.above, child), e.IsDir()) {
			continue
		}
		if e.IsDir() {
			if err := s.scanDir(child, rules); err != nil {
				return err
			}
			continue
		}
		if !e.Type().IsRegular() {
			continue
		}
		path := strings.Join(child, "/")
		k, ok := encode.KindByName(name)
		if !ok {
			s.skipped.Kinds++
			s.skipped.AddFile(path, "no kind of text by its name")
			continue
		}
		if !canBeID(path) {
			s.skipped.Names++
			s.skipped.AddFile(path, "the path cannot be an id")
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if errors.Is(err, fs.ErrPermission) {
			s.skipClosed(child)
			continue
		} else if err != nil {
			return err
		}
		if info.Size() > s.largest {
			s.skipped.Large++
			s.skipped.AddFile(path, fmt.Sprintf("%d bytes, more than --max-file", info.Size()))
			continue
		}
		s.files = append(s.files, File{
			Path: path,
			Size: info.Size(),
			Time: info.ModTime(),
			Mode: info.Mode(),
			kind: k,
			root: s.root,
		})
	}
	return nil
}

// skipClosed skips a file or folder that may not be read. Its documents in the index stay.
func (s *scan) skipClosed(names []string) { s.skipped.AddClosed(strings.Join(names, "/")) }

// canBeID reports whether a path can be a document's id: a path that cannot must not keep the other files
// out of an index.
func canBeID(path string) bool {
	return vectors.CheckDocument(vectors.Draft{ID: path, Split: true}) == nil
}

// ErrBinary reports a file whose bytes are not text, or not of the kind that its name says.
var ErrBinary = errors.New("no text")

// ErrLarge reports a file that has grown beyond the limit since it was found.
var ErrLarge = errors.New("too large")

// Read reads a file of at most largest bytes. 0 means 1 MiB.
func (f *File) Read(largest int64) (*Content, error) {
	text, err := readFile(filepath.Join(f.root, filepath.FromSlash(f.Path)), cmp.Or(largest, defaultMaxFile))
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

// readFile reads a regular file of at most limit bytes.
func readFile(path string, limit int64) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w", path, fs.ErrNotExist) // reading a pipe could block
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%s: %w: more than %d bytes", path, ErrLarge, limit)
	}
	return text, err
}

// Texts yields the passages of a file. The title of each is the path of the file, the title of a page or
// notebook, and the headings above the passage. The payload has the path, the line in which the passage
// begins, from 1 (always 1 in a file that is converted to text), the digest of the file, the title,
// the text, root and device, how the file was cut, the number of its passages and a checksum
// ([ReadEntry]). A file without words has one empty passage, so that the index knows the file.
//
// how sets the length of passages. Its unit defaults to that of the file's kind.
func (c *Content) Texts(how encode.Splitting) iter.Seq2[encode.Text, error] {
	return func(yield func(encode.Text, error) bool) {
		document := func(yield func(encode.Text, error) bool) {
			title := c.Path
			if c.Title != "" && !strings.Contains(c.Text, c.Title) { // a heading is part of its passages' titles
				title += " › " + c.Title
			}
			yield(encode.Text{ID: c.Path, Title: title, Text: c.Text}, nil)
		}
		cut := Cut(how)
		how.By = cmp.Or(how.By, c.kind.Unit)
		var passages []encode.Text
		for t, err := range encode.Passages(context.Background(), document, how) {
			if err != nil {
				yield(t, fmt.Errorf("%s: %w", c.Path, err))
				return
			}
			passages = append(passages, t)
		}
		line, offset := 1, 0 // of the passage before
		for _, t := range passages {
			passage, err := vectors.PassageFromPayload(t.ID, t.Payload)
			if err != nil {
				yield(t, fmt.Errorf("%s: %w", c.Path, err))
				return
			}
			start := 0 // a file that is not split begins with its first line
			if passage != nil {
				start = passage.Start
			}
			if start < offset { // passages overlap
				line -= strings.Count(c.Text[start:offset], "\n")
			} else {
				line += strings.Count(c.Text[offset:start], "\n")
			}
			offset = start
			if !c.kind.Verbatim { // the lines of the text are not those of the file
				line = 1
			}
			if t.Payload, err = c.payload(&t, cut, len(passages), line, passage); err != nil {
				yield(t, fmt.Errorf("%s: %w", c.Path, err))
				return
			}
			if !yield(t, nil) {
				return
			}
		}
	}
}
