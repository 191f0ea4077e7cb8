package server

import (
	"errors"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/fuse"
	"github.com/plaid-ir/plaid/search/keywords"
	"github.com/plaid-ir/plaid/storage"
)

// keywordMode returns how the texts of text_query are parsed.
func (in *searchFields) keywordMode() keywords.Mode {
	if in.TextMode == textExpression {
		return keywords.Expression
	}
	return keywords.Words
}

// reserveKeywordMemory reserves the memory that the searches by words need, one after another, and returns
// its size. It must be called before memory of answers is reserved: requests always wait for memory of
// bodies first, so that two of them never wait for each other.
func (q *request) reserveKeywordMemory(v collection.Snapshot, in *searchFields) (size int64, err error) {
	memory, page := &q.body.reservation, in.Params.searchPage(v.MaxHits())
	for _, text := range in.TextQuery {
		query := keywords.Query{Text: text, Mode: in.keywordMode()}
		bytes := query.Bytes(v.MaxHits())
		if in.Group != "" {
			bytes += search.RankGroupsBytes(page.RankingPage(v.MaxHits()).K, in.passagesPerDocument(), v.MaxHits())
		}
		size = max(size, memory.limitToRemaining(bytes))
	}
	return size, memory.reserve(q.ctx, size)
}

// rankByKeywords ranks a page of the best allowed documents for each text of text_query. It releases the
// memory of reserveKeywordMemory.
func (q *request) rankByKeywords(
	v collection.Snapshot, in *searchFields, f searchFilters, page search.Page,
) ([]ranking, error) {
	defer q.body.reservation.release(f.keywordBytes)
	searcher, ok := v.(collection.Keywords)
	if !ok {
		return nil, collection.Unsupported("text_query")
	}
	passages := 0
	if in.Group != "" {
		passages = in.passagesPerDocument()
	}
	out := make([]ranking, len(in.TextQuery))
	if page.K == 0 {
		return out, nil
	}
	ctx, end := q.startStage("keywords")
	for i, text := range in.TextQuery {
		hits, err := searcher.SearchKeywords(ctx, collection.KeywordQuery{
			Text:     text,
			Mode:     in.keywordMode(),
			K:        page.K,
			Offset:   page.Offset,
			MinScore: page.MinScore,
			Filters:  []*search.Filter{f.shared, f.perQuery[i]},
			Payload:  in.wantsMetadata() || in.Highlight,
			Passages: passages,
		})
		if errors.Is(err, storage.ErrLocked) {
			err = problem(CodeBusy, "text_query: another process uses the keywords of the index").
				withRetryAfter(time.Second).withCause(err)
		}
		if err != nil {
			end(err)
			if _, ok := errors.AsType[*condition.Error](err); ok { // the condition is that of all queries
				return nil, err
			}
			return nil, queryError(i, err)
		}
		out[i] = newRanking(v, hits)
	}
	end(nil)
	return out, nil
}

// rankHybrid fuses the rankings by vectors and by keywords.
func (q *request) rankHybrid(
	v collection.Snapshot, tasks []task, in *searchFields, f searchFilters, page search.Page,
) ([]ranking, error) {
	rankingPage := search.Page{} // the two rankings from their beginning, without a minimum score
	if page.K > 0 {
		rankingPage = page.RankingPage(v.MaxHits())
	}
	byKeywords, err := q.rankByKeywords(v, in, f, rankingPage)
	if err != nil {
		return nil, err
	}
	out, err := q.rankByVectors(v, tasks, in, f, rankingPage)
	if err != nil || page.K == 0 {
		return out, err
	}
	method, alpha := fuse.RelativeScore, fuse.DefaultAlpha
	if in.Fusion == fusionRanks {
		method = fuse.ReciprocalRank
	}
	if in.Alpha != nil {
		alpha = *in.Alpha
	}
	for i := range out {
		r := &out[i]
		if r.hits, err = search.FuseRanked(method, alpha, page, rankingPage, r.hits, byKeywords[i].hits); err != nil {
			return nil, err
		}
	}
	return out, nil
}
