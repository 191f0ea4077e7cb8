package quality

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/search"
)

// What questions are like, as real ones are: docs/lab/search-quality.md has the measurements.
const (
	questionTokens = 32
	// leastWords and mostWords are how many tokens of a question are of words; the others repeat
	// these, as those that encoders append.
	leastWords, mostWords = 4, 12
	// mostSpan is how many words are neighbours in a document; the span that documents share most
	// is taken of so many.
	mostSpan, spansCompared = 3, 3
	// neighbours give words too, drawn from the best documents for one of them.
	neighbours, neighbourhood = 2, 16
	// wordTopic bounds how much of a word's token is the mean of the question; wordNoise times the
	// square of a number from 0 to 1 is its noise: many words are as documents have them.
	wordTopic, wordNoise = 0.1, 2.0
	// leastTopic to mostTopic and leastNoise to mostNoise are the same of a token that repeats.
	leastTopic, mostTopic = 0.2, 0.8
	leastNoise, mostNoise = 0.1, 0.8
	// alone is the share of words that no document has, and aloneNoise their noise.
	alone, aloneNoise = 0.15, 3.0
	// anyNoise is the share of the square of noise that has any direction; the others are those in
	// which documents differ.
	anyNoise = 0.8
	// repeatSkew makes questions repeat few of their words most.
	repeatSkew = 2
	// leastTokens is how many tokens a document has that questions are made of.
	leastTokens = 8
)

// asker makes questions from the documents of an index. Question i depends on seed and i alone.
//
// A question of a real user shares words with several documents, and is none of them. Encoders
// give it a few tokens of words, some of which no document has, and others that repeat these in
// the direction of the whole. So errors of its tokens do not level out, and many documents are
// about as good: that is what makes it hard.
type asker struct {
	at   *search.Engine
	snap *index.Snapshot
	dim  int
	seed uint64
	// threads make questions at a time.
	threads int
}

// draft is a question in the making.
type draft struct {
	rng  *rand.Rand
	docs [][]float32 // the document, then its neighbours; nil: none was found
	dim  int
	ord  uint32
}

// make makes the questions lo to hi. They are fewer where documents have too few tokens.
func (a *asker) make(ctx context.Context, lo, hi int) (qs []search.Query, err error) {
	var drafts []*draft
	var own []search.Query
	for i := lo; i < hi; i++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		d, err := a.draw(i)
		if err != nil {
			return nil, err
		}
		if d != nil {
			drafts = append(drafts, d)
			own = append(own, d.whole())
		}
	}
	results, err := a.at.SearchBatch(ctx, own, search.Options{K: neighbourhood, Derive: true})
	if err != nil {
		return nil, err
	}
	qs = make([]search.Query, len(drafts))
	err = parallel.Do(ctx, len(drafts), a.threads, func(i int) error {
		d := drafts[i]
		if err := a.meet(d, results[i].Hits); err != nil {
			return err
		}
		qs[i] = d.question()
		return nil
	})
	return qs, err
}

// draw finds a document for question i; nil if none of some has tokens enough.
func (a *asker) draw(i int) (*draft, error) {
	d := &draft{rng: rand.New(rand.NewPCG(a.seed, 0x73656c66+uint64(i))), dim: a.dim}
	docs := a.snap.State().Docs
	for range 16 {
		if docs == 0 {
			break
		}
		d.ord = d.rng.Uint32N(docs)
		v, err := a.snap.Vectors(d.ord)
		if errors.Is(err, index.ErrNotFound) {
			continue // deleted
		}
		if err != nil {
			return nil, err
		}
		if len(v) >= leastTokens*a.dim {
			d.docs = append(d.docs, v)
			return d, nil
		}
	}
	return nil, nil
}

// whole is a question for the document itself.
func (d *draft) whole() search.Query {
	v := d.docs[0]
	rows := len(v) / d.dim
	q := search.Query{Vectors: make([]float32, 0, questionTokens*d.dim), Dim: d.dim}
	for range min(questionTokens, rows) {
		q.Vectors = append(q.Vectors, d.token(0)...)
	}
	return q
}

// token draws one of a document.
func (d *draft) token(doc int) []float32 {
	v := d.docs[doc]
	return v[d.rng.IntN(len(v)/d.dim)*d.dim:][:d.dim]
}

// meet draws neighbours from the best documents for the document itself.
func (a *asker) meet(d *draft, hits []search.Hit) error {
	var others []uint32
	for _, h := range hits {
		if h.Ordinal != d.ord {
			others = append(others, h.Ordinal)
		}
	}
	d.rng.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	for _, o := range others[:min(neighbours, len(others))] {
		v, err := a.snap.Vectors(o)
		if err != nil {
			return err
		}
		if len(v) > 0 {
			d.docs = append(d.docs, v)
		}
	}
	return nil
}

// question makes the vectors.
func (d *draft) question() search.Query {
	q := search.Query{Vectors: make([]float32, 0, questionTokens*d.dim), Dim: d.dim}
	keep := func(v []float64) []float64 {
		for _, x := range v {
			q.Vectors = append(q.Vectors, float32(x))
		}
		return v
	}
	words := d.words(leastWords + d.rng.IntN(mostWords-leastWords+1))
	topic := meanOf(words)
	for i, w := range words {
		u := d.rng.Float64()
		noise := wordNoise * u * u
		if d.rng.Float64() < alone {
			noise = aloneNoise
		}
		words[i] = keep(d.turn(w, topic, wordTopic*d.rng.Float64(), noise))
	}
	topic = meanOf(words)
	d.rng.Shuffle(len(words), func(i, j int) { words[i], words[j] = words[j], words[i] })
	between := func(lo, hi float64) float64 { return lo + float64((hi-lo)*d.rng.Float64()) }
	for range questionTokens - len(words) {
		w := words[min(int(float64(len(words))*math.Pow(d.rng.Float64(), repeatSkew)), len(words)-1)]
		keep(d.turn(w, topic, between(leastTopic, mostTopic), between(leastNoise, mostNoise)))
	}
	return q
}

// words draws n words: the first half from the document, the others from its neighbours.
func (d *draft) words(n int) (words [][]float64) {
	for len(words) < n {
		doc := 0
		if others := len(d.docs) - 1; others > 0 && len(words) >= (n+1)/2 {
			doc = 1 + d.rng.IntN(others)
		}
		v := d.docs[doc]
		rows := len(v) / d.dim
		span := min(1+d.rng.IntN(mostSpan), rows, n-len(words))
		var best [][]float64
		most := math.Inf(-1)
		for range spansCompared {
			first := d.rng.IntN(rows - span + 1)
			var these [][]float64
			sum := 0.0
			for row := first; row < first+span; row++ {
				w, shared := d.word(doc, v[row*d.dim:][:d.dim])
				these, sum = append(these, w), sum+shared
			}
			if sum > most {
				best, most = these, sum
			}
		}
		words = append(words, best...)
	}
	return words
}

// word is a token of a document, mixed with what the other documents have like it, and how like
// that is.
func (d *draft) word(doc int, token []float32) (w []float64, shared float64) {
	w = make([]float64, d.dim)
	for j, x := range token {
		w[j] = float64(x)
	}
	for other, v := range d.docs {
		if other == doc {
			continue
		}
		like, cosine := v[:d.dim], math.Inf(-1)
		for row := 0; row < len(v); row += d.dim {
			if c := product(token, v[row:][:d.dim]); c > cosine {
				like, cosine = v[row:][:d.dim], c
			}
		}
		shared += cosine
		share := d.rng.Float64()
		for j, x := range like {
			w[j] += float64(share * float64(x))
		}
	}
	return unit(w), shared
}

// turn is a unit vector between w and topic, with noise of a length.
func (d *draft) turn(w, topic []float64, share, length float64) []float64 {
	v, noise := make([]float64, d.dim), make([]float64, d.dim)
	for j := range v {
		v[j] = float64((1-share)*w[j]) + float64(share*topic[j])
	}
	unit(v)
	a, b := d.token(d.rng.IntN(len(d.docs))), d.token(d.rng.IntN(len(d.docs)))
	for j := range noise {
		noise[j] = float64(a[j]) - float64(b[j])
	}
	unit(noise)
	along, free := math.Sqrt(1-anyNoise), math.Sqrt(anyNoise/float64(d.dim))
	for j := range noise {
		noise[j] = float64(along*noise[j]) + float64(free*d.rng.NormFloat64())
	}
	unit(noise)
	for j := range v {
		v[j] += float64(length * noise[j])
	}
	return unit(v)
}

// meanOf is the direction of the sum.
func meanOf(vs [][]float64) []float64 {
	mean := make([]float64, len(vs[0]))
	for _, v := range vs {
		for j, x := range v {
			mean[j] += x
		}
	}
	return unit(mean)
}

// unit scales v to length 1, in place; one without length stays.
func unit(v []float64) []float64 {
	square := 0.0
	for _, x := range v {
		square += float64(x * x)
	}
	if square > 0 {
		scale := 1 / math.Sqrt(square)
		for j := range v {
			v[j] *= scale
		}
	}
	return v
}

// product is the inner product.
func product(a, b []float32) float64 {
	sum := 0.0
	for j, x := range a {
		sum += float64(float64(x) * float64(b[j]))
	}
	return sum
}
