package flags

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/internal/human"
)

// Once wraps the value of a flag that may be given only once.
func Once(v pflag.Value) pflag.Value { return &onceValue{Value: v} }

type onceValue struct {
	pflag.Value
	alreadySet bool
}

// Set implements [pflag.Value].
func (v *onceValue) Set(s string) error {
	if v.alreadySet {
		return errors.New("the flag is set twice")
	}
	v.alreadySet = true
	return v.Value.Set(s)
}

// value implements [pflag.Value] with two functions.
type value[T any] struct {
	target *T
	kind   string
	parse  func(string) (T, error)
	show   func(T) string
}

// Value returns the value of a flag of any type, and sets *p to the default. kind is its name in
// the help, parse reads it, and show writes it. A text that parse refuses changes nothing.
func Value[T any](p *T, def T, kind string, parse func(string) (T, error), show func(T) string) pflag.Value {
	*p = def
	return value[T]{p, kind, parse, show}
}

// Set implements [pflag.Value].
func (v value[T]) Set(s string) error {
	x, err := v.parse(s)
	if err == nil {
		*v.target = x
	}
	return err
}

// String implements [pflag.Value].
func (v value[T]) String() string { return v.show(*v.target) }

// Type implements [pflag.Value].
func (v value[T]) Type() string { return v.kind }

// Int is the value of a flag for a whole number of at least min.
func Int(p *int, def, min int) pflag.Value {
	return Value(p, def, "N", func(s string) (int, error) { return parseInt(s, min) }, strconv.Itoa)
}

// parseInt reads a whole number of at least min.
func parseInt(s string, min int) (int, error) {
	n, err := strconv.Atoi(s)
	switch {
	case err != nil:
		return 0, errors.New("not a whole number")
	case n < min:
		return 0, fmt.Errorf("must be at least %d", min)
	}
	return n, nil
}

// OptionalNumber is the value of a flag for a finite number; *p is nil if the flag is not given.
func OptionalNumber(p **float64) pflag.Value {
	return Value(p, nil, "NUMBER", func(s string) (*float64, error) {
		x, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			return nil, errors.New("not a finite number")
		}
		return &x, nil
	}, func(x *float64) string {
		if x == nil {
			return ""
		}
		return strconv.FormatFloat(*x, 'g', -1, 64)
	})
}

// Choice is the value of a flag for one of the words.
func Choice(p *string, def string, words ...string) pflag.Value {
	parse := func(s string) (string, error) { return s, checkWord(s, words) }
	return Value(p, def, strings.Join(words, "|"), parse, func(s string) string { return s })
}

// checkWord returns an error that lists the words if s is not one of them.
func checkWord(s string, words []string) error {
	if slices.Contains(words, s) {
		return nil
	}
	last := len(words) - 1
	if last == 0 {
		return fmt.Errorf("must be %s", words[0])
	}
	return fmt.Errorf("must be %s or %s", strings.Join(words[:last], ", "), words[last])
}

// BareChoice adds a flag for one of the words that may also stand without a value, for the first of
// them. A value needs an equals sign, and the help shows the flag that way: --NAME[=a|b].
func BareChoice(f *pflag.FlagSet, p *string, name, usage string, words ...string) {
	choices := strings.Join(words, "|") // also the value that pflag sets if none is given
	f.Var(Value(p, "", choices, func(s string) (string, error) {
		if s == choices {
			s = words[0]
		}
		return s, checkWord(s, words)
	}, func(s string) string { return s }), name, "``"+usage) // `` means that the help names no value
	f.Lookup(name).NoOptDefVal = choices
}

// CheckBareChoices returns an error if the word after a flag of [BareChoice] looks like its value,
// as in --group sum: without an equals sign, sum is an argument.
func CheckBareChoices(f *pflag.FlagSet, args []string) error {
	for i := range len(args) - 1 {
		if args[i] == "--" { // only arguments follow
			return nil
		}
		name, long := strings.CutPrefix(args[i], "--")
		flag := f.Lookup(name)
		if long && flag != nil && strings.Contains(flag.NoOptDefVal, "|") &&
			slices.Contains(strings.Split(flag.NoOptDefVal, "|"), args[i+1]) {
			return Usagef("--%[1]s=%[2]s, with an equals sign, is what you mean; an argument %[2]s stands before "+
				"--%[1]s", name, args[i+1])
		}
	}
	return nil
}

// Duration is the value of a flag for a time that is not negative; *p is the default.
func Duration(p *time.Duration) pflag.Value {
	return Value(p, *p, "TIME", func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		switch {
		case err != nil:
			return 0, errors.New("want a time such as 500ms, 10s or 2m")
		case d < 0:
			return 0, errors.New("a time cannot be negative")
		}
		return d, nil
	}, time.Duration.String)
}

// Ints is the value of a flag for whole numbers of at least min, separated by commas.
func Ints(p *[]int, min int, def ...int) pflag.Value {
	return Value(p, def, "LIST", func(s string) (numbers []int, err error) {
		for part := range strings.SplitSeq(s, ",") {
			n, err := parseInt(strings.TrimSpace(part), min)
			if err != nil {
				return nil, err
			}
			numbers = append(numbers, n)
		}
		return numbers, nil
	}, func(numbers []int) string {
		return strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ","), "[]")
	})
}

// Nbits is the value of a flag for the residual bits of a component.
func Nbits(p *int) pflag.Value {
	return Value(p, 2, "1|2|4|8", func(s string) (int, error) {
		if err := checkWord(s, []string{"1", "2", "4", "8"}); err != nil {
			return 0, err
		}
		return strconv.Atoi(s)
	}, strconv.Itoa)
}

// Portion is the value of a flag for a number above 0 and at most 1.
func Portion(p *float64, def float64) pflag.Value {
	return boundedNumber(p, def, "a number above 0 and at most 1", func(x float64) bool { return x > 0 && x <= 1 })
}

// Weight is the value of a flag for a number from 0 to 1, both included.
func Weight(p *float64, def float64) pflag.Value {
	return boundedNumber(p, def, "a number from 0 to 1", func(x float64) bool { return x >= 0 && x <= 1 })
}

// boundedNumber is the value of a flag for a number that valid accepts; want describes such a
// number in errors.
func boundedNumber(p *float64, def float64, want string, valid func(float64) bool) pflag.Value {
	return Value(p, def, "X", func(s string) (float64, error) {
		x, err := strconv.ParseFloat(s, 64)
		if err != nil || !valid(x) {
			return 0, errors.New("want " + want)
		}
		return x, nil
	}, out.Float)
}

// Size is the value of a flag for a number of bytes.
func Size(p *int64, def int64) pflag.Value { return Value(p, def, "SIZE", human.ParseSize, out.Bytes) }

// Measures is the value of a flag for a list of measures; the default is the usual ones.
func Measures(p *[]eval.Measure) pflag.Value {
	usual, err := eval.ParseMeasureList(eval.DefaultMeasures)
	if err != nil {
		panic(err) // a constant of the program is wrong
	}
	return Value(p, usual, "LIST", eval.ParseMeasureList, func(measures []eval.Measure) string {
		return strings.Join(toStrings(measures), ",")
	})
}

// Enum is the value of a flag for one of the values of a type, by their names. The first value is
// the default.
func Enum[T fmt.Stringer](p *T, values ...T) pflag.Value {
	words := toStrings(values)
	return Value(p, values[0], strings.Join(words, "|"), func(s string) (T, error) {
		return values[max(slices.Index(words, s), 0)], checkWord(s, words)
	}, T.String)
}

// toStrings returns the names of values.
func toStrings[T fmt.Stringer](values []T) []string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = v.String()
	}
	return texts
}
