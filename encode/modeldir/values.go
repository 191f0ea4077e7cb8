package modeldir

import "strconv"

// values reads values of a file one after the other, and keeps the first error. Values that are read
// after an error are meaningless. The last argument of a method is the default for a missing key.
type values struct {
	file *file
	err  *error // shared by parts of a file
}

// valueOr returns x, or the default if ok is false or an error occurred, which it keeps.
func valueOr[T any](v values, x T, ok bool, err error, defaultValue T) T {
	if *v.err == nil {
		*v.err = err
	}
	if !ok || *v.err != nil {
		return defaultValue
	}
	return x
}

func (v values) stringOr(key, defaultValue string) string {
	x, ok, err := v.file.stringValue(key)
	return valueOr(v, x, ok, err, defaultValue)
}

func (v values) boolOr(key string, defaultValue bool) bool {
	x, ok, err := v.file.boolValue(key)
	return valueOr(v, x, ok, err, defaultValue)
}

// intOr reads a whole number of at least minimum.
func (v values) intOr(key string, minimum, defaultValue int) int {
	x, ok, err := v.file.intValue(key, minimum)
	return valueOr(v, x, ok, err, defaultValue)
}

// requiredSize reads a whole number of at least minimum. A missing key is an error.
func (v values) requiredSize(key string, minimum int) int {
	x, err := required[int](v.file, key)(v.file.intValue(key, minimum))
	return valueOr(v, x, true, err, minimum)
}

// floatOr reads a number greater than minimum.
func (v values) floatOr(key string, minimum, defaultValue float64) float64 {
	x, ok, err := v.file.floatValue(key)
	if err == nil && ok && !(x > minimum) {
		err = v.file.errorf(key, ErrConfig, "is %g, want more than %g", x, minimum)
	}
	return valueOr(v, x, ok, err, defaultValue)
}

// intList reads a list of whole numbers. nil means that it is missing.
func (v values) intList(key string) []int {
	x, ok, err := decodeValue[[]int](v.file, key, "a list of whole numbers")
	return valueOr(v, x, ok, err, nil)
}

// section returns an object of the file. A missing object has no values.
func (v values) section(key string) values {
	o, err := v.file.objectValue(key)
	return values{valueOr(v, o, true, err, nil), v.err}
}

// setError keeps an error, if it is the first.
func (v values) setError(key string, kind error, format string, args ...any) {
	if *v.err == nil {
		*v.err = v.file.errorf(key, kind, format, args...)
	}
}

// rotaryBase reads the base of rotary angles: from rope_parameters, as transformers 5 writes it, which
// may have an object for each kind of layers, or from a key of older versions.
func (v values) rotaryBase(kind, older string, defaultValue float64) float64 {
	old := v.floatOr(older, 1, 0)
	v.checkUnscaled()
	scaling := v.section("rope_scaling")
	scaling.checkUnscaled("rope_type", "type")
	scaling.checkOnly([]allowedValues{{"rope_theta", nil}}) // some classes read it there, others do not
	p := v.section("rope_parameters")
	if p.file != nil && len(p.file.m) > 0 && scaling.file != nil && len(scaling.file.m) > 0 {
		v.setError("rope_scaling", ErrContradiction, "is there, and rope_parameters, too")
	}
	if p.file != nil && kind != "" {
		if !p.file.hasKey(kind) {
			p.setError(kind, ErrConfig, "is missing")
		}
		p = p.section(kind)
	}
	p.checkUnscaled("rope_type", "type")
	theta := p.floatOr("rope_theta", 1, 0)
	switch {
	case theta != 0 && old != 0 && theta != old:
		p.setError("rope_theta", ErrContradiction, "is %g, but %s is %g", theta, older, old)
	case theta == 0 && old == 0:
		return defaultValue
	}
	return max(theta, old)
}

// checkUnscaled sets an error for rotary angles that are scaled, or that do not apply to all dimensions of
// a head. keys are the keys that may name a kind of scaling.
func (v values) checkUnscaled(keys ...string) {
	for _, key := range keys {
		if s := v.stringOr(key, "default"); s != "default" {
			v.setError(key, ErrFamily, "is %q, want default", s)
		}
	}
	if x := v.floatOr("partial_rotary_factor", 0, 1); x != 1 {
		v.setError("partial_rotary_factor", ErrFamily, "is %g, want 1", x)
	}
}

// layerTypes returns the kinds of n layers, each first or second: from the list in the file, or else by a
// rule.
func (v values) layerTypes(n int, first, second string, rule func(i int) string) []string {
	const key = "layer_types"
	list, ok, err := stringList(v.file, key)
	if list = valueOr(v, list, true, err, nil); !ok {
		for i := range n {
			list = append(list, rule(i))
		}
	}
	if len(list) != n {
		v.setError(key, ErrContradiction, "has %d layers, num_hidden_layers is %d", len(list), n)
	}
	for i, kind := range list {
		if kind != first && kind != second {
			v.setError(key+"["+strconv.Itoa(i)+"]", ErrFamily, "is %q, want %s or %s", kind, first, second)
		}
	}
	return list
}
