package main

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// The pages are made up, and built as pages of text are: 32 × 32 cells, as ColPali has
// them, and 6 tokens that are no cells. The page is cut into boxes with margins. Cells of
// margins look alike on all pages of one of some styles. A box has a topic; each of its
// cells shows a word of the topic's, beside the topic, what all cells of the page share, and
// noise. A word fills two cells of a row, so that a tile of 2 × 2 mixes two rows. Topics and
// words have much that is read often and much that is rare.
//
// A question has 12 words that a box shows, with something of its topic and noise, and 8
// tokens that all questions have. So pages of the same topic compete, and the page asked for
// differs from them by which words it has.
const (
	pictureDim, pictureSide, pictureSpecial = 128, 32, 6

	pageStyles, pageTopics, pageBoxes = 16, 4096, 10
	pageWords, topicWords             = 32768, 128

	questionWords, questionRest = 12, 8

	pictureCells = pictureSide * pictureSide
	pictureRows  = pictureCells + pictureSpecial
)

// How long parts of a vector are, before it is scaled to unit length.
const (
	styleNoise                                   = 0.3
	boxNoise, cellPage, cellBox, cellWord        = 0.5, 0.4, 0.7, 0.8
	cellNoise, specialNoise                      = 0.5, 0.2
	questionTopic, questionNoise, questionShared = 0.6, 1.2, 0.3
)

// pictures is a source of pages that are made when they are read.
type pictures struct {
	n                           int
	styles, topics, words, rest []float32
}

func newPictures(n int) *pictures {
	r := rand.New(rand.NewPCG(1, 1))
	directions := func(n int) []float32 {
		out := make([]float32, n*pictureDim)
		for i := range n {
			mix(r, row(out, i), 1)
		}
		return out
	}
	return &pictures{
		n: n, styles: directions(pageStyles + pictureSpecial), topics: directions(pageTopics),
		words: directions(pageWords), rest: directions(questionRest),
	}
}

// row is a vector of many.
func row(x []float32, i int) []float32 { return x[i*pictureDim : (i+1)*pictureDim] }

// share is a part of a vector: a direction, and how much of it.
type share struct {
	of   []float32
	much float64
}

// mix is the sum of parts and of noise of about so much length, scaled to unit length.
func mix(r *rand.Rand, out []float32, noise float64, of ...share) {
	noise /= math.Sqrt(pictureDim)
	var square float64
	for j := range out {
		x := noise * r.NormFloat64()
		for _, p := range of {
			x += p.much * float64(p.of[j])
		}
		out[j] = float32(x)
		square += x * x
	}
	inv := float32(1 / math.Sqrt(square))
	for j := range out {
		out[j] *= inv
	}
}

func (p *pictures) Dim() int        { return pictureDim }
func (p *pictures) Len() int        { return p.n }
func (p *pictures) Rows(int) int    { return pictureRows }
func (p *pictures) ID(i int) string { return fmt.Sprint("page", i) }
func (p *pictures) Close() error    { return nil }

// box is a part of a page that has one topic: rows and columns from … to before ….
type box struct{ top, bottom, left, right, topic int }

// often is a number below n, low ones more often.
func often(r *rand.Rand, n int) int { x := r.Float64(); return int(x * x * float64(n)) }

// layout cuts a page into boxes, the longer side of the largest one at a time.
func layout(r *rand.Rand) []box {
	boxes := []box{{1, pictureSide - 1, 1, pictureSide - 1, 0}}
	for len(boxes) < pageBoxes {
		largest := 0
		area := func(b box) int { return (b.bottom - b.top) * (b.right - b.left) }
		for i, b := range boxes {
			if area(b) > area(boxes[largest]) {
				largest = i
			}
		}
		b, rest := &boxes[largest], boxes[largest]
		cut := 0.3 + 0.4*r.Float64()
		if b.bottom-b.top >= b.right-b.left {
			b.bottom = b.top + int(cut*float64(b.bottom-b.top))
			rest.top = b.bottom + 1
		} else {
			b.right = b.left + int(cut*float64(b.right-b.left))
			rest.left = b.right + 1
		}
		boxes = append(boxes, rest)
	}
	for i := range boxes {
		boxes[i].topic = often(r, pageTopics)
	}
	return boxes
}

// word is one that a topic has.
func word(topic, i int) int { return int(uint32(topic*topicWords+i) * 2654435761 % pageWords) }

// page makes the vectors of page i, and tells which word cells show: −1, none.
func (p *pictures) page(i int) (out []float32, boxes []box, shown [pictureCells]int) {
	r := rand.New(rand.NewPCG(uint64(i), 2))
	out = make([]float32, pictureRows*pictureDim)
	own, region := make([]float32, pictureDim), make([]float32, pictureDim)
	mix(r, own, 1)
	style := row(p.styles, r.IntN(pageStyles))
	for c := range shown {
		shown[c] = -1
	}
	boxes = layout(r)
	for _, b := range boxes {
		mix(r, region, boxNoise, share{row(p.topics, b.topic), 1})
		for y := b.top; y < b.bottom; y++ {
			phase, w := r.IntN(2), 0
			for x := b.left; x < b.right; x++ {
				if x == b.left || (x+phase)%2 == 0 {
					w = word(b.topic, often(r, topicWords))
				}
				c := y*pictureSide + x
				shown[c] = w
				mix(r, row(out, c), cellNoise, share{own, cellPage}, share{region, cellBox}, share{row(p.words, w), cellWord})
			}
		}
	}
	for c, w := range shown {
		if w < 0 {
			mix(r, row(out, c), styleNoise, share{style, 1})
		}
	}
	for s := range pictureSpecial {
		mix(r, row(out, pictureCells+s), specialNoise, share{row(p.styles, pageStyles+s), 1})
	}
	return out, boxes, shown
}

// Docs implements [vectors.Source]. Pages are made on all processors, some at a time.
func (p *pictures) Docs(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		made := make([][]float32, min(64, max(to-from, 0)))
		for lo := from; lo < to; lo += len(made) {
			n := min(len(made), to-lo)
			err := parallel.Do(ctx, n, parallel.Processors(), func(i int) error {
				made[i], _, _ = p.page(lo + i)
				return nil
			})
			for i := range n {
				d := vectors.Document{ID: p.ID(lo + i), Tokens: made[i], Payload: fmt.Appendf(nil, `{"image": "%d.png", "grid": [%d, %d]}`, lo+i, pictureSide, pictureSide)}
				if !yield(d, err) || err != nil {
					return
				}
			}
		}
	}
}

// question is one about a page.
func (p *pictures) question(n int) (q search.Query, page int) {
	r := rand.New(rand.NewPCG(uint64(n), 3))
	page = r.IntN(p.n)
	_, boxes, shown := p.page(page)
	b := boxes[r.IntN(len(boxes))]
	for b.bottom-b.top < 2 || b.right-b.left < 2 {
		b = boxes[r.IntN(len(boxes))]
	}
	q = search.Query{Dim: pictureDim, Vectors: make([]float32, (questionWords+questionRest)*pictureDim)}
	for t := range questionWords {
		c := (b.top+r.IntN(b.bottom-b.top))*pictureSide + b.left + r.IntN(b.right-b.left)
		mix(r, row(q.Vectors, t), questionNoise, share{row(p.words, shown[c]), 1}, share{row(p.topics, b.topic), questionTopic})
	}
	for t := range questionRest {
		mix(r, row(q.Vectors, questionWords+t), questionShared, share{row(p.rest, t), 1})
	}
	return q, page
}
