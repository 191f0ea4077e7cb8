package search

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/kernels"
)

// BenchmarkDeviceAlone is what an engine itself takes of a search on a device which
// answers at once: 5,000 documents, 32 query tokens of 128 dimensions, the best 100.
func BenchmarkDeviceAlone(b *testing.B) {
	m := newMaker(1, 128, 16)
	ix := searchtest.Build(b, 128, m.Docs("d", 5000, 5), nil)
	d := &instant{scripted: &scripted{}}
	d.answer.Docs, d.answer.Scores = make([]uint32, 100), make([]float32, 100)
	for i := range d.answer.Docs {
		d.answer.Docs[i] = uint32(i * 47 % 5000)
	}
	e := onDeviceOf(b, ix, d)
	q := []Query{m.query(32)}
	b.ReportAllocs()
	for b.Loop() {
		_, err := e.SearchBatch(context.Background(), q, Options{K: 100})
		require.NoError(b, err)
	}
}

// instant keeps nothing of what it is asked.
type instant struct{ *scripted }

func (d *instant) Attach(context.Context, kernels.Corpus, kernels.AttachOptions) (kernels.Attachment, error) {
	d.open++
	return &instantIndex{scriptedIndex{d.scripted}}, nil
}

type instantIndex struct{ scriptedIndex }

func (d *instantIndex) Search(context.Context, kernels.Corpus, []kernels.DeviceQuery) ([]kernels.DeviceAnswer, error) {
	return []kernels.DeviceAnswer{d.answer}, nil
}
