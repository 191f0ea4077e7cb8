package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index"
)

// postingsStudy counts what the lists of an index take, and what they would take in other
// forms, and times reading those that searches read.
func postingsStudy(f *flag.FlagSet) measuring {
	queries := f.Int("queries", 100, "use the first `N` queries")
	return func(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
		snap, done, err := openedIndex(ctx, args[0])
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, done()) }()
		s := &postingsCount{snap: snap, packed: make([][]byte, snap.Header().Centroids)}
		if err := s.count(ctx); err != nil {
			return err
		}
		if err := s.print(stdout); err != nil {
			return err
		}
		m, err := readQueries(ctx, args[1], *queries)
		if err != nil {
			return err
		}
		fmt.Fprintln(stdout, "\n| k | postings | roaring ns | packed ns | reading µs | search µs | probing, of its time |\n|--:|--:|--:|--:|--:|--:|--:|")
		for _, k := range []int{10, 100} {
			if err := s.read(ctx, stdout, m, k); err != nil {
				return err
			}
		}
		return nil
	}
}

type postingsCount struct {
	snap                          *index.Snapshot
	packed                        [][]byte // of each centroid, of the only segment
	lists, postings, stored       int
	kinds                         [3]struct{ containers, postings, bytes uint64 } // arrays, runs, bitmaps
	blocks, varints, fano, counts int
	least                         float64
}

// count goes through all lists.
func (s *postingsCount) count(ctx context.Context) error {
	if s.snap.Segments() != 1 {
		return errors.New("want an index of one segment, as a build makes it")
	}
	docs := int(s.snap.State().Docs)
	for c := range s.packed {
		if err := ctx.Err(); err != nil {
			return err
		}
		list, err := s.snap.Postings(0, uint32(c))
		if err != nil {
			return err
		}
		if len(list) == 0 {
			continue
		}
		var b roaring.Bitmap
		if _, err := b.ReadFrom(bytes.NewReader(list)); err != nil {
			return err
		}
		of, st := b.ToArray(), b.Stats()
		s.lists++
		s.postings += len(of)
		s.stored += len(list)
		for i, k := range [3][3]uint64{
			{st.ArrayContainers, st.ArrayContainerValues, 2 * st.ArrayContainerValues},
			{st.RunContainers, st.RunContainerValues, st.RunContainerBytes},
			{st.BitmapContainers, st.BitmapContainerValues, st.BitmapContainerBytes},
		} {
			s.kinds[i].containers += k[0]
			s.kinds[i].postings += k[1]
			s.kinds[i].bytes += k[2]
		}
		n := len(binary.AppendUvarint(nil, uint64(len(of))))
		s.counts += n
		s.packed[c] = packList(of)
		s.blocks += len(s.packed[c]) - n - packPad
		last := -1
		for _, d := range of {
			s.varints += len(binary.AppendUvarint(nil, uint64(int(d)-last-1)))
			last = int(d)
		}
		s.fano += (eliasFano(len(of), docs) + 7) / 8
		s.least += choose(docs, len(of)) / 8
	}
	return nil
}

func (s *postingsCount) print(w io.Writer) error {
	info, err := os.Stat(s.snap.Path())
	if err != nil {
		return err
	}
	tokens, file := float64(s.snap.State().Tokens), float64(info.Size())
	fmt.Fprintf(w, "%d documents, %.0f tokens, %d lists, %d postings, %.1f a list, file %.0f bytes\n\n",
		s.snap.State().Docs, tokens, s.lists, s.postings, float64(s.postings)/float64(s.lists), file)
	fmt.Fprintln(w, "| form | bytes | a token | bits a posting | file % |\n|:--|--:|--:|--:|--:|")
	line := func(name string, bytes float64) {
		fmt.Fprintf(w, "| %s | %.0f | %.3f | %.2f | %.2f |\n", name, bytes, bytes/tokens, 8*bytes/float64(s.postings), 100*bytes/file)
	}
	line("roaring, as stored", float64(s.stored))
	values := 0
	for i, name := range []string{"arrays", "runs", "bitmaps"} {
		k := s.kinds[i]
		values += int(k.bytes)
		line(fmt.Sprintf("of it %d %s of %d postings", k.containers, name, k.postings), float64(k.bytes))
	}
	line("of it heads", float64(s.stored-values))
	line("differences, blocks of 128", float64(s.counts+s.blocks))
	line("varints", float64(s.counts+s.varints))
	line("Elias-Fano", float64(s.counts+s.fano))
	line("least for any sets of these sizes", s.least)
	return nil
}
