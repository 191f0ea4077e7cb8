package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/keywords"
	"github.com/plaid-ir/plaid/storage"
)

// across takes an error from one node to another.
func across(t *testing.T, err error) error {
	text, merr := json.Marshal(newFailure(err))
	require.NoError(t, merr)
	f := &failure{}
	require.NoError(t, json.Unmarshal(text, f))
	return f.toError()
}

// An error is the same on both sides of a node, in words and for errors.Is and errors.As.
func TestErrorsCross(t *testing.T) {
	for i := range wireErrors {
		err := across(t, fmt.Errorf("a shard: %w", wireErrors[i].err))
		require.ErrorIs(t, err, wireErrors[i].err, wireErrors[i].code)
		require.Equal(t, "a shard: "+wireErrors[i].err.Error(), err.Error())
		require.NotErrorIs(t, err, wireErrors[(i+1)%4].err, "%s is not %s", wireErrors[i].code, wireErrors[(i+1)%4].code)
		for j := range wireErrors[:i] {
			require.NotEqual(t, wireErrors[j].code, wireErrors[i].code)
		}
	}
	document := &collection.DocumentError{Document: 3, ID: "d", Token: 7,
		Err: fmt.Errorf("%w: 2, not 4", index.ErrDimension)}
	err := across(t, fmt.Errorf("part: %w", document))
	var d *collection.DocumentError
	require.ErrorAs(t, err, &d)
	require.Equal(t, document.Error(), d.Error())
	require.ErrorIs(t, d.Err, index.ErrDimension)
	require.True(t, isFinal(err))
	moved := toRequestIndex(err, []int{4, 5, 6, 70})
	require.ErrorAs(t, moved, &d)
	require.Equal(t, 70, d.Document)
	require.Equal(t, "document 70 (id \"d\"), token 7: "+document.Err.Error(), fmt.Sprint(moved),
		"as the request has it")

	require.True(t, isFinal(across(t, fmt.Errorf("a shard: %w", collection.ErrTooLarge))), "no other node would take it")
	busy := &collection.BusyError{Documents: 9, Bytes: 8, RetryAfter: 7 * time.Second}
	var b *collection.BusyError
	require.ErrorAs(t, across(t, busy), &b)
	require.Equal(t, busy, b)
	_, serr := condition.Parse("a = = 1")
	require.Error(t, serr)
	var at, got *condition.Error
	require.ErrorAs(t, serr, &at)
	require.ErrorAs(t, across(t, serr), &got)
	require.Equal(t, at.Error(), got.Error())
	require.ErrorIs(t, got, condition.ErrSyntax)
	field := &condition.UnknownFieldError{Field: "x", Fields: []condition.Field{"y"}}
	var f *condition.UnknownFieldError
	require.ErrorAs(t, across(t, field), &f)
	require.Equal(t, field, f)
	words := &keywords.SyntaxError{Query: `"a`, Offset: 2, Reason: "open"}
	var w *keywords.SyntaxError
	require.ErrorAs(t, across(t, words), &w)
	require.Equal(t, words, w)
	var q *search.QueryError
	require.ErrorAs(t, across(t, &search.QueryError{Index: 2, Err: search.ErrQuery}), &q)
	require.Equal(t, 2, q.Index)
	both := across(t, fmt.Errorf("%w: %w", storage.ErrOutcomeUnknown, syscall.ENOSPC))
	require.ErrorIs(t, both, storage.ErrOutcomeUnknown)
	require.ErrorIs(t, both, syscall.ENOSPC)
	require.False(t, isFinal(across(t, errors.New("something else"))))
	require.True(t, isCertainlyNotDone(across(t, context.DeadlineExceeded)), "the node has given up in time")
}

func FuzzFailure(f *testing.F) {
	for _, err := range []error{
		errors.New("x"), &collection.DocumentError{Err: index.ErrDuplicateID}, &search.QueryError{Err: search.ErrQuery},
		&collection.BusyError{}, &condition.Error{Condition: "a", Offset: 1, Err: condition.ErrSyntax},
		&keywords.SyntaxError{},
	} {
		text, _ := json.Marshal(newFailure(err))
		f.Add(text)
	}
	f.Add([]byte(`{"message":"m","at":{"offset":99,"condition":"é"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		in := &failure{}
		if json.Unmarshal(text, in) == nil {
			err := in.toError()
			_ = newFailure(err)
			_ = fmt.Sprintf("%v %+v", err, errors.Unwrap(err))
		}
	})
}

// The error of a change that was made in part names the documents that were stored.
func TestPartly(t *testing.T) {
	e := &collection.PartialError{Documents: []int{0, 2, 3}, Done: index.Affected{Documents: 3},
		Err: index.ErrDuplicateID}
	require.Equal(t,
		"the change was made in part: 3 documents and 0 passages; stored are the documents 0, 2, 3 of the request: "+
			index.ErrDuplicateID.Error(), e.Error())
	require.ErrorIs(t, e, index.ErrDuplicateID)
	for i := range 30 {
		e.Documents = append(e.Documents, 4+i)
	}
	require.Contains(t, e.Error(), " and 13 more of the request")
}

// Numbers are the same after their way, bit by bit, and a list without any is not taken for none.
func FuzzFloats(f *testing.F) {
	f.Add("AACAPwAAgL8=")
	f.Add("")
	f.Add("AAA=")
	f.Fuzz(func(t *testing.T, text string) {
		var v, again floats
		if v.UnmarshalText([]byte(text)) != nil {
			return
		}
		written, err := v.MarshalText()
		require.NoError(t, err)
		require.NoError(t, again.UnmarshalText(written))
		require.NotNil(t, again)
		require.Len(t, again, len(v))
		for i := range v {
			require.Equal(t, math.Float32bits(v[i]), math.Float32bits(again[i]))
		}
	})
}
