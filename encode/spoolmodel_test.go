package encode

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/vectors"
)

// spoolModel is a spool beside a picture of it: the texts that it has, in order.
type spoolModel struct {
	t     *testing.T
	rng   *rand.Rand
	e     *Encoder
	path  string
	o     SpoolOptions
	has   []string
	docs  []Text
	fresh int // ids
	alone map[string][]float32
}

// Whatever is done to texts between runs that end, fail or are killed, each text is encoded once
// after it got into the file, and the source is what the last texts say.
func TestSpoolModel(t *testing.T) {
	effort.SkipBrief(t, "TestSameBytes has its goroutines")
	e := open(t, nano(t), &Options{Threads: 2})
	alone := map[string][]float32{}
	for seed := range effort.Cases(6, 60) {
		rng := rand.New(rand.NewPCG(uint64(seed), 38))
		dir := t.TempDir()
		m := &spoolModel{t: t, rng: rng, e: e, path: filepath.Join(dir, "spool"), alone: alone}
		m.o.Float32 = rng.IntN(2) == 0
		if rng.IntN(2) == 0 {
			m.o.Vectors = filepath.Join(dir, "vectors")
		}
		for range 12 {
			for range rng.IntN(4) {
				m.change()
			}
			switch rng.IntN(4) {
			case 0:
				m.run(rng.IntN(len(m.docs) + 1)) // fails there
			case 1:
				m.run(rng.IntN(len(m.docs) + 1))
				m.cut()
			default:
				m.run(-1)
			}
		}
	}
}

func (m *spoolModel) text() string {
	return []string{"", "cells", "cells divide", "a bird sings", "fish", "fish swim", "tides", "salt and sand"}[m.rng.IntN(8)]
}

// encodedText is the text of a document as the model gets it.
func encodedText(d Text) string { return strings.TrimSpace(d.Full()) }

// change changes a document, adds, removes or moves one.
func (m *spoolModel) change() {
	at := m.rng.IntN(len(m.docs) + 1)
	if at == len(m.docs) || m.rng.IntN(5) == 0 {
		m.fresh++
		d := Text{ID: fmt.Sprint("d", m.fresh), Text: m.text()}
		if m.rng.IntN(3) == 0 {
			d.Title = m.text()
		}
		m.docs = slices.Insert(m.docs, at, d)
		return
	}
	switch m.rng.IntN(5) {
	case 0:
		m.fresh++
		m.docs[at].ID = fmt.Sprint("d", m.fresh)
	case 1:
		m.docs[at].Payload = fmt.Appendf(nil, `{"n":%d}`, m.rng.IntN(9))
	case 2:
		m.docs[at].Text = m.text()
	case 3:
		m.docs = slices.Delete(m.docs, at, at+1)
	case 4:
		m.rng.Shuffle(len(m.docs), func(i, j int) { m.docs[i], m.docs[j] = m.docs[j], m.docs[i] })
	}
}

var errModel = errors.New("the stream ends")

// run encodes the documents, or as many until the stream fails; −1 means all.
func (m *spoolModel) run(fails int) {
	resumed, equal, encoded, empty := 0, 0, 0, 0
	before := len(m.has)
	docs := m.docs
	if fails >= 0 {
		docs = docs[:fails]
	}
	for _, d := range docs {
		switch at := slices.Index(m.has, encodedText(d)); {
		case at >= 0 && at < before:
			resumed++
			continue
		case at >= 0:
			equal++
		default:
			encoded++
			m.has = append(m.has, encodedText(d))
		}
		if encodedText(d) == "" {
			empty++
		}
	}
	s, r, err := Spool(m.t.Context(), m.e, func(yield func(Text, error) bool) {
		for _, d := range docs {
			if !yield(d, nil) {
				return
			}
		}
		if fails >= 0 {
			yield(Text{}, errModel)
		}
	}, m.path, &m.o)
	require.Equal(m.t, []int{resumed, equal, encoded + equal, empty}, []int{r.Resumed, r.Equal, r.Texts, r.Empty})
	if fails >= 0 {
		require.ErrorIs(m.t, err, errModel)
		return
	}
	require.NoError(m.t, err)
	defer func() { require.NoError(m.t, s.Close()) }()
	require.Equal(m.t, len(docs), s.Len())
	inOrder, unused, tokens := len(m.has) == len(docs), before, int64(0)
	for _, text := range m.has[:min(before, len(m.has))] {
		if slices.ContainsFunc(docs, func(d Text) bool { return encodedText(d) == text }) {
			unused--
		}
	}
	i := 0
	for d, err := range s.Docs(m.t.Context(), 0, s.Len()) {
		require.NoError(m.t, err)
		require.Equal(m.t, []string{docs[i].ID, string(docs[i].Payload)}, []string{d.ID, string(d.Payload)})
		want := m.vectors(encodedText(docs[i]))
		require.Equal(m.t, len(want)/m.e.Dim(), s.Rows(i))
		require.InDeltaSlice(m.t, append([]float32{0}, want...), append([]float32{0}, d.Tokens...), 1e-3)
		tokens += int64(s.Rows(i))
		inOrder = inOrder && slices.Index(m.has, encodedText(docs[i])) == i
		i++
	}
	require.Equal(m.t, len(docs), i)
	require.Equal(m.t, []any{tokens, unused, inOrder}, []any{s.Tokens(), s.Unused(), s.InOrder()})
}

// vectors are those of a text alone.
func (m *spoolModel) vectors(text string) []float32 {
	v, ok := m.alone[text]
	if !ok {
		for d, err := range m.e.Documents(m.t.Context(), Texts(Text{Text: text})) {
			require.NoError(m.t, err)
			v = slices.Clone(d.Tokens)
		}
		m.alone[text] = v
	}
	return v
}

// cut takes a byte of the last record.
func (m *spoolModel) cut() {
	if len(m.has) == 0 {
		return
	}
	info, err := os.Stat(m.path)
	require.NoError(m.t, err)
	require.NoError(m.t, os.Truncate(m.path, info.Size()-1))
	m.has = m.has[:len(m.has)-1]
}

// A text is checked before it is encoded, also where texts can be read once; what is encoded stays.
func TestSpoolChecks(t *testing.T) {
	e := open(t, nano(t), nil)
	for want, bad := range map[error]Text{
		vectors.ErrID:      {ID: "a\tb", Text: "x"},
		vectors.ErrPayload: {ID: "b", Text: "x", Payload: []byte(`[]`)},
		vectors.ErrText:    {ID: "b", Text: "\xff"},
	} {
		path := filepath.Join(t.TempDir(), "spool")
		bad.From = Place{Path: "in.jsonl", Line: 7}
		texts := []Text{{ID: "a", Text: "cells"}, bad, {ID: "c", Text: "never"}}
		_, r, err := Spool(t.Context(), e, Texts(texts...), path, nil)
		require.ErrorIs(t, err, want)
		require.ErrorContains(t, err, "in.jsonl: line 7: id ")
		require.Equal(t, 1, r.Texts)
		texts[1] = Text{ID: "b", Text: "corrected"}
		s, r, err := Spool(t.Context(), e, Texts(texts...), path, nil)
		require.NoError(t, err)
		require.Equal(t, []int{1, 2}, []int{r.Resumed, r.Texts})
		require.NoError(t, s.Close())
	}
	_, _, err := Spool(t.Context(), e, Texts(Text{ID: "a"}, Text{ID: "a", From: Place{Path: "x.csv", Line: 3}}), "", nil)
	require.EqualError(t, err, `x.csv: line 3: id "a": text 1 has this id too`)
}
