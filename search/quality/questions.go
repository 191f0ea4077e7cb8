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

// Parameters of questions, chosen to resemble real ones (docs/lab/search-quality.md).
const (
	questionTokens = 32
	// minWords and maxWords are how many tokens of a question are words. The others repeat words,
	// like the tokens that encoders append.
	minWords, maxWords = 4, 12
	// maxSpan is how many consecutive words of a document may be drawn together. Of spansCompared
	// random spans, the one that documents share most is drawn.
	maxSpan, spansCompared = 3, 3
	// neighbours documents give words, too. They are drawn from the neighbourhood best ones.
	neighbours, neighbourhood = 2, 16
	// wordTopic limits the share of the question's mean in a word. The noise of a word is wordNoise
	// times the square of a random number from 0 to 1, so that many words have little.
	wordTopic, wordNoise = 0.1, 2.0
	// minTopic to maxTopic and minNoise to maxNoise are these ranges for tokens that repeat words.
	minTopic, maxTopic = 0.2, 0.8
	minNoise, maxNoise = 0.1, 0.8
	// unmatchedShare is the share of words that no document has, unmatchedNoise their noise.
	unmatchedShare, unmatchedNoise = 0.15, 3.0
	// freeNoise is the share of squared noise in random directions. The rest is in directions in
	// which documents differ.
	freeNoise = 0.8
	// repeatSkew makes questions repeat a few of their words most often.
	repeatSkew = 2
	// minTokens is how many tokens a document needs for a question.
	minTokens = 8
)

// questionMaker makes questions from the documents of an index. Question i depends on seed and i
// alone.
//
// The question of a real user shares words with several documents, and equals none of them.
// Encoders give it a few tokens of words, including words that no document has, and further tokens that
// repeat the words in the direction of the whole question. So errors of its tokens do not cancel
// out, and many documents are about equally good. That makes it hard to answer.
type questionMaker struct {
	engine *search.Engine
	snap   *index.Snapshot
	dim    int
	seed   uint64
	// threads limits the goroutines that make questions.
	threads int
}

// draft is a question that is being made.
type draft struct {
	random  *rand.Rand
	docs    [][]float32 // the document, then its neighbours
	dim     int
	ordinal uint32
}

// makeQuestions makes the questions lo to hi. It makes fewer if documents have too few tokens.
func (a *questionMaker) makeQuestions(ctx context.Context, lo, hi int) (qs []search.Query, err error) {
	var drafts []*draft
	var documentQueries []search.Query
	for i := lo; i < hi; i++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		d, err := a.startDraft(i)
		if err != nil {
			return nil, err
		}
		if d != nil {
			drafts = append(drafts, d)
			documentQueries = append(documentQueries, d.documentQuery())
		}
	}
	results, err := a.engine.SearchBatch(ctx, documentQueries, search.Options{K: neighbourhood, Derive: true})
	if err != nil {
		return nil, err
	}
	qs = make([]search.Query, len(drafts))
	err = parallel.Do(ctx, len(drafts), a.threads, func(i int) error {
		d := drafts[i]
		if err := a.addNeighbours(d, results[i].Hits); err != nil {
			return err
		}
		qs[i] = d.question()
		return nil
	})
	return qs, err
}

// startDraft finds a document for question i. It returns nil if none of 16 random documents has
// enough tokens.
func (a *questionMaker) startDraft(i int) (*draft, error) {
	const stream = 0x73656c66 // "self": other users of the seed draw other numbers
	d := &draft{random: rand.New(rand.NewPCG(a.seed, stream+uint64(i))), dim: a.dim}
	docs := a.snap.State().Docs
	for range 16 {
		if docs == 0 {
			break
		}
		d.ordinal = d.random.Uint32N(docs)
		v, err := a.snap.Vectors(d.ordinal)
		if errors.Is(err, index.ErrNotFound) {
			continue // deleted
		}
		if err != nil {
			return nil, err
		}
		if len(v) >= minTokens*a.dim {
			d.docs = append(d.docs, v)
			return d, nil
		}
	}
	return nil, nil
}

// documentQuery returns a query of random tokens of the document, which finds its neighbours.
func (d *draft) documentQuery() search.Query {
	v := d.docs[0]
	rows := len(v) / d.dim
	q := search.Query{Vectors: make([]float32, 0, questionTokens*d.dim), Dim: d.dim}
	for range min(questionTokens, rows) {
		q.Vectors = append(q.Vectors, d.randomToken(0)...)
	}
	return q
}

// randomToken draws a token of a document.
func (d *draft) randomToken(doc int) []float32 {
	v := d.docs[doc]
	return v[d.random.IntN(len(v)/d.dim)*d.dim:][:d.dim]
}

// addNeighbours draws neighbours from the best documents for the document's own query.
func (a *questionMaker) addNeighbours(d *draft, hits []search.Hit) error {
	var others []uint32
	for _, h := range hits {
		if h.Ordinal != d.ordinal {
			others = append(others, h.Ordinal)
		}
	}
	d.random.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
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

// question returns the finished question.
func (d *draft) question() search.Query {
	q := search.Query{Vectors: make([]float32, 0, questionTokens*d.dim), Dim: d.dim}
	appendToken := func(v []float64) []float64 {
		for _, x := range v {
			q.Vectors = append(q.Vectors, float32(x))
		}
		return v
	}
	words := d.drawWords(minWords + d.random.IntN(maxWords-minWords+1))
	// Move each word towards the mean, and add noise.
	topic := meanDirection(words)
	for i, w := range words {
		u := d.random.Float64()
		noise := wordNoise * u * u
		if d.random.Float64() < unmatchedShare {
			noise = unmatchedNoise
		}
		words[i] = appendToken(d.turnTowards(w, topic, wordTopic*d.random.Float64(), noise))
	}
	// Fill up with tokens that repeat words, in the direction of the whole.
	topic = meanDirection(words)
	d.random.Shuffle(len(words), func(i, j int) { words[i], words[j] = words[j], words[i] })
	between := func(lo, hi float64) float64 { return lo + float64((hi-lo)*d.random.Float64()) }
	for range questionTokens - len(words) {
		w := words[min(int(float64(len(words))*math.Pow(d.random.Float64(), repeatSkew)), len(words)-1)]
		appendToken(d.turnTowards(w, topic, between(minTopic, maxTopic), between(minNoise, maxNoise)))
	}
	return q
}

// drawWords draws n words: the first half from the document, the others from its neighbours.
func (d *draft) drawWords(n int) (words [][]float64) {
	for len(words) < n {
		doc := 0
		if others := len(d.docs) - 1; others > 0 && len(words) >= (n+1)/2 {
			doc = 1 + d.random.IntN(others)
		}
		v := d.docs[doc]
		rows := len(v) / d.dim
		span := min(1+d.random.IntN(maxSpan), rows, n-len(words))
		var best [][]float64
		bestShared := math.Inf(-1)
		for range spansCompared {
			first := d.random.IntN(rows - span + 1)
			var spanWords [][]float64
			sum := 0.0
			for row := first; row < first+span; row++ {
				w, shared := d.mixWord(doc, v[row*d.dim:][:d.dim])
				spanWords, sum = append(spanWords, w), sum+shared
			}
			if sum > bestShared {
				best, bestShared = spanWords, sum
			}
		}
		words = append(words, best...)
	}
	return words
}

// mixWord mixes a token of a document with the most similar token of each other document. shared is
// the sum of these similarities.
func (d *draft) mixWord(doc int, token []float32) (word []float64, shared float64) {
	word = make([]float64, d.dim)
	for j, x := range token {
		word[j] = float64(x)
	}
	for other, v := range d.docs {
		if other == doc {
			continue
		}
		nearest, cosine := v[:d.dim], math.Inf(-1)
		for row := 0; row < len(v); row += d.dim {
			if c := dot(token, v[row:][:d.dim]); c > cosine {
				nearest, cosine = v[row:][:d.dim], c
			}
		}
		shared += cosine
		share := d.random.Float64()
		for j, x := range nearest {
			word[j] += float64(share * float64(x))
		}
	}
	return normalize(word), shared
}

// turnTowards returns a unit vector between w and topic, plus noise of a length.
func (d *draft) turnTowards(w, topic []float64, share, noiseLength float64) []float64 {
	v, noise := make([]float64, d.dim), make([]float64, d.dim)
	for j := range v {
		v[j] = float64((1-share)*w[j]) + float64(share*topic[j])
	}
	normalize(v)
	a, b := d.randomToken(d.random.IntN(len(d.docs))), d.randomToken(d.random.IntN(len(d.docs)))
	for j := range noise {
		noise[j] = float64(a[j]) - float64(b[j])
	}
	normalize(noise)
	along, free := math.Sqrt(1-freeNoise), math.Sqrt(freeNoise/float64(d.dim))
	for j := range noise {
		noise[j] = float64(along*noise[j]) + float64(free*d.random.NormFloat64())
	}
	normalize(noise)
	for j := range v {
		v[j] += float64(noiseLength * noise[j])
	}
	return normalize(v)
}

// meanDirection returns the direction of the sum.
func meanDirection(vs [][]float64) []float64 {
	mean := make([]float64, len(vs[0]))
	for _, v := range vs {
		for j, x := range v {
			mean[j] += x
		}
	}
	return normalize(mean)
}

// normalize scales v to length 1, in place. A zero vector stays.
func normalize(v []float64) []float64 {
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

// dot returns the inner product, with rounded products.
func dot(a, b []float32) float64 {
	sum := 0.0
	for j, x := range a {
		sum += float64(float64(x) * float64(b[j]))
	}
	return sum
}
