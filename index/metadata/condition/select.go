package condition

import "context"

// Sets tells [Select] of the documents of a collection.
type Sets[S any] interface {
	// Test is the set of documents for which a test has a value, True or False.
	Test(t *Test, is Truth) (S, error)
	// All is the set of all documents, None the empty one.
	All() S
	None() S
	// And and Or may change a, and return it.
	And(a, b S) S
	Or(a, b S) S
}

// Select is the set of documents that a condition is true of, by those of its tests:
// whoever answers them need not know what NULL does to AND, OR and NOT. What is not
// true can be false or unknown, so that sets are never taken from All; only the
// answers of tests are put together. A test that answers with too many documents makes
// the result too large, never too small. Between tests the context is looked at.
func Select[S any](ctx context.Context, c *Condition, sets Sets[S]) (S, error) {
	return selectNode(ctx, c.root, sets, True)
}

func selectNode[S any](ctx context.Context, b *bound, sets Sets[S], is Truth) (S, error) {
	switch b.join {
	case "":
		if err := ctx.Err(); err != nil {
			return sets.None(), err
		}
		if b.test.op != opConstant {
			return sets.Test(b.test, is)
		}
		if truthOf(b.test.constant) == is {
			return sets.All(), nil
		}
		return sets.None(), nil
	case joinNot:
		return selectNode(ctx, b.parts[0], sets, -is)
	}
	join := sets.Or // one part that is false makes AND false
	if (b.join == joinAnd) == (is == True) {
		join = sets.And
	}
	all, err := selectNode(ctx, b.parts[0], sets, is)
	for _, p := range b.parts[1:] {
		if err != nil {
			return all, err
		}
		var s S
		if s, err = selectNode(ctx, p, sets, is); err == nil {
			all = join(all, s)
		}
	}
	return all, err
}
