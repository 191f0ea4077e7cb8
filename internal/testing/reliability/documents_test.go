//go:build linux && (amd64 || arm64)

package reliability

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strings"

	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/vectors"
)

// document follows from id, version and dimension. Some have no tokens, some no
// payload.
func document(id string, version, dim int) vectors.Document {
	h := fnv.New64a()
	fmt.Fprint(h, id, "/", version)
	rng := rand.New(rand.NewPCG(h.Sum64(), uint64(dim)))
	n := rng.IntN(9)
	if strings.HasSuffix(id, "0") {
		n = max(n, 2)
	}
	d := vectors.Document{ID: id}
	for range n {
		center := rand.New(rand.NewPCG(rng.Uint64N(10), uint64(dim)))
		for range dim {
			d.Tokens = append(d.Tokens, float32(center.NormFloat64()+0.4*rng.NormFloat64()))
		}
	}
	if rng.IntN(4) > 0 {
		d.Payload = fmt.Appendf(nil, `{"v":%d,"fill":%q}`, version, strings.Repeat("x", rng.IntN(200)))
	}
	return d
}

// documents with the numbers from first on.
func documents(first, n, version, dim int) []vectors.Document {
	var docs []vectors.Document
	for i := range n {
		docs = append(docs, document(fmt.Sprint("d", first+i), version, dim))
	}
	return docs
}

func source(dim int, docs []vectors.Document) vectors.Source {
	src, err := vectors.FromDocuments(dim, docs)
	if err != nil {
		panic(err)
	}
	return src
}

func writeDocuments(path string, docs []vectors.Document, dim int) error {
	return os.WriteFile(path, searchtest.Lines(dim, docs...), 0o666)
}
