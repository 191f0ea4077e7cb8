package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/plaid-ir/plaid/eval"
)

// measuresValue is a list of measures.
type measuresValue struct{ p *[]eval.Measure }

func newMeasures(p *[]eval.Measure, def string) *measuresValue {
	v := &measuresValue{p}
	if err := v.Set(def); err != nil {
		panic(err) // a default of ours
	}
	return v
}

func (v *measuresValue) Set(s string) error {
	list, err := eval.ParseMeasureList(s)
	if err == nil {
		*v.p = list
	}
	return err
}

func (v *measuresValue) String() string {
	names := make([]string, len(*v.p))
	for i, m := range *v.p {
		names[i] = m.String()
	}
	return strings.Join(names, ",")
}
func (v *measuresValue) Type() string { return "LIST" }

// namedValue is one of the values of a type that have names. The first is the
// default.
type namedValue[T fmt.Stringer] struct {
	p      *T
	values []T
}

func newNamed[T fmt.Stringer](p *T, values ...T) *namedValue[T] {
	*p = values[0]
	return &namedValue[T]{p, values}
}

func (v *namedValue[T]) Set(s string) error {
	for _, x := range v.values {
		if x.String() == s {
			*v.p = x
			return nil
		}
	}
	return fmt.Errorf("there is %s", strings.ReplaceAll(v.Type(), "|", ", "))
}
func (v *namedValue[T]) String() string { return (*v.p).String() }
func (v *namedValue[T]) Type() string {
	names := make([]string, len(v.values))
	for i, x := range v.values {
		names[i] = x.String()
	}
	return strings.Join(names, "|")
}

// shareValue is a number between 0 and 1, both excluded.
type shareValue struct{ p *float64 }

func newShare(p *float64, def float64) *shareValue {
	*p = def
	return &shareValue{p}
}

func (v *shareValue) Set(s string) error {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || !(x > 0 && x < 1) {
		return errors.New("want a number above 0 and below 1")
	}
	*v.p = x
	return nil
}
func (v *shareValue) String() string { return formatFloat(*v.p) }
func (v *shareValue) Type() string   { return "X" }

// formatFloat has the fewest digits that give back the float64.
func formatFloat(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// countNoun is a count with its noun.
func countNoun(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return formatCount(uint64(n)) + " " + many
}
