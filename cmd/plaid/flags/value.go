package flags

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/internal/size"
)

// Once is a value of a flag that must not be given twice.
func Once(v pflag.Value) pflag.Value { return &onceValue{Value: v} }

type onceValue struct {
	pflag.Value
	given bool
}

func (v *onceValue) Set(s string) error {
	if v.given {
		return errors.New("the flag is given twice")
	}
	v.given = true
	return v.Value.Set(s)
}

type intValue struct {
	p   *int
	min int
}

// Int is a whole number of at least min.
func Int(p *int, def, min int) pflag.Value {
	*p = def
	return &intValue{p, min}
}

func (v *intValue) Set(s string) error {
	n, err := strconv.Atoi(s)
	switch {
	case err != nil:
		return errors.New("not a whole number")
	case n < v.min:
		return fmt.Errorf("at least %d is needed", v.min)
	}
	*v.p = n
	return nil
}
func (v *intValue) String() string { return strconv.Itoa(*v.p) }
func (v *intValue) Type() string   { return "N" }

type choiceValue struct {
	p     *string
	words []string
}

// Choice is one of some words.
func Choice(p *string, def string, words ...string) pflag.Value {
	*p = def
	return &choiceValue{p, words}
}

func (v *choiceValue) Set(s string) error {
	if !slices.Contains(v.words, s) {
		return fmt.Errorf("there is %s", strings.Join(v.words, ", "))
	}
	*v.p = s
	return nil
}
func (v *choiceValue) String() string { return *v.p }
func (v *choiceValue) Type() string   { return strings.Join(v.words, "|") }

type durationValue struct{ p *time.Duration }

// Duration is a time that is not negative.
func Duration(p *time.Duration) pflag.Value { return &durationValue{p} }

func (v *durationValue) Set(s string) error {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return errors.New("want a time such as 500ms, 10s or 2m")
	case d < 0:
		return errors.New("a time cannot be negative")
	}
	*v.p = d
	return nil
}
func (v *durationValue) String() string { return v.p.String() }
func (v *durationValue) Type() string   { return "TIME" }

type intsValue struct {
	p   *[]int
	min int
}

// Ints is a list of whole numbers of at least min.
func Ints(p *[]int, min int, def ...int) pflag.Value {
	*p = def
	return &intsValue{p, min}
}

func (v *intsValue) Set(s string) error {
	var list []int
	for part := range strings.SplitSeq(s, ",") {
		n := 0
		if err := (&intValue{&n, v.min}).Set(strings.TrimSpace(part)); err != nil {
			return err
		}
		list = append(list, n)
	}
	*v.p = list
	return nil
}

func (v *intsValue) String() string {
	parts := make([]string, len(*v.p))
	for i, n := range *v.p {
		parts[i] = strconv.Itoa(n)
	}
	return strings.Join(parts, ",")
}
func (v *intsValue) Type() string { return "LIST" }

// Nbits is a number of bits that a component may have.
func Nbits(p *int) pflag.Value {
	*p = 2
	return &nbitsValue{intValue{p, 1}}
}

type nbitsValue struct{ intValue }

func (v *nbitsValue) Set(s string) error {
	if !slices.Contains(strings.Fields("1 2 4 8"), s) {
		return errors.New("there is 1, 2, 4, 8")
	}
	return v.intValue.Set(s)
}
func (v *nbitsValue) Type() string { return "1|2|4|8" }

type fractionValue struct {
	p    *float64
	none bool // 0 is one
}

// Portion is a number above 0 and at most 1.
func Portion(p *float64, def float64) pflag.Value {
	*p = def
	return &fractionValue{p: p}
}

// Weight is a number from 0 to 1, both included.
func Weight(p *float64, def float64) pflag.Value {
	*p = def
	return &fractionValue{p: p, none: true}
}

func (v *fractionValue) Set(s string) error {
	x, err := strconv.ParseFloat(s, 64)
	switch {
	case err == nil && (x > 0 || v.none && x == 0) && x <= 1:
		*v.p = x
		return nil
	case v.none:
		return errors.New("want a number from 0 to 1")
	}
	return errors.New("want a number above 0 and at most 1")
}
func (v *fractionValue) String() string { return out.Float(*v.p) }
func (v *fractionValue) Type() string   { return "X" }

type sizeValue struct{ p *int64 }

// Size is a number of bytes.
func Size(p *int64, def int64) pflag.Value {
	*p = def
	return &sizeValue{p}
}

func (v *sizeValue) Set(s string) error {
	n, err := size.Parse(s)
	if err != nil {
		return err
	}
	*v.p = n
	return nil
}
func (v *sizeValue) String() string { return out.Bytes(*v.p) }
func (v *sizeValue) Type() string   { return "SIZE" }
