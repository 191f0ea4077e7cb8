package keywords

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"
	snowball "github.com/blevesearch/snowballstem"
	"github.com/blevesearch/snowballstem/english"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The oracle: the definition, over words of small ASCII letters with blanks between.

// oracleDoc is a document: the terms of each value in their order, "" for a stop word.
type oracleDoc struct {
	ordinal uint32
	values  [][]string
}

func (d *oracleDoc) length() (n int) {
	for _, v := range d.values {
		for _, term := range v {
			if term != "" {
				n++
			}
		}
	}
	return n
}

// part is a part of a query: how it is written, and what it means.
type part struct {
	text   string
	terms  []string // "" for a stop word, but not at the ends
	prefix bool
	occur  occur
	weight int
}

func plainPart(word string) part { return part{text: word, terms: []string{word}, weight: 1} }

// same tells whether parts differ by nothing but how they are written.
func (p *part) same(o *part) bool {
	return p.prefix == o.prefix && p.occur == o.occur && slices.Equal(p.terms, o.terms)
}

// count says how often the part is in a document.
func (p *part) count(d *oracleDoc) (n int) {
	for _, value := range d.values {
		for i := range value {
			there := i+len(p.terms) <= len(value)
			for j := 0; there && j < len(p.terms); j++ {
				want, have := p.terms[j], value[i+j]
				there = want == "" || want == have || p.prefix && strings.HasPrefix(have, want)
			}
			if there {
				n++
			}
		}
	}
	return n
}

// oracle is the definition of the score, in the plainest way: for every document and
// every part.
func oracle(t require.TestingT, docs []oracleDoc, parts []part, p BM25, filter *roaring.Bitmap, k int) []ScoredDocument {
	var merged []part
	for _, q := range parts {
		if i := slices.IndexFunc(merged, func(o part) bool { return o.same(&q) }); i >= 0 {
			merged[i].weight += q.weight
		} else {
			merged = append(merged, q)
		}
	}
	n, total := 0, 0
	for _, d := range docs {
		if l := d.length(); l > 0 {
			n++
			total += l
		}
	}
	df := make([]int, len(merged))
	for _, d := range docs {
		for i, q := range merged {
			if q.count(&d) > 0 {
				df[i]++
			}
		}
	}
	hits := []ScoredDocument{}
	for _, d := range docs {
		score, plain, out := 0.0, 0.0, filter != nil && !filter.Contains(d.ordinal)
		for i, q := range merged {
			tf := float64(q.count(&d))
			switch {
			case q.occur == mustNot:
				out = out || tf > 0
				continue
			case q.occur == must && tf == 0:
				out = true
			}
			if tf > 0 {
				N, f, dl := float64(n), float64(df[i]), float64(d.length())
				plain += float64(q.weight) * math.Log(1+(N-f+.5)/(f+.5)) * tf / (tf + p.K1*(1-p.B+p.B*dl/(float64(total)/N)))
				// The same, in the order of operations that makes all bits equal.
				w := float64(q.weight) * math.Log1p((N-f+.5)/(f+.5))
				if p.K1 > 0 {
					w = w * tf / (tf + p.K1*(1-p.B) + float64(p.K1*p.B*N/float64(total)*dl))
				}
				score += w
			}
		}
		require.InDelta(t, plain, score, 1e-9*plain)
		if score > 0 && !out {
			hits = append(hits, ScoredDocument{d.ordinal, float32(score)})
		}
	}
	slices.SortFunc(hits, func(a, b ScoredDocument) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Ordinal, b.Ordinal))
	})
	return hits[:min(k, len(hits))]
}

// language is how words become terms.
type language Settings

var stemmer = snowball.NewEnv("")

// terms are those of words.
func (l language) terms(words []string) []string {
	terms := make([]string, len(words))
	for i, w := range words {
		if l.StopWords != "" && englishStopWords[w] {
			continue
		}
		terms[i] = w
		if l.Stemmer != "" {
			stemmer.SetCurrent(w)
			english.Stem(stemmer)
			terms[i] = stemmer.Current()
		}
	}
	return terms
}

var vocabulary = []string{"a", "ab", "abc", "abd", "b", "ba", "bab", "c", "cab", "cabs", "dab", "dabbed", "the"}

func drawWords(t *rapid.T, label string, most int) []string {
	return rapid.SliceOfN(rapid.SampledFrom(vocabulary), 0, most).Draw(t, label)
}

// drawQuery draws an expression, and says what it means.
func (l language) drawQuery(t *rapid.T) (text string, parts []part) {
	positive := false
	for range rapid.IntRange(1, 5).Draw(t, "parts") {
		var p part
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 0:
			w := rapid.SampledFrom(vocabulary).Draw(t, "word")
			p = part{text: w, terms: l.terms([]string{w})}
		case 1:
			w := rapid.SampledFrom(vocabulary).Draw(t, "prefix")
			p = part{text: w + "*", terms: []string{w}, prefix: true}
		default:
			ws := rapid.SliceOfN(rapid.SampledFrom(vocabulary), 1, 5).Draw(t, "phrase")
			p = part{text: fmt.Sprintf("%q", strings.Join(ws, " ")), terms: l.terms(ws)}
		}
		p.weight, p.occur = 1, occur(rapid.IntRange(0, 2).Draw(t, "occur"))
		if !positive && p.occur == mustNot {
			p.occur = may // something has to be found
		}
		positive = true
		text += " " + []string{"", "+", "-"}[p.occur] + p.text
		for len(p.terms) > 0 && p.terms[0] == "" {
			p.terms = p.terms[1:]
		}
		for len(p.terms) > 0 && p.terms[len(p.terms)-1] == "" {
			p.terms = p.terms[:len(p.terms)-1]
		}
		if len(p.terms) > 0 { // otherwise it is stop words, which are passed over
			parts = append(parts, p)
		}
	}
	return text, parts
}
