package hub

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Name is how a hub names a model: ORG/NAME, and a revision of it.
type Name struct {
	Repo     string
	Revision string // a branch, a tag or a commit; "" means main
}

// main is the revision that counts where none is named.
const mainRevision = "main"

var (
	repoPattern     = regexp.MustCompile(`^[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*$`)
	revisionPattern = regexp.MustCompile(`^\w[\w.+/-]*$`)
	commitPattern   = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// Parse reads ORG/NAME or ORG/NAME@REVISION. It reports false for names that no hub could have, such as
// paths that begin with a dot or a slash.
func Parse(s string) (Name, bool) {
	repo, revision, pinned := strings.Cut(s, "@")
	switch {
	case !repoPattern.MatchString(repo), len(repo) > 200, strings.Contains(repo, "--"), strings.Contains(repo, ".."),
		strings.HasSuffix(repo, ".git"), strings.HasSuffix(repo, "."), strings.HasSuffix(repo, "-"),
		strings.Contains(repo, "./"), strings.Contains(repo, "-/"):
		return Name{}, false
	case pinned && (!revisionPattern.MatchString(revision) || len(revision) > 200 || !filepath.IsLocal(revision)),
		strings.Contains(revision, ".."), strings.Contains(revision, "//"), strings.HasSuffix(revision, "/"):
		return Name{}, false
	}
	return Name{repo, revision}, true
}

// Named reads a name of a hub that a user gives in the place of a folder. It reports false
// for whatever is there: a folder goes before a name.
func Named(dir string) (Name, bool) {
	n, ok := Parse(dir)
	if !ok {
		return n, false
	}
	_, err := os.Lstat(dir)
	return n, os.IsNotExist(err)
}

// String is the name as Parse reads it.
func (n Name) String() string {
	if n.Revision == "" {
		return n.Repo
	}
	return n.Repo + "@" + n.Revision
}

// At is the name of the model at a commit.
func (n Name) At(commit string) Name { return Name{n.Repo, commit} }

// revision is the one that is asked for.
func (n Name) revision() string {
	if n.Revision == "" {
		return mainRevision
	}
	return n.Revision
}

// folder is the name of its folder in a cache.
func (n Name) folder() string { return "models--" + strings.ReplaceAll(n.Repo, "/", "--") }

// download is the command with which another program fetches the model.
func (n Name) download() string {
	if n.Revision == "" {
		return "hf download " + n.Repo
	}
	return "hf download " + n.Repo + " --revision " + n.Revision
}
