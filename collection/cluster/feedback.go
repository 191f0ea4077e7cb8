package cluster

import (
	"context"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/search"
)

type evidenceAsk struct{ asked }

type evidenceFound struct{ answered }

func (f *evidenceFound) common() *answered { return &f.answered }

func (c *Cluster) doEvidence(ctx context.Context, in *evidenceAsk) (*answers[evidenceFound], error) {
	return nil, collection.ErrUnsupported
}

func (v *view) withFeedback(ctx context.Context, q search.Query, o search.Options) (*search.Result, error) {
	return nil, collection.Unsupported("feedback")
}
