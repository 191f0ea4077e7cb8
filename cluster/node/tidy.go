package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
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
	applied   map[string]uint64 // of files of generations that are over, which may be needed yet
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
		if a.versions[id] == m.Version {
			continue
		}
		switch {
		case m.Removes(id):
			err = n.sweep(id, a.removeAll)
		case n.removed(id):
			err = n.putAside(id, m.Last)
		case m.ID() == id:
			var done bool
			if done, err = n.dropOver(a, m); !done && err == nil {
				delete(seen, id)
			}
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

// dropOver removes folders of generations that no map gives any more, and of which the node has
// no replica: it was stopped, or away, when they were to be dropped. Of the generation that is
// searched, and the one that is built, everything stays. It tells whether there is nothing left
// to be done as long as the map stays as it is.
func (n *Node) dropOver(a *attic, m *topology.Map) (done bool, err error) {
	dir := filepath.Join(n.c.Dir, m.ID())
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	done = true
	var errs []error
	for _, e := range entries {
		name := generationFolder.FindStringSubmatch(e.Name())
		if !e.IsDir() || name == nil {
			continue
		}
		number, err := strconv.ParseUint(name[1], 10, 64)
		if err != nil || number > m.Last || m.Holds(number) || m.Generation(number) != nil {
			continue // of a map that is to be restored, or wanted
		}
		path := filepath.Join(dir, e.Name())
		if n.has(m.ID(), number) || !n.outlived(a, m, number, path) {
			done = false
			continue
		}
		if err := a.removeAll(path); err != nil {
			errs = append(errs, err)
			continue
		}
		n.log.Info("the files of a generation that is over are gone", "collection", m.ID(), "generation", number)
	}
	return done, errors.Join(errs...)
}

// has tells whether the node has replicas of a generation, which are dropped in their turn.
func (n *Node) has(id string, generation uint64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for k := range n.replicas {
		if k.collection == id && k.generation == generation {
			return true
		}
	}
	return false
}

// shardFile is the name of the file of a replica.
var shardFile = regexp.MustCompile(`^s([0-9]{4})\.plaid$`)

// outlived tells whether nobody needs the files of a generation: it was given up, or the one
// that is searched has every change that they have, as [Node.replaced] has it.
func (n *Node) outlived(a *attic, m *topology.Map, generation uint64, dir string) bool {
	if m.Current == nil || generation > m.Current.Number {
		return true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		name := shardFile.FindStringSubmatch(e.Name())
		if name == nil {
			continue
		}
		path := filepath.Join(dir, e.Name())
		applied, known := a.applied[path]
		if !known {
			err := examine(n.ctx, path, func(snap *index.Snapshot) error {
				last, err := snap.Applied()
				applied = last.Sequence
				return err
			})
			if err != nil && !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrNotIndex) {
				return false
			}
			if a.applied == nil {
				a.applied = map[string]uint64{}
			}
			a.applied[path] = applied
		}
		s, err := strconv.Atoi(name[1])
		if err != nil || !n.complete(m, m.Current.Number, s, applied) {
			return false
		}
	}
	return true
}

// complete tells whether replicas of a shard answer and have applied so much, on the nodes that the
// map gives it: as many as acknowledge a change.
func (n *Node) complete(m *topology.Map, generation uint64, s int, applied uint64) bool {
	if s >= m.Shards() {
		return false
	}
	have := 0
	for _, r := range n.watch.Replicas(m.ID(), generation, s) {
		if slices.Contains(m.Assigned[s], r.Node) && r.Ready && r.Applied >= applied {
			have++
		}
	}
	return have > 0 && have >= min(m.Acks, len(m.Assigned[s]))
}

// sweepUnfinished removes what an earlier life of the node has left that was killed: files that
// were to become objects, and builds.
func (n *Node) sweepUnfinished() error {
	err := os.RemoveAll(filepath.Join(n.c.Dir, buildFolder))
	files, gerr := fs.Glob(os.DirFS(n.c.Dir), "*/g*/*"+checkpointEnd)
	err = errors.Join(err, gerr)
	for _, file := range files {
		err = errors.Join(err, os.Remove(filepath.Join(n.c.Dir, filepath.FromSlash(file))))
	}
	return err
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
