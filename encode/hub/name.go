package hub

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Name is the name of a model at a hub: ORG/NAME, and a revision of it.
type Name struct {
	Repo     string
	Revision string // a branch, a tag or a commit. "" means main
}

// mainRevision is the default revision.
const mainRevision = "main"

var (
	repoPattern     = regexp.MustCompile(`^[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*$`)
	revisionPattern = regexp.MustCompile(`^\w[\w.+/-]*$`)
	commitPattern   = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// Parse parses ORG/NAME or ORG/NAME@REVISION. It returns false for names that no hub can have, such
// as paths that begin with a dot or a slash.
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

// ParseUnlessPath parses a hub's name that a user typed instead of a folder. It returns false if a file or
// folder of that name exists: folders are preferred.
func ParseUnlessPath(dir string) (Name, bool) {
	n, ok := Parse(dir)
	if !ok {
		return n, false
	}
	_, err := os.Lstat(dir)
	return n, os.IsNotExist(err)
}

// String returns the name as Parse reads it.
func (n Name) String() string {
	if n.Revision == "" {
		return n.Repo
	}
	return n.Repo + "@" + n.Revision
}

// At returns the name of the model at a commit.
func (n Name) At(commit string) Name { return Name{n.Repo, commit} }

// revision returns the revision, or the default one.
func (n Name) revision() string {
	if n.Revision == "" {
		return mainRevision
	}
	return n.Revision
}

// folder returns the name of the model's folder in a cache.
func (n Name) folder() string { return "models--" + strings.ReplaceAll(n.Repo, "/", "--") }

// downloadCommand returns the command of huggingface_hub that fetches the model.
func (n Name) downloadCommand() string {
	if n.Revision == "" {
		return "hf download " + n.Repo
	}
	return "hf download " + n.Repo + " --revision " + n.Revision
}
