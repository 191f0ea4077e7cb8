package collection

import (
	"fmt"

	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// Selection says which documents are meant: those of which all holds that is given. What
// is nil restricts nothing, a list without entries lets nothing through, and the zero
// Selection means all documents. What a list names and is not there is passed over.
type Selection struct {
	Numbers []uint64 // document ids
	IDs     []string // names; that of a longer document means all its passages ([vectors.Passage])
	Where   *condition.Condition
}

// ways is how many of the fields are given.
func (s *Selection) ways() (n int) {
	for _, given := range []bool{s.Numbers != nil, s.IDs != nil, s.Where != nil} {
		if given {
			n++
		}
	}
	return n
}

// All tells whether all documents are meant.
func (s *Selection) All() bool { return s.ways() == 0 }

// Check refuses what is meant in more than one way, with [ErrSelection].
func (s *Selection) Check() error {
	if s.ways() > 1 {
		return fmt.Errorf("%w: document ids, ids or a condition are possible, and one of them only", ErrSelection)
	}
	return nil
}

// CheckOne refuses beside that what means all documents: nobody deletes them by saying
// nothing.
func (s *Selection) CheckOne() error {
	if s.All() {
		return fmt.Errorf("%w: document ids, ids or a condition are needed", ErrSelection)
	}
	return s.Check()
}
