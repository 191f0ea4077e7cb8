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

// attic is what was last seen when the files were tidied, and how folders are removed.
type attic struct {
	versions  map[string]uint64
	removeAll func(path string) error
}

// generationFolder is the name of a folder of replicas.
var generationFolder = regexp.MustCompile(`^g([0-9]+)$`)

// aside is at the end of the names of folders that nobody uses.
const aside = ".aside"

// tidy takes away the files of collections that were removed, also while the node was
// away. Those of one that has lost its name in another way, which takes somebody who
// changes maps by hand, or a node that has come to another cluster, are put aside: they
// may be the last ones. Nothing is done as long as no map has changed. Of replicas that
// have ended, those are returned of which nothing is left to be taken away.
func (n *Node) tidy(a *attic, ended []*replica) (gone []*replica, err error) {
	entries, err := os.ReadDir(n.c.Dir)
	if err != nil {
		return nil, err
	}
	seen := map[string]uint64{}
	failed := map[string]bool{}
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
			err = n.sweep(id, a.removeAll)
		} else {
			err = n.putAside(id, m.Last)
		}
		if err != nil {
			errs = append(errs, err)
			failed[id] = true
			delete(seen, id)
		}
	}
	a.versions = seen
	for _, r := range ended {
		if !failed[r.key.collection] {
			gone = append(gone, r)
		}
	}
	return gone, errors.Join(errs...)
}

// sweep removes the replicas of a collection. The folder may have others that have
// nothing to do with it.
func (n *Node) sweep(id string, removeAll func(path string) error) error {
	dir := filepath.Join(n.c.Dir, id)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if e.IsDir() && generationFolder.MatchString(e.Name()) {
			errs = append(errs, removeAll(filepath.Join(dir, e.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	n.log.Info("the files of a removed collection are gone", "collection", id)
	_ = os.Remove(dir) // if it is empty
	return nil
}

// putAside renames the replicas of a collection but those of generations after last, the
// last one that the map of its name knows. Numbers of generations grow from one collection
// of a name to the next, so that map is older than those replicas: NATS has gone back over
// a removal, say, and they are wanted again when the map is restored.
func (n *Node) putAside(id string, last uint64) error {
	dir := filepath.Join(n.c.Dir, id)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		name := generationFolder.FindStringSubmatch(e.Name())
		if !e.IsDir() || name == nil {
			continue
		}
		if number, err := strconv.ParseUint(name[1], 10, 64); err != nil || number > last {
			continue
		}
		to, err := unused(filepath.Join(dir, e.Name()+aside))
		if err == nil {
			err = os.Rename(filepath.Join(dir, e.Name()), to)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		n.log.Warn("files of a collection that lost its name to another one are put aside", "collection", id, "folder", to)
	}
	return errors.Join(errs...)
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
