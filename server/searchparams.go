package server

import (
	"github.com/plaid-ir/plaid/search"
)

// The values of the fields fusion and text_mode.
const (
	fusionRelative = "relative_score"
	fusionRanks    = "rrf"

	textWords      = "words"
	textExpression = "expression"
)

// validate checks the fields of a search with a number of queries, without looking at the index.
func (in *searchFields) validate(queries int, rule conditionRule) error {
	switch {
	case rule == conditionRequired && in.Condition == "":
		return badRequest("filter_condition is missing")
	case queries == 0 && len(in.TextQuery) == 0:
		return badRequest("queries is empty, and there is no text_query")
	case queries > 0 && len(in.TextQuery) > 0 && queries != len(in.TextQuery):
		return badRequest("there are %d queries and %d texts in text_query: want one for each", queries,
			len(in.TextQuery))
	case in.TextMode != "" && in.TextMode != textWords && in.TextMode != textExpression:
		return badRequest("text_mode is %q; want words or expression", in.TextMode)
	case in.Alpha != nil && (*in.Alpha < 0 || *in.Alpha > 1):
		return badRequest("alpha is %g; want 0 to 1", *in.Alpha)
	case queries == 0 && in.Group != "" && in.Group != string(search.GroupBest):
		return badRequest("group is %q; text_query alone ranks documents by their best passages: best", in.Group)
	case in.Fusion != "" && in.Fusion != fusionRelative && in.Fusion != fusionRanks:
		return badRequest("fusion is %q; want relative_score or rrf", in.Fusion)
	}
	if err := in.checkEvidence(queries); err != nil {
		return err
	}
	p := &in.Params
	if p.TopK != nil && *p.TopK < 1 {
		return badRequest("params.top_k is %d; want 1 or more", *p.TopK)
	}
	if p.Offset < 0 {
		return badRequest("params.offset is %d; want 0 or more", p.Offset)
	}
	for _, param := range []struct {
		name  string
		value *int
	}{{"n_ivf_probe", p.Probes}, {"n_full_scores", p.FullScores}, {"n_approximate_scores", p.Approx}} {
		if param.value != nil && *param.value < 0 {
			return badRequest("params.%s is %d; want 0 or more", param.name, *param.value)
		}
	}
	_, err := p.searchMode()
	return err
}

// searchMode parses the field mode.
func (p *paramsIn) searchMode() (search.Mode, error) {
	if p.Mode == "" {
		return search.Pruned, nil
	}
	m, err := search.ParseMode(p.Mode)
	if err != nil {
		return 0, badRequest("params.mode is %q; want pruned, exhaustive or candidates", p.Mode)
	}
	return m, nil
}

// defaultTopK is the number of documents that a search without top_k returns.
const defaultTopK = 10

// searchPage returns the page of hits that is wanted from an index of a number of documents. K is 0 if the
// page begins behind the last document.
func (p *paramsIn) searchPage(documents int) search.Page {
	k, offset := defaultTopK, min(p.Offset, documents)
	if p.TopK != nil {
		k = *p.TopK
	}
	if offset == documents {
		k = 0
	}
	// K does not shrink towards the end: a pruned search ranks blocks of K documents, and a shorter last
	// block would change the ranking of the page.
	return search.Page{Offset: offset, K: min(k, documents), MinScore: p.MinScore}
}

// searchOptions returns the options of a search for a page.
func (p *paramsIn) searchOptions(page search.Page) (search.Options, error) {
	mode, err := p.searchMode()
	if err != nil {
		return search.Options{}, err
	}
	if mode == search.Candidates {
		mode = search.Exhaustive // over the documents that the filter allows
	}
	k := page.K
	o := search.Options{Mode: mode}
	o.SetPage(page)
	if p.Probes != nil && *p.Probes != clientDefaultProbes {
		o.Probes = *p.Probes
	}
	if p.FullScores != nil && *p.FullScores != clientDefaultFullScores && *p.FullScores > 0 {
		o.Exact = max(*p.FullScores, k)
	}
	if p.Approx != nil && *p.Approx > 0 {
		o.Approx = max(*p.Approx, o.Exact, k)
	}
	return o, nil
}
