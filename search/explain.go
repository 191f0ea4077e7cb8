package search

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/topk"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// Stage is where a document left a search.
type Stage string

// The stages, in order.
const (
	StageEmpty     Stage = "empty"      // it has no tokens, so no search returns it
	StageFiltered  Stage = "filtered"   // the filter or the candidate list excludes it
	StageProbe     Stage = "not probed" // it is in no posting list that was probed
	StageCut       Stage = "cut"        // beyond the approximate budget, by probed centroids
	StagePruned    Stage = "pruned"     // beyond the exact budget, by approximate score
	StageOutranked Stage = "outranked"  // scored exactly, and K others are better
	StageReturned  Stage = "returned"
)

// Explanation is how a document gets its score for a query, and how far it got in a search.
type Explanation struct {
	ID      string `json:"id"`              // of the document
	Shard   int    `json:"shard,omitempty"` // as in [Hit]
	Ordinal uint32 `json:"ordinal"`         // of the document
	Tokens  int    `json:"tokens"`          // how many it has
	// Score is MaxSim over the decoded vectors, in float64.
	Score float64 `json:"score"`
	// Stage is where the document left the search, Rank its rank from 1 if it was returned.
	Stage Stage `json:"stage"`
	Rank  int   `json:"rank,omitempty"`
	// Plan is how the query was answered. "" means that its filter allows no document.
	Plan string `json:"plan,omitempty"`
	// StageScore is its score in the stage that dropped or returned it, StageLimit the lowest score
	// that passed that stage. They are nil for stages without scores.
	StageScore *float64 `json:"stage_score,omitempty"`
	StageLimit *float64 `json:"stage_limit,omitempty"`
	// Matches has an entry for each query token that is not masked.
	Matches []Match `json:"matches"`
	// Image is the image of a page ([vectors.Page]), and Grid has the scores of the query tokens on
	// it. NoGrid is the reason why Grid is missing although the page has a grid.
	Image  string      `json:"image,omitempty"`
	Grid   *GridScores `json:"grid,omitempty"`
	NoGrid string      `json:"no_grid,omitempty"`
}

// Match is the document token that matches a query token best.
type Match struct {
	QueryToken int     `json:"query_token"`    // its number in the query, from 0
	DocToken   int     `json:"doc_token"`      // number of the best token in the document, from 0
	Weight     float64 `json:"weight"`         // of the query token; 1 without weights
	Score      float64 `json:"score"`          // ⟨q, v̂⟩
	Code       uint32  `json:"code"`           // centroid of the document token
	Centroid   float64 `json:"centroid_score"` // ⟨q, C⟩
}

// trace records how far one document gets in a search.
type trace struct {
	shard   *shard
	ordinal uint32
	plan    string
	stage   Stage
	rank    int
	score   *float64
	limit   *float64
}

// Explain answers the query and explains what became of the document. An id that names no live
// document is an [ErrUnknownID]. If the document is stored as passages, its passage with the
// highest score is explained; if several shards have the id, the first. If the engine searches on a
// device, the processor repeats the search.
func (s *searcher) Explain(ctx context.Context, q Query, id string, o Options) (x *Explanation, err error) {
	err = s.explainWith(ctx, q, id, o, func(coll *collection, t *trace) (err error) {
		x, err = newExplanation(coll, &q, t)
		return err
	})
	return x, err
}

// Trace returns the Stage of Explain, without computing the rest.
func (s *searcher) Trace(ctx context.Context, q Query, id string, o Options) (stage Stage, err error) {
	err = s.explainWith(ctx, q, id, o, func(_ *collection, t *trace) error {
		stage = t.stage
		return nil
	})
	return stage, err
}

// explainWith searches, traces a document, and calls explain with the trace while the collection is
// open.
func (s *searcher) explainWith(
	ctx context.Context, q Query, id string, o Options, explain func(*collection, *trace) error,
) (err error) {
	if o.Group != "" || o.Feedback != nil || o.Offset != 0 || o.MinScore != nil {
		return fmt.Errorf("%w: a search is explained without group, feedback, offset and min_score", ErrOption)
	}
	coll, done, err := s.acquireCollection()
	if err != nil {
		return err
	}
	defer done()
	defer func() {
		if err != nil {
			err = singleQueryError(s.batchError(ctx, err))
		}
	}()
	defer storage.Guard(coll.firstSnapshot().Path(), &err)()
	searchCtx := &searchContext{ctx, s.lifetime}
	if err := searchCtx.Err(); err != nil {
		return err
	}
	t, err := s.findDocument(searchCtx, coll, q, id)
	if err != nil {
		return err
	}
	call, err := s.newCall(searchCtx, coll, []Query{q}, &o)
	if err != nil {
		return err
	}
	if err := s.stages.traceDocument(searchCtx, call, t); err != nil {
		return err
	}
	return explain(coll, t)
}

// findDocument returns a trace of the document with an id, or of its passage with the highest
// score.
func (c *core) findDocument(ctx context.Context, coll *collection, q Query, id string) (*trace, error) {
	for i := range coll.shards {
		ordinal, ok, err := coll.shards[i].snap.Ordinal(id)
		if err != nil {
			return nil, err
		}
		if ok {
			return &trace{shard: &coll.shards[i], ordinal: ordinal}, nil
		}
	}
	q.Filter = nil
	bestPassage := Options{K: 1, Mode: Candidates, Candidates: []string{id}, AllowMissing: true}
	found, err := c.answer(ctx, coll, []Query{q}, &bestPassage)
	if err != nil {
		return nil, err
	}
	if len(found[0].Hits) == 0 {
		return nil, fmt.Errorf("%w: %.100q", ErrUnknownID, id)
	}
	h := &found[0].Hits[0]
	return &trace{shard: &coll.shards[h.Shard], ordinal: h.Ordinal}, nil
}

// newExplanation computes the score of the traced document in float64, and its matches.
func newExplanation(coll *collection, q *Query, t *trace) (_ *Explanation, err error) {
	snap := t.shard.snap
	defer storage.Guard(snap.Path(), &err)()
	ch, doc, err := documentChunk(snap, t.ordinal)
	if err != nil {
		return nil, err
	}
	x := &Explanation{
		ID:         snap.ID(t.ordinal),
		Shard:      t.shard.index,
		Ordinal:    t.ordinal,
		Tokens:     int(ch.Offsets[doc+1] - ch.Offsets[doc]),
		Stage:      t.stage,
		Rank:       t.rank,
		Plan:       t.plan,
		StageScore: t.score,
		StageLimit: t.limit,
	}
	vectors, weights, err := q.tokens(coll, nil)
	if err != nil {
		return nil, err
	}
	var argmax []int
	x.Score, argmax = kernels.OracleMaxSim(snap.Codec(), vectors, weights, ch, doc)
	x.Matches = tokenMatches(q, snap.Codec(), ch, doc, vectors, weights, argmax)
	var matchedRows []int // the row of vectors of each match
	for i, best := range argmax {
		if best >= 0 {
			matchedRows = append(matchedRows, i)
		}
	}
	return x, x.addPage(snap, vectors, matchedRows, ch, doc)
}

// tokenMatches returns the matches of a document. vectors are the unmasked query tokens, and argmax
// has the document token that each matches best, or −1.
func tokenMatches(
	q *Query, c *kernels.Codec, ch *kernels.Chunk, doc int, vectors, weights []float32, argmax []int,
) []Match {
	dim := c.Dim()
	row := make([]float32, dim)
	out := []Match{}
	next := 0
	for t := range len(q.Vectors) / dim {
		if q.Mask != nil && !q.Mask[t] {
			continue
		}
		i := next
		next++
		if argmax[i] < 0 {
			continue
		}
		token := int(ch.Offsets[doc]) + argmax[i]
		m := Match{QueryToken: t, DocToken: argmax[i], Weight: 1, Code: ch.Code(token)}
		if weights != nil {
			m.Weight = float64(weights[i])
		}
		v := vectors[i*dim : (i+1)*dim]
		for j, x := range kernels.OracleDecode(c, ch, token) {
			m.Score += float64(v[j]) * x
		}
		c.Centroids.Rows(row, int(m.Code), int(m.Code)+1)
		for j, x := range row {
			m.Centroid += float64(v[j]) * float64(x)
		}
		out = append(out, m)
	}
	return out
}

// leaveAt records where the document left the search, with its score there and the lowest score that
// passed.
func (t *trace) leaveAt(stage Stage, score, limit *float64) {
	t.stage, t.score, t.limit = stage, score, limit
}

// isInGroup reports whether the traced document is in a group of shards. A nil trace has none.
func (t *trace) isInGroup(g shardGroup) bool {
	return t != nil && t.shard.index >= g[0].index && t.shard.index <= g[len(g)-1].index
}

// recordFilter records whether the filter allows the document.
func (t *trace) recordFilter(allowed *allowedDocs) {
	t.leaveAt(StageFiltered, nil, nil)
	switch live, _ := t.shard.snap.LiveSet(); {
	case !hasBit(live, t.ordinal):
		t.stage = StageEmpty
	case allowed.shards[t.shard.index].contains(t.ordinal):
		t.stage = StageProbe
	}
}

// recordRanking records, if the document is in list, that it leaves at this stage unless a later
// stage records it again, with its score and the lowest of the n best.
func (t *trace) recordRanking(list []topk.Scored, stage Stage, n int) {
	i := slices.IndexFunc(list, func(s topk.Scored) bool { return s.Doc == t.shard.base+t.ordinal })
	if i < 0 {
		return
	}
	score, limit := float64(list[i].Score), math.Inf(1)
	for _, s := range topk.Best(slices.Clone(list), n) {
		limit = min(limit, float64(s.Score))
	}
	t.leaveAt(stage, &score, &limit)
}

// recordResult records the rank of the document, if it is in the result.
func (t *trace) recordResult(top []located) {
	if t == nil {
		return
	}
	for i, s := range top {
		if s.shard.index == t.shard.index && s.ordinal == t.ordinal {
			t.stage, t.rank = StageReturned, i+1
		}
	}
}

// addMatches adds to hits, which are at locations, their matches with the query.
func (r *run) addMatches(hits []Hit, locations []located, vectors, weights []float32) error {
	q := &r.call.queries[r.queryIndex]
	return r.forEach(len(hits), func(i int) (err error) {
		defer locations[i].shard.guardRead(r.call, &err)()
		if err := r.ctx.Err(); err != nil {
			return err
		}
		snap := locations[i].shard.snap
		ch, doc, err := documentChunk(snap, locations[i].ordinal)
		if err != nil {
			return err
		}
		hits[i].Tokens = int(ch.Offsets[doc+1] - ch.Offsets[doc])
		hits[i].Matches = tokenMatches(q, snap.Codec(), ch, doc, vectors, weights, r.bestTokens(ch, doc))
		return nil
	})
}

// bestTokens returns for each query token the document token with the highest score, the first of
// several. The document must not be empty.
func (r *run) bestTokens(ch *kernels.Chunk, doc int) []int {
	n, first := r.query.Len(), int(ch.Offsets[doc])
	best, products, maxima := make([]int, n), make([]float64, n), make([]float64, n)
	for t := first; t < int(ch.Offsets[doc+1]); t++ {
		r.query.Maxima(products, ch, t, t+1, kernels.Fine)
		if t == first {
			copy(maxima, products)
			continue
		}
		for i, x := range products {
			if x > maxima[i] {
				maxima[i], best[i] = x, t-first
			}
		}
	}
	return best
}

// GridScores has the scores of query tokens over the grid of a page.
type GridScores struct {
	// Rows and Columns are those of [vectors.Grid], also where tiles of cells were pooled.
	Rows    int `json:"rows"`
	Columns int `json:"columns"`
	// Special is how many tokens of the document are not cells.
	Special int `json:"special"`
	// Scores has an entry for each of [Explanation].Matches, in the same order.
	Scores []CellScores `json:"scores"`
}

// CellScores are the inner products of a query token with the tokens of a page, rounded to four
// decimals, without the token's weight.
type CellScores struct {
	QueryToken int `json:"query_token"` // its number in the query, from 0
	// Cells are in order row after row, from the top left. All cells of a pooled tile have the
	// score of the tile.
	Cells []float32 `json:"cells"`
	// Special has the scores of tokens that are not cells, in their order.
	Special []float32 `json:"special"`
}

// addPage adds the image and the grid to the explanation of a page.
func (x *Explanation) addPage(
	snap *index.Snapshot, query []float32, matchedRows []int, ch *kernels.Chunk, doc int,
) error {
	payload, err := snap.Payload(x.Ordinal)
	if err != nil {
		return err
	}
	page, err := vectors.PageFromPayload(payload)
	if page == nil {
		if err != nil {
			x.NoGrid = err.Error() // another program stored it
		}
		return nil
	}
	x.Image = page.Image
	if page.Grid == nil {
		return nil
	}
	stored, tileSide, err := snap.StoredGrid(page, x.Tokens)
	switch {
	case err != nil:
		x.NoGrid = err.Error()
		return nil
	case tileSide == 0:
		x.NoGrid = "tokens were pooled, and not as tiles: their cells are unknown"
		return nil
	}
	g := &GridScores{
		Rows:    page.Grid.Rows,
		Columns: page.Grid.Columns,
		Special: x.Tokens - stored.Cells(),
		Scores:  make([]CellScores, len(x.Matches)),
	}
	// Compute the product of each matched query token with each token of the page.
	dim, first := snap.Dim(), int(ch.Offsets[doc])
	products := make([][]float32, len(x.Matches))
	for i := range products {
		products[i] = make([]float32, x.Tokens)
	}
	for t := range x.Tokens {
		token := kernels.OracleDecode(snap.Codec(), ch, first+t)
		for i := range products {
			sum := 0.0
			for j, v := range query[matchedRows[i]*dim : (matchedRows[i]+1)*dim] {
				sum += float64(float64(v) * token[j])
			}
			products[i][t] = float32(math.Round(sum*1e4) / 1e4)
		}
	}
	for i, p := range products {
		s := CellScores{
			QueryToken: x.Matches[i].QueryToken,
			Cells:      make([]float32, 0, page.Grid.Cells()),
			Special:    make([]float32, 0, g.Special),
		}
		for cell := range page.Grid.Cells() {
			row, column := cell/g.Columns/tileSide, cell%g.Columns/tileSide // of the tile with the cell
			s.Cells = append(s.Cells, p[stored.First+row*stored.Columns+column])
		}
		s.Special = append(append(s.Special, p[:stored.First]...), p[stored.End():]...)
		g.Scores[i] = s
	}
	x.Grid = g
	return nil
}
