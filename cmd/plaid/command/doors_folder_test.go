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
	"github.com/plaid-ir/plaid/search"
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
	s := &folderSync{app: newApp(streams{out: &out, err: &out}, nil), path: filepath.Join(dir, "x.plaid"), root: filepath.Join(dir, "folder"), encoder: model}
	s.app.lockTimeout = time.Minute
	require.NoError(t, os.MkdirAll(filepath.Join(s.root, "sub"), 0o700))
	config := model.Config()
	s.parting = encode.Parting{Model: &config, Window: 4}
	return &folderDoor{sync: s}
}

// others are ids of documents that other commands store. Passages of files are called so.
var others = []string{"x", "x#0", "readme#1"}

func (d *folderDoor) changes() map[string]func(*rapid.T, *documents.Picture) change {
	return map[string]func(*rapid.T, *documents.Picture) change{
		"look":     d.look,
		"look too": d.look,
		"delete":   func(t *rapid.T, _ *documents.Picture) change { return d.delete(drawIDs(t, others)) },
	}
}

// look changes some files and has the index follow.
func (d *folderDoor) look(t *rapid.T, _ *documents.Picture) change {
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
		alone: true,
		apply: func(p *documents.Picture) outcome {
			want, err := d.want()
			require.NoError(t, err)
			// What is as it was keeps its place.
			p.Delete(func(part *documents.Part) bool { return !slices.Contains(want, *part) })
			for _, part := range want {
				if !slices.Contains(p.Parts, part) {
					p.Parts = append(p.Parts, part)
				}
			}
			return outcome{}
		},
		do: func(ctx context.Context) (outcome, error) {
			_, err := d.sync.look(ctx, nil)
			if errors.Is(err, errNothingToIndex) {
				err = nil
			}
			return outcome{}, err
		},
	}
}

// want is what the folder has.
func (d *folderDoor) want() (parts []documents.Part, err error) {
	files, _, err := folder.Scan(context.Background(), d.sync.root, 0, nil)
	if err != nil {
		return nil, err
	}
	for i := range files {
		c, err := files[i].Read(1 << 20)
		if err != nil {
			return nil, err
		}
		for text, err := range c.Texts(d.sync.parting) {
			if err != nil {
				return nil, err
			}
			part, err := partOf(text.ID, text.Payload)
			if err != nil {
				return nil, err
			}
			parts = append(parts, part)
		}
	}
	return parts, nil
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
	return d.use(ctx, func(ix *index.Index) error { return do(&filesDoor{ix: ix}) })
}

func (d *folderDoor) delete(s selection) change {
	c := change{apply: s.deletes}
	c.do = func(ctx context.Context) (o outcome, err error) {
		o.Missing = s.ids
		err = d.files(ctx, func(f *filesDoor) (err error) {
			o, err = f.delete(s).do(ctx)
			return err
		})
		return o, err
	}
	return c
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

func (d *folderDoor) grouped(ctx context.Context, how string) (groups []docHit, err error) {
	err = d.use(ctx, func(ix *index.Index) error {
		s, err := search.New(ctx, ix, &search.EngineOptions{Threads: 1})
		if err != nil {
			return err
		}
		groups, err = groupsOf(ctx, s, d.sync.encoder.Dim(), how)
		return errors.Join(err, s.Close())
	})
	return groups, err
}

func (d *folderDoor) close() error { return nil }
