package storage

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage/internal/layout"
)

func TestMain(m *testing.M) {
	effort.Rapid(20, 100)
	testenv.SetFilesAsOnWindows()
	os.Exit(m.Run())
}

// A small index written by hand: dimension 4, 2 bits, 3 centroids.
func testCodec() (Header, *kernels.Codec) {
	h := Header{Dim: 4, Nbits: 2, Centroids: 3, CentroidType: "bf16", Step: 0.25, FactorMax: 1.5, Normalize: true,
		Build: Build{Source: "vectors", Seed: 7, Iterations: 4, SampleDocs: 2, SampleRows: 5}}
	data := []byte{}
	for _, row := range [][4]float32{{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 0.6, 0.8}} {
		for _, v := range row {
			data = binary.LittleEndian.AppendUint16(data, kernels.BF16FromF32(v))
		}
	}
	return h, &kernels.Codec{
		Centroids: kernels.Centroids{K: 3, Dim: 4, Type: kernels.BF16, Data: data},
		Codebook:  kernels.Codebook{Nbits: 2, Step: 0.25}, FactorMax: 1.5,
	}
}

type testDoc struct {
	id      string
	codes   []uint16
	payload string
}

var testDocs = []testDoc{
	{"alpha", []uint16{0, 2, 0}, `{"text":"first"}`},
	{"beta", nil, ""},
	{"gamma", []uint16{1, 2}, `{"text":"third"}`},
}

// putDocs stores docs as one chunk and segment behind state, and commits.
func putDocs(g *Generation, state *State, docs []testDoc) error {
	table := DocTable{First: state.Docs}
	sets, err := g.docSets()
	if err != nil {
		return err
	}
	var codes, factors, residuals []byte
	lists := make([][]uint32, 3)
	for i, d := range docs {
		ordinal := state.Docs + uint32(i)
		table.IDs = append(table.IDs, d.id)
		table.Lengths = append(table.Lengths, uint32(len(d.codes)))
		for t, c := range d.codes {
			codes = binary.LittleEndian.AppendUint16(codes, c)
			factors = binary.LittleEndian.AppendUint16(factors, uint16(20000+t))
			residuals = append(residuals, byte(0x10*int(c)+t))
			if l := lists[c]; len(l) == 0 || l[len(l)-1] != ordinal {
				lists[c] = append(lists[c], ordinal)
			}
		}
		if err := g.PutID(d.id, ordinal); err != nil {
			return err
		}
		if d.payload != "" {
			sets.Payload.Add(ordinal)
			if err := g.PutPayload(ordinal, []byte(d.payload)); err != nil {
				return err
			}
		}
	}
	if err := g.PutChunk(SealChunk(state.NextChunk, &table, codes, factors, residuals)); err != nil {
		return err
	}
	block, err := AppendPostings(nil, lists)
	if err != nil {
		return err
	}
	if err := g.PutPostings(state.NextSegment, 0, block); err != nil {
		return err
	}
	tokens := uint64(len(codes) / 2)
	state.Segments = append(state.Segments, Segment{
		ID: state.NextSegment, FirstDoc: state.Docs, Docs: uint32(len(docs)), Tokens: tokens, Chunks: []uint32{state.NextChunk}, Blocks: 1,
	})
	state.Docs += uint32(len(docs))
	state.Live += uint32(len(docs))
	state.Tokens += tokens
	state.LiveTokens += tokens
	state.NextChunk++
	state.NextSegment++
	if err := g.PutDocSets(state, sets); err != nil {
		return err
	}
	return g.PutState(*state)
}

// docSets are those that the generation has now.
func (g *Generation) docSets() (sets DocSets, err error) {
	if sets.Deleted, err = readBitmap(layout.KeyTombstones, g.bucket.Get(layout.KeyTombstones)); err != nil {
		return sets, err
	}
	if sets.Payload, err = readBitmap(layout.KeyPayloadDocs, g.bucket.Get(layout.KeyPayloadDocs)); err != nil {
		return sets, err
	}
	sets.Passages, err = readBitmap(layout.KeyPassages, g.bucket.Get(layout.KeyPassages))
	return sets, err
}

func writeTestIndex(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(testenv.RAMDir(tb), "test.plaid")
	f, err := Open(context.Background(), path, Options{Write: true, Create: true})
	require.NoError(tb, err)
	require.NoError(tb, fillTestIndex(f))
	require.NoError(tb, f.Close())
	return path
}

// openWriting opens an index to be changed.
func openWriting(tb testing.TB, path string) *File {
	tb.Helper()
	f, err := Open(context.Background(), path, Options{Write: true})
	require.NoError(tb, err)
	return f
}

func currentState(tx *Tx) (*Generation, *State, error) {
	n, err := tx.Current()
	if err != nil {
		return nil, nil, err
	}
	g, err := tx.Generation(n)
	if err != nil {
		return nil, nil, err
	}
	s, err := g.State()
	return g, &s, err
}

// appendDocs commits documents behind those that are there.
func appendDocs(f *File, docs ...testDoc) error {
	return f.Update(func(tx *Tx) error {
		g, s, err := currentState(tx)
		if err != nil {
			return err
		}
		return putDocs(g, s, docs)
	})
}

func addDoc(f *File, id string) error {
	return appendDocs(f, testDoc{id, []uint16{1}, "payload of " + id})
}

func fillTestIndex(f *File) error {
	return f.Update(func(tx *Tx) error {
		h, c := testCodec()
		n, err := tx.NewGeneration(h, c, nil)
		if err != nil {
			return err
		}
		g, err := tx.Generation(n)
		if err != nil {
			return err
		}
		if err := putDocs(g, &State{}, testDocs); err != nil {
			return err
		}
		if err := putTestRun(g); err != nil {
			return err
		}
		if err := tx.MakeCurrent(n); err != nil {
			return err
		}
		return tx.PutDefaults(n, testDefaults())
	})
}

// testFields are the values of the run that package metadata makes of the payloads of
// testDocs: their field text, with the documents of each value.
var testFields = map[string]string{
	"r":     "\x16\x00\x00\x00:0\x00\x00\x01\x00\x00\x00\x00\x00\x02\x00\x10\x00\x00\x00\x00\x00\x01\x00\x02\x00\x01\x00\x00\x00\x04\x00\x00\x00text\x00\x00\x00\x00",
	"ftext": "\x14\x00\x00\x00:0\x00\x00\x01\x00\x00\x00\x00\x00\x01\x00\x10\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x14\x00\x00\x00:0\x00\x00\x01\x00\x00\x00\x00\x00\x01\x00\x10\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x03\x05first\x03\x05third\x01.\x00\x00\x00\x14\x00\x00\x00:0\x00\x00\x01\x00\x00\x00\x00\x00\x01\x00\x10\x00\x00\x00\x00\x00\x02\x00\x02\x00\x00\x00\x03\x05first\x03\x05third\x00\x00\x01\x00",
}

// putTestRun puts the run of the payloads.
func putTestRun(g *Generation) error {
	if err := g.NewFieldRun(0); err != nil {
		return err
	}
	for key, value := range testFields {
		if err := g.PutField(0, []byte(key), []byte(value)); err != nil {
			return err
		}
	}
	s, err := g.State()
	if err != nil {
		return err
	}
	run := FieldRun{Docs: uint32(len(testDocs)), Values: len(testFields)}
	s.FieldRuns, s.NextFieldRun = []FieldRun{run}, 1
	return g.PutState(s)
}

// contents reads all that a user can see.
func contents(v *Snapshot) (string, error) {
	s := ""
	for ordinal := range v.State().Docs {
		if !v.Live(ordinal) {
			continue
		}
		id := v.ID(ordinal)
		got, ok, err := v.Ordinal(id)
		if err != nil {
			return "", err
		}
		p, err := v.Payload(ordinal)
		if err != nil {
			return "", err
		}
		chunk, doc, _ := v.Locate(ordinal)
		ch, err := v.Chunk(chunk, All)
		if err != nil {
			return "", err
		}
		s += fmt.Sprintf("%d %s %v %d %s:", ordinal, id, ok, got, p)
		for t := ch.Offsets[doc]; t < ch.Offsets[doc+1]; t++ {
			s += fmt.Sprintf(" %d/%d/%x", ch.Code(int(t)), ch.Factor(int(t)), ch.Residuals[t])
		}
		s += "\n"
	}
	for seg := range v.Segments() {
		for c := range uint32(3) {
			list, err := v.Postings(seg, c)
			if err != nil {
				return "", err
			}
			docs, err := list.appendDocs(nil, v.State().Docs)
			if err != nil {
				return "", err
			}
			s += fmt.Sprintf("%d: %d\n", c, docs)
		}
	}
	c := v.Codec()
	row := make([]float32, 12)
	c.Centroids.Rows(row, 0, 3)
	return s + fmt.Sprint(row, v.Header(), v.Tombstones().ToArray()), nil
}

func names(t *testing.T, dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// appendDocs appends the ordinals of a list.
func (p PostingList) appendDocs(dst []uint32, docs uint32) ([]uint32, error) {
	c, err := p.Cursor()
	var room []byte
	for err == nil && !c.Done() {
		base := c.Block() << 16
		var list []byte
		list, err = c.Next(&room, docs)
		for ; len(list) > 0; list = list[2:] {
			dst = append(dst, base|uint32(binary.LittleEndian.Uint16(list)))
		}
	}
	return dst, err
}
