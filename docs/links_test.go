package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	markdownLink = regexp.MustCompile(`\]\(([^()\s]+)(?:\s+"[^"]*")?\)`)
	htmlLink     = regexp.MustCompile(`(?:src|srcset|href)="([^"]+)"`)
	pageInText   = regexp.MustCompile(`docs/[A-Za-z0-9/_-]+\.(?:md|svg|png)`)
	heading      = regexp.MustCompile(`^#{1,6}\s+(.+?)\s*#*$`)
	htmlAnchor   = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	codeSpan     = regexp.MustCompile("`[^`\n]+`")
)

// markdownFiles are all pages of the repository, by path from its root.
func markdownFiles(t *testing.T) []string {
	return filesWith(t, ".md")
}

// filesWith are the files of the repository with one of the suffixes, by path from its root.
func filesWith(t *testing.T, suffixes ...string) []string {
	var files []string
	require.NoError(t, filepath.WalkDir("..", func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != ".." && (strings.HasPrefix(name, ".") && name != ".ci" || name == "testdata" || name == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		for _, suffix := range suffixes {
			if strings.HasSuffix(name, suffix) {
				rel, err := filepath.Rel("..", path)
				files = append(files, rel)
				return err
			}
		}
		return nil
	}))
	return files
}

// line is a line of a page; code says that it is in a fenced block.
type line struct {
	number int
	text   string
	code   bool
}

func readLines(t *testing.T, path string) []line {
	text, err := os.ReadFile(filepath.Join("..", path))
	require.NoError(t, err)
	var lines []line
	fence := ""
	for i, s := range strings.Split(string(text), "\n") {
		trimmed := strings.TrimSpace(s)
		in := fence != ""
		switch {
		case fence == "" && strings.HasPrefix(trimmed, "```"):
			fence, in = "```", true
		case fence != "" && trimmed == fence:
			fence = ""
		}
		lines = append(lines, line{i + 1, s, in})
	}
	require.Empty(t, fence, "%s: a fenced block does not end", path)
	return lines
}

// anchors are the names to which a link to a page may lead, made of its headings as code hosts and
// the site do.
func anchors(t *testing.T, path string) map[string]bool {
	names := map[string]bool{}
	seen := map[string]int{}
	for _, l := range readLines(t, path) {
		if l.code {
			continue
		}
		for _, m := range htmlAnchor.FindAllStringSubmatch(l.text, -1) {
			names[m[1]] = true
		}
		m := heading.FindStringSubmatch(l.text)
		if m == nil {
			continue
		}
		var slug strings.Builder
		for _, r := range strings.ToLower(m[1]) {
			switch {
			case r == ' ':
				slug.WriteByte('-')
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				slug.WriteRune(r)
			}
		}
		name := slug.String()
		assert.Zero(t, seen[name], "%s:%d: a second heading %q: links cannot tell them apart", path, l.number, m[1])
		seen[name]++
		names[name] = true
	}
	return names
}

// Every link inside the repository leads to a file that is there, and to a heading that is there.
func TestLinksLeadSomewhere(t *testing.T) {
	known := map[string]map[string]bool{}
	checked := 0
	for _, page := range markdownFiles(t) {
		for _, l := range readLines(t, page) {
			if l.code {
				continue
			}
			text := codeSpan.ReplaceAllString(l.text, "")
			for _, m := range append(markdownLink.FindAllStringSubmatch(text, -1), htmlLink.FindAllStringSubmatch(text, -1)...) {
				target := m[1]
				if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
					continue
				}
				checked++
				file, anchor, _ := strings.Cut(target, "#")
				path := page
				if file != "" {
					path = filepath.Join(filepath.Dir(page), file)
				}
				if _, err := os.Stat(filepath.Join("..", path)); !assert.NoError(t, err, "%s:%d: link to %s", page, l.number, target) {
					continue
				}
				if anchor == "" || !strings.HasSuffix(path, ".md") {
					continue
				}
				if known[path] == nil {
					known[path] = anchors(t, path)
				}
				assert.True(t, known[path][anchor], "%s:%d: %s has no heading %q", page, l.number, path, anchor)
			}
		}
	}
	assert.Greater(t, checked, 50)
}

// Pages of docs/ that comments, help and scripts name are there.
func TestNamedPagesAreThere(t *testing.T) {
	named := 0
	for _, file := range filesWith(t, ".go", ".sh", ".py", ".md", ".toml", ".yaml", ".service", ".rs", ".cu", ".cuh") {
		text, err := os.ReadFile(filepath.Join("..", file))
		require.NoError(t, err)
		for _, m := range pageInText.FindAllString(string(text), -1) {
			named++
			_, err := os.Stat(filepath.Join("..", m))
			assert.NoError(t, err, "%s names %s", file, m)
		}
	}
	assert.Greater(t, named, 20)
}

// A page that no index names is not found; neither is one that the site does not list.
func TestIndexNamesEveryPage(t *testing.T) {
	for _, dir := range []string{"docs", "docs/lab"} {
		index, err := os.ReadFile(filepath.Join("..", dir, "README.md"))
		require.NoError(t, err)
		site, err := os.ReadFile(filepath.Join("site", "mkdocs.yml"))
		require.NoError(t, err)
		pages, err := filepath.Glob(filepath.Join("..", dir, "*.md"))
		require.NoError(t, err)
		for _, page := range pages {
			assert.Contains(t, string(site), ": "+dir+"/"+filepath.Base(page)+"\n", "docs/site/mkdocs.yml")
			if name := filepath.Base(page); name != "README.md" {
				assert.Contains(t, string(index), "]("+name+")", "%s/README.md", dir)
			}
		}
	}
}

// Pages are read raw too, and compared line by line: lines are short, but for tables and what programs
// print.
func TestLinesAreShort(t *testing.T) {
	const width, cell = 100, 180
	for _, page := range markdownFiles(t) {
		if !strings.HasPrefix(page, "docs/") && strings.Contains(page, "/") && page != "eval/peers/README.md" {
			continue
		}
		block := ""
		for _, l := range readLines(t, page) {
			text := strings.TrimSpace(l.text)
			if strings.HasPrefix(text, "```") {
				block = strings.TrimPrefix(text, "```")
				continue
			}
			switch long := utf8.RuneCountInString(l.text) > width; {
			case !l.code && strings.HasPrefix(text, "|"):
				for _, c := range strings.Split(text, "|") {
					assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSpace(c)), cell, "%s:%d: a cell of more than %d characters", page, l.number, cell)
				}
			case l.code && block != "sh" && block != "go": // what a program prints
			case long && strings.ContainsRune(text, ' '):
				assert.Fail(t, "long line", "%s:%d: more than %d characters", page, l.number, width)
			}
		}
	}
}
