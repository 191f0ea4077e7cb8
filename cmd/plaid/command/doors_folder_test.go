package command

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/folder"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/documents"
)

// folderDoor is that of a folder that is watched, and whose index other commands change too.
type folderDoor struct {
	texts
	sync *folderSync
}

// fileNames look like passages where the ends of names let them.
var fileNames = []string{"page.txt", "page.txt#0.txt", "readme", "a#b.md", "sub/readme"}

func newFolderDoor(t *rapid.T, dir string, model *encode.Encoder) *folderDoor {
	var out bytes.Buffer
	s := &folderSync{
		app:  newApp(streams{out: &out, err: &out}, nil),
		path: filepath.Join(dir, "x.plaid"), root: filepath.Join(dir, "folder"),
		encoder: model, device: folder.Device,
	}
	s.app.lockTimeout = time.Minute
	require.NoError(t, os.MkdirAll(filepath.Join(s.root, "sub"), 0o700))
	config := model.Config()
	s.splitting = encode.Splitting{Model: &config, Window: 4}
	return &folderDoor{sync: s}
}

// strangers are ids of documents that other commands store. Passages of files are called so, too.
var strangers = []string{"x", "x#0", "readme#1"}

func (d *folderDoor) changes() map[string]func(*rapid.T, *documents.Model) change {
	all := append(slices.Clone(fileNames), strangers...)
	changes := map[string]func(*rapid.T, *documents.Model) change{"look": d.look, "look too": d.look}
	type picture = *documents.Model
	others := map[string]func(*filesDoor, *rapid.T, picture) change{
		"add":          func(f *filesDoor, t *rapid.T, _ picture) change { return f.add(t, true, false, 0) },
		"delete":       func(f *filesDoor, t *rapid.T, _ picture) change { return f.delete(drawIDs(t, all)) },
		"delete where": func(f *filesDoor, t *rapid.T, p picture) change { return f.delete(drawWhere(t, p, all)) },
		"set":          func(f *filesDoor, t *rapid.T, _ picture) change { return f.setN(t, drawIDs(t, all)) },
		"set where":    func(f *filesDoor, t *rapid.T, p picture) change { return f.setN(t, drawWhere(t, p, all)) },
	}
	for name, draw := range others {
		changes["another "+name] = func(t *rapid.T, p *documents.Model) change {
			f := &filesDoor{texts: d.texts, names: strangers, dim: d.sync.encoder.Dim()}
			c := draw(f, t, p)
			d.texts = f.texts
			return d.inFile(f, c)
		}
	}
	return changes
}

// inFile makes a change of another command, where there is an index.
func (d *folderDoor) inFile(f *filesDoor, c change) change {
	_, err := os.Stat(d.sync.path)
	there := err == nil
	in := change{once: !there}
	in.apply = func(p *documents.Model) outcome {
		if !there {
			return outcome{}
		}
		return c.apply(p)
	}
	in.do = func(ctx context.Context) (o outcome, err error) {
		if !there {
			return outcome{}, nil
		}
		err = d.use(ctx, func(ix *index.Index) (err error) {
			f.ix = ix
			o, err = c.do(ctx)
			return err
		})
		return o, err
	}
	return in
}

// look changes some files and has the index follow.
func (d *folderDoor) look(t *rapid.T, _ *documents.Model) change {
	for range rapid.IntRange(0, 3).Draw(t, "files") {
		path := filepath.Join(d.sync.root, rapid.SampledFrom(fileNames).Draw(t, "file"))
		if rapid.Bool().Draw(t, "remove") {
			if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
				require.NoError(t, err)
			}
			continue
		}
		require.NoError(t, os.WriteFile(path, []byte(d.draw(t)), 0o600))
	}
	return change{
		// Where others change the index meanwhile it looks again: of two others, one may come between
		// its looks, and another one before it.
		once: true,
		apply: func(p *documents.Model) outcome {
			changed, gone := d.differ(t, p)
			if len(changed) == 0 {
				chosen, _ := p.Select(gone...)
				p.Delete(chosen)
				return outcome{}
			}
			_, err := p.Add(changed, documents.Addition{Replace: true, Delete: gone})
			return outcome{Refused: err != nil}
		},
		do: func(ctx context.Context) (outcome, error) {
			d.sync.allowEmpty = true // however many files have gone
			_, err := d.sync.syncUntilStable(ctx)
			if errors.Is(err, errNothingToIndex) {
				err = nil
			}
			return taken(outcome{}, err)
		},
	}
}

// differ returns the parts of files that a picture has otherwise, but for their numbers, and the
// documents of files that are not there.
func (d *folderDoor) differ(t *rapid.T, p *documents.Model) (changed []documents.Arrival, gone []string) {
	want := map[string][]documents.Arrival{}
	files, _, err := folder.Scan(context.Background(), d.sync.root, 0, nil)
	require.NoError(t, err)
	for i := range files {
		c, err := files[i].Read(1 << 20)
		require.NoError(t, err)
		for text, err := range c.Texts(d.sync.splitting) {
			require.NoError(t, err)
			part, err := partOf(text.ID, text.Payload)
			require.NoError(t, err)
			want[c.Path] = append(want[c.Path], documents.Arrival{Part: part})
		}
	}
	for _, name := range fileNames {
		var has []documents.Arrival
		for _, part := range p.Parts {
			if part.N = 0; part.Document() == name {
				has = append(has, documents.Arrival{Part: part})
			}
		}
		switch {
		case len(want[name]) == 0 && len(has) > 0:
			gone = append(gone, name)
		case !slices.Equal(want[name], has):
			changed = append(changed, want[name]...)
		}
	}
	return changed, gone
}

func (d *folderDoor) sorted() {}

// use opens the index, if there is one.
func (d *folderDoor) use(ctx context.Context, use func(*index.Index) error) error {
	if _, err := os.Stat(d.sync.path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return d.sync.app.open(ctx, d.sync.path, true, use)
}

// files is what is done to an index file while it is open.
func (d *folderDoor) files(ctx context.Context, do func(*filesDoor) error) error {
	return d.use(ctx, func(ix *index.Index) error { return do(&filesDoor{ix: ix, dim: d.sync.encoder.Dim()}) })
}

func (d *folderDoor) parts(ctx context.Context) (parts []documents.Part, err error) {
	err = d.files(ctx, func(f *filesDoor) (err error) {
		parts, err = f.parts(ctx)
		return err
	})
	return arranged(d, parts), err
}

func (d *folderDoor) count(ctx context.Context) (docs, passages int, err error) {
	err = d.files(ctx, func(f *filesDoor) (err error) {
		docs, passages, err = f.count(ctx)
		return err
	})
	return docs, passages, err
}

func (d *folderDoor) find(ctx context.Context, words []string) (ids [][]string, err error) {
	ids = make([][]string, len(words))
	err = d.files(ctx, func(f *filesDoor) (err error) {
		ids, err = f.find(ctx, words)
		return err
	})
	return ids, err
}

func (d *folderDoor) grouped(ctx context.Context, how string) (hits []docHit, err error) {
	err = d.files(ctx, func(f *filesDoor) (err error) {
		hits, err = f.grouped(ctx, how)
		return err
	})
	return hits, err
}

func (d *folderDoor) close() error { return nil }
