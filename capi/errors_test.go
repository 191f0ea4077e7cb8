//go:build cgo

package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// TestErrors: errors and panics of work become a code and a message that ends.
func TestErrors(t *testing.T) {
	const argument, unsupported, internal = 1, 2, 6
	stack := []byte("stack of the goroutine")
	for want, c := range map[string]struct {
		code cCode
		work func() error
	}{
		"q.dim is 7":                {argument, func() error { return argumentErrorf("q.dim is %d", 7) }},
		"odd offsets":               {argument, func() error { return fmt.Errorf("%w: odd offsets", kernels.ErrShape) }},
		"on neon":                   {unsupported, func() error { return fmt.Errorf("%w: on neon", maxsim.ErrUnsupported) }},
		"not known":                 {internal, func() error { return errors.New("not known") }},
		"errors_test.go:":           {internal, func() error { panic("with a stack") }},
		string(stack):               {internal, func() error { panic(&parallel.Panic{Value: "in another", Stack: stack}) }},
		"out of range [25]":         {internal, func() error { _ = stack[len(stack)+3]; return nil }},
		strings.Repeat("much", 251): {internal, func() error { return errors.New(strings.Repeat("much", 1000)) }},
	} {
		var e cError
		require.Equal(t, c.code, run(&e, c.work), want)
		require.Equal(t, cInt(c.code), e.code, want)
		require.Contains(t, message(&e), want)
		require.Equal(t, c.code, run(nil, c.work), want)
	}
	var e cError
	require.Zero(t, run(&e, func() error { return nil }))
	require.Empty(t, message(&e))
}
