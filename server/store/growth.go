package store

import "fmt"

// Growth says how a collection is kept while it is small, and when it is trained
// anew. The sizes are tokens of live documents.
//
//	up to Flat     8 bits a component around zero; nothing is trained, and searches
//	               score every document exactly
//	up to Until    8 bits a component around centroids, trained anew each time the
//	               collection has grown by Factor since the last training
//	from there on  the bits of [Config], trained once. The drift of what is added is
//	               watched, and [Collection.Retrain] is for whoever runs the service.
//
// A training reads one state of the collection, beside searches and writes, and what
// comes meanwhile is encoded again before the new file takes the place of the old one
// by one rename. A process that dies leaves the one or the other.
type Growth struct {
	Flat   int64   // 0: 32,768; −1: nothing but what a training needs
	Until  int64   // 0: 1,048,576; −1: the first documents are encoded for good
	Factor float64 // 0: 4
	// Drift is how many times the error of training the error of what was added since
	// may be before a training is said to pay; 0: 1.5.
	Drift float64
}

func (g *Growth) complete() error {
	if g.Flat == 0 {
		g.Flat = 1 << 15
	}
	if g.Until == 0 {
		g.Until = 1 << 20
	}
	if g.Factor == 0 {
		g.Factor = 4
	}
	if g.Drift == 0 {
		g.Drift = 1.5
	}
	if g.Flat < -1 || g.Until < -1 || !(g.Factor >= 1.25) || !(g.Drift > 1) {
		return fmt.Errorf("%w: growth of %+v", ErrConfig, *g)
	}
	return nil
}
