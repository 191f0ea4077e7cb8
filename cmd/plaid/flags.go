package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// onceValue refuses a flag that is given twice.
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

// intValue is a whole number of at least min.
type intValue struct {
	p   *int
	min int
}

func newInt(p *int, def, min int) *intValue {
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

// choiceValue is one of some words.
type choiceValue struct {
	p     *string
	words []string
}

func newChoice(p *string, def string, words ...string) *choiceValue {
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

// durationValue is a time that is not negative.
type durationValue struct{ p *time.Duration }

func newDuration(p *time.Duration) *durationValue { return &durationValue{p} }

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

// sizeValue is a number of bytes.
type sizeValue struct{ p *int64 }

func newSize(p *int64, def int64) *sizeValue {
	*p = def
	return &sizeValue{p}
}

func (v *sizeValue) Set(s string) error {
	n, err := parseSize(s)
	if err != nil {
		return err
	}
	*v.p = n
	return nil
}
func (v *sizeValue) String() string { return formatBytes(*v.p) }
func (v *sizeValue) Type() string   { return "SIZE" }

var errSize = errors.New("want a size such as 512MiB, 1GB or 1073741824")

// parseSize reads 1GiB, 1.5GB, 512M or a plain number of bytes, in any case.
// As in coreutils, M and MiB are 2²⁰ bytes and MB is 10⁶.
func parseSize(s string) (int64, error) {
	number := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	unit := strings.ToLower(strings.TrimSpace(s[len(number):]))
	x, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(x) || x < 0 {
		return 0, errSize
	}
	scale := 1.0
	if unit != "" && unit != "b" {
		power := strings.IndexByte("kmgt", unit[0]) + 1
		switch unit[1:] {
		case "", "ib":
			scale = math.Pow(1024, float64(power))
		case "b":
			scale = math.Pow(1000, float64(power))
		default:
			power = 0
		}
		if power == 0 {
			return 0, errSize
		}
	}
	if x *= scale; x >= math.MaxInt64 {
		return 0, errSize
	}
	return int64(x), nil
}
