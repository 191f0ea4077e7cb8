package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/plaid-ir/plaid/cluster/topology"
)

// removed tells whether the collection of an identity is known not to be any more, or
// another one has its name. That there is no map does not count: it may have been lost,
// and be restored.
func (n *Node) removed(id string) bool {
	m, err := n.watch.Last(topology.NameOf(id))
	return err == nil && (m.Removes(id) || !m.Removed && m.ID() != id)
}

// attic is what was last seen when the files were tidied.
type attic struct{ versions map[string]uint64 }

// generationFolder is the name of a folder of replicas.
var generationFolder = regexp.MustCompile(`^g[0-9]+$`)

// aside is at the end of the names of folders that nobody uses.
const aside = ".aside"

// tidy takes away the files of collections that were removed, also while the node was
// away. Those of one that has lost its name in another way, which takes somebody who
// changes maps by hand, or a node that has come to another cluster, are put aside: they
// may be the last ones. Nothing is done as long as no map has changed.
func (n *Node) tidy(a *attic) error {
	entries, err := os.ReadDir(n.c.Dir)
	if err != nil {
		return err
	}
	seen := map[string]uint64{}
	var errs []error
	for _, e := range entries {
		id := e.Name()
		if !e.IsDir() || topology.CheckID(id) != nil {
			continue
		}
		m, err := n.watch.Last(topology.NameOf(id))
		if err != nil {
			continue
		}
		seen[id] = m.Version
		if a.versions[id] == m.Version || !n.removed(id) {
			continue
		}
		if m.Removes(id) {
			err = n.sweep(id)
		} else {
			err = n.putAside(id)
		}
		if err != nil {
			errs = append(errs, err)
			delete(seen, id)
		}
	}
	a.versions = seen
	return errors.Join(errs...)
}

// sweep removes the replicas of a collection. The folder may have others that have
// nothing to do with it.
func (n *Node) sweep(id string) error {
	dir := filepath.Join(n.c.Dir, id)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() && generationFolder.MatchString(e.Name()) {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	n.log.Info("the files of a removed collection are gone", "collection", id)
	_ = os.Remove(dir) // if it is empty
	return nil
}

// putAside renames the replicas of a collection.
func (n *Node) putAside(id string) error {
	dir := filepath.Join(n.c.Dir, id)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() || !generationFolder.MatchString(e.Name()) {
			continue
		}
		to, err := unused(filepath.Join(dir, e.Name()+aside))
		if err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(dir, e.Name()), to); err != nil {
			return err
		}
		n.log.Warn("files of a collection that lost its name to another one are put aside", "collection", id, "folder", to)
	}
	return nil
}

// unused is a path at which there is nothing, with a number at its end if need be.
func unused(path string) (string, error) {
	for i := 1; ; i++ {
		try := path
		if i > 1 {
			try += strconv.Itoa(i)
		}
		if _, err := os.Lstat(try); errors.Is(err, fs.ErrNotExist) {
			return try, nil
		} else if err != nil {
			return "", err
		}
	}
}
