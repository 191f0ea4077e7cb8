package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// watchModel is a folder with mounts, an index that others change, and a picture of both, which
// says what the index has to have after each sync.
type watchModel struct {
	t    *testing.T
	rng  *rand.Rand
	sync *folderSync
	log  []string

	mounts []*fakeMount // the first is the folder itself
	ticks  int
	files  map[string]string // that can be seen, by path

	has     map[string]pictured // documents of files
	strange map[string]string   // payloads of other documents, by id
	copies  []indexCopy
}

// pictured is what the index has of a file.
type pictured struct {
	text, cut, device string
	broken            bool // others have changed or deleted a part of it
	noted             bool // others have added a field
}

// fakeMount is a folder where a file system may be mounted. What is on it, or below it, is aside
// while it cannot be seen.
type fakeMount struct {
	dir, aside string
	device     int
	mounted    bool
}

type indexCopy struct {
	file    []byte
	has     map[string]pictured
	strange map[string]string
}

func newWatchModel(t *testing.T, seed uint64) *watchModel {
	m := &watchModel{
		t: t, rng: rand.New(rand.NewPCG(seed, 7)), sync: newSync(t),
		files: map[string]string{}, has: map[string]pictured{}, strange: map[string]string{},
	}
	m.sync.app.quiet, m.sync.splitting.Window = true, 8
	for i, dir := range []string{".", "m", "d/n"} {
		mount := &fakeMount{dir: dir, aside: filepath.Join(t.TempDir(), "aside"), device: 10 + i, mounted: true}
		m.mounts = append(m.mounts, mount)
		require.NoError(t, os.MkdirAll(m.at(dir), 0o777))
		require.NoError(t, os.Mkdir(mount.aside, 0o777))
	}
	m.sync.device = m.device
	return m
}

func (m *watchModel) at(p string) string { return filepath.Join(m.sync.root, filepath.FromSlash(p)) }

func (m *watchModel) say(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf(format, args...))
}

func (m *watchModel) one(of ...string) string { return of[m.rng.IntN(len(of))] }

// device is that of the innermost file system that is mounted.
func (m *watchModel) device(dir string) (string, error) {
	if _, err := os.Lstat(dir); err != nil {
		return "", err
	}
	home, err := filepath.EvalSymlinks(m.sync.root)
	require.NoError(m.t, err)
	rel, err := filepath.Rel(home, dir)
	require.NoError(m.t, err)
	return m.deviceOf(filepath.ToSlash(rel)), nil
}

func (m *watchModel) deviceOf(dir string) string {
	device := 1
	for _, mount := range m.mounts {
		if !mount.mounted {
			if mount.dir == "." {
				break // with all that is mounted below it
			}
			continue
		}
		if mount.dir == "." || dir == mount.dir || strings.HasPrefix(dir, mount.dir+"/") {
			device = mount.device
		}
	}
	return fmt.Sprint(device)
}

// put writes a file.
func (m *watchModel) put(name, text string) {
	require.NoError(m.t, os.MkdirAll(filepath.Dir(m.at(name)), 0o777))
	require.NoError(m.t, os.WriteFile(m.at(name), []byte(text), 0o666))
	if m.rng.IntN(2) == 0 { // of a while ago: its time tells that it has not changed
		m.ticks++
		at := time.Now().Add(time.Duration(m.ticks-100_000) * time.Second)
		require.NoError(m.t, os.Chtimes(m.at(name), at, at))
	}
}

func (m *watchModel) name() string {
	return m.one("", "", "d/", "m/", "m/deep/", "d/n/", "d/n/o/") + m.one("a", "b", "c", "e", "f") + m.one(".md", ".txt")
}

func (m *watchModel) text() string {
	if m.rng.IntN(12) == 0 {
		return ""
	}
	var b strings.Builder
	for range 1 + m.rng.IntN(5) {
		b.WriteString(m.one("# Cats\n\n", "Cats sleep by day. ", "Dogs bark at night, and the owls fly. ",
			"Fish swim.\n\n", "## Birds\n\nA bird sings in the tree. "))
	}
	return b.String()
}

// swap mounts or unmounts.
func (m *watchModel) swap(mount *fakeMount) {
	if mount != m.mounts[0] && !m.mounts[0].mounted {
		return // its place cannot be seen
	}
	at, third := m.at(mount.dir), mount.aside+"-too"
	require.NoError(m.t, os.MkdirAll(at, 0o777))
	require.NoError(m.t, os.Rename(at, third))
	require.NoError(m.t, os.Rename(mount.aside, at))
	require.NoError(m.t, os.Rename(third, mount.aside))
	mount.mounted = !mount.mounted
	if mount.mounted && m.rng.IntN(3) == 0 { // a number of the time of the mount
		m.ticks++
		mount.device = 100 + m.ticks
	}
	if !mount.mounted && mount.dir != "." && m.rng.IntN(3) == 0 {
		_ = os.Remove(at) // with the place where it was, if there is nothing
	}
}

// see finds the files that can be seen.
func (m *watchModel) see() {
	m.files = map[string]string{}
	require.NoError(m.t, filepath.WalkDir(m.sync.root, func(at string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(at)
		rel, _ := filepath.Rel(m.sync.root, at)
		m.files[filepath.ToSlash(rel)] = string(text)
		return err
	}))
}

// change changes the folder, mounts, or the index as others do.
func (m *watchModel) change() {
	switch op := m.rng.IntN(20); op {
	case 0, 1, 2:
		for range 1 + m.rng.IntN(4) {
			name := m.name()
			m.say("write %s", name)
			m.put(name, m.text())
		}
	case 3:
		m.say("write many")
		for range 24 {
			m.put(m.name(), m.text())
		}
	case 4, 5:
		m.see()
		share := m.one("1", "3", "10")
		m.say("delete %s in 10", share)
		for _, name := range slices.Sorted(maps.Keys(m.files)) {
			if m.rng.IntN(10) < len(share)*len(share)*3-2 && (share != "1" || m.rng.IntN(5) == 0) {
				require.NoError(m.t, os.Remove(m.at(name)))
			}
		}
	case 6:
		m.see()
		for _, name := range slices.Sorted(maps.Keys(m.files)) {
			if m.rng.IntN(4) == 0 {
				to := m.name()
				m.say("rename %s %s", name, to)
				require.NoError(m.t, os.MkdirAll(filepath.Dir(m.at(to)), 0o777))
				require.NoError(m.t, os.Rename(m.at(name), m.at(to)))
				m.ticks++ // another file under a known name has another time
				at := time.Now().Add(time.Duration(m.ticks-100_000) * time.Second)
				require.NoError(m.t, os.Chtimes(m.at(to), at, at))
				break
			}
		}
	case 7: // no text any more
		name := m.name()
		m.say("binary %s", name)
		m.put(name, "a\x00b")
	case 8, 9, 10:
		mount := m.mounts[m.rng.IntN(len(m.mounts))]
		m.swap(mount)
		m.say("%s: mounted %v, device %d", mount.dir, mount.mounted, mount.device)
	case 11:
		m.say("all devices have other numbers")
		for _, mount := range m.mounts {
			m.ticks++
			mount.device = 100 + m.ticks
		}
	case 12:
		m.say("the index is removed")
		require.NoError(m.t, os.RemoveAll(m.sync.path))
		m.has, m.strange = map[string]pictured{}, map[string]string{}
	case 13:
		if len(m.copies) > 0 {
			c := m.copies[m.rng.IntN(len(m.copies))]
			m.say("an older copy of the index")
			if m.rng.IntN(2) == 0 {
				require.NoError(m.t, os.WriteFile(m.sync.path, c.file, 0o666))
			} else {
				require.NoError(m.t, os.WriteFile(m.sync.path+".new", c.file, 0o666))
				require.NoError(m.t, os.Rename(m.sync.path+".new", m.sync.path))
			}
			m.has, m.strange = maps.Clone(c.has), maps.Clone(c.strange)
		}
	default:
		m.others()
	}
}

// others changes the index as another command does.
func (m *watchModel) others() {
	if _, err := os.Stat(m.sync.path); err != nil {
		return
	}
	ctx, t := m.t.Context(), m.t
	ix, err := index.Open(ctx, m.sync.path, &index.Options{Write: true, LockTimeout: time.Minute})
	require.NoError(t, err)
	defer func() { require.NoError(t, ix.Close()) }()
	names := slices.Sorted(maps.Keys(m.has))
	if len(names) == 0 {
		return
	}
	name := names[m.rng.IntN(len(names))]
	set := func(field, value string) {
		e, err := condition.Parse("path = ? AND digest IS NOT NULL")
		require.NoError(t, err)
		where, err := e.Bind(name)
		require.NoError(t, err)
		_, err = ix.UpdatePayload(ctx, where, condition.Fields{field: json.RawMessage(value)})
		require.NoError(t, err)
	}
	is := m.has[name]
	ops := []string{"delete", "delete one", "delete some", "text", "digest", "line", "path", "note", "strange", "compact"}
	switch op := m.one(ops...); op {
	case "delete":
		m.say("others delete %s", name)
		_, missing, err := ix.Delete(ctx, []string{name})
		require.NoError(t, err)
		require.Empty(t, missing)
		delete(m.has, name)
	case "delete one":
		docs := m.documents(ix)[name]
		id := docs[m.rng.IntN(len(docs))].ID
		m.say("others delete %s of %d", id, len(docs))
		_, _, err := ix.Delete(ctx, []string{id})
		require.NoError(t, err)
		is.broken = true
		m.has[name] = is
		if len(docs) == 1 {
			delete(m.has, name)
		}
	case "delete some":
		m.say("others delete some")
		var gone []string
		for _, name := range names {
			if m.rng.IntN(3) == 0 {
				gone = append(gone, name)
				delete(m.has, name)
			}
		}
		_, _, err := ix.Delete(ctx, gone)
		require.NoError(t, err)
	case "text", "digest":
		m.say("others change the %s of %s", op, name)
		set(op, `"other"`)
		is.broken = true
		m.has[name] = is
	case "line":
		m.say("others make a text of the line of %s", name)
		set(op, `"one"`)
		is.broken = true
		m.has[name] = is
	case "path":
		m.say("others change the path of %s", name)
		before := m.documents(ix)[name]
		set(op, `"none/of/these"`)
		for _, d := range before {
			m.strange[d.ID] = ""
		}
		delete(m.has, name)
	case "note":
		m.say("others note something about %s", name)
		set(op, `"noted"`)
		is.noted = true
		m.has[name] = is
	case "strange":
		id := m.one("strange", "stranger")
		m.say("others add %s", id)
		payload := fmt.Sprintf(`{"path":"x.md","digest":"none","n":%d}`, m.rng.IntN(100))
		texts := func(yield func(encode.Text, error) bool) {
			yield(encode.Text{ID: id, Text: "A stranger.", Payload: []byte(payload)}, nil)
		}
		spool, _, err := encode.Spool(ctx, m.sync.encoder, texts, "", nil)
		require.NoError(t, err)
		_, err = ix.Add(ctx, spool, &index.AddOptions{Replace: true})
		require.NoError(t, errors.Join(err, spool.Close()))
		m.strange[id] = payload
	case "compact":
		m.say("others compact")
		require.NoError(t, ix.Compact(ctx, nil))
	}
}
