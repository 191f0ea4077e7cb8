package modeldir

import "strconv"

// values reads one value of a file after the other, and keeps the first fault. Values that are read
// after it are of no use. The last argument of a method is the value of a key that is not there.
type values struct {
	f   *file
	err *error // shared by parts of a file
}

func get[T any](v values, x T, ok bool, err error, otherwise T) T {
	if *v.err == nil {
		*v.err = err
	}
	if !ok || *v.err != nil {
		return otherwise
	}
	return x
}

func (v values) text(key, otherwise string) string {
	x, ok, err := v.f.text(key)
	return get(v, x, ok, err, otherwise)
}

func (v values) bool(key string, otherwise bool) bool {
	x, ok, err := v.f.bool(key)
	return get(v, x, ok, err, otherwise)
}

// int is a whole number from least on.
func (v values) int(key string, least, otherwise int) int {
	x, ok, err := v.f.int(key, least)
	return get(v, x, ok, err, otherwise)
}

// size is a whole number from least on that must be there.
func (v values) size(key string, least int) int {
	x, err := must[int](v.f, key)(v.f.int(key, least))
	return get(v, x, true, err, least)
}

// float is a number above least.
func (v values) float(key string, least, otherwise float64) float64 {
	x, ok, err := v.f.float(key)
	if err == nil && ok && !(x > least) {
		err = v.f.faultf(key, ErrConfig, "is %g, want more than %g", x, least)
	}
	return get(v, x, ok, err, otherwise)
}

// list is a list of whole numbers, or nil.
func (v values) list(key string) []int {
	x, ok, err := value[[]int](v.f, key, "a list of whole numbers")
	return get(v, x, ok, err, nil)
}

// part is an object of the file, without values where it is not there.
func (v values) part(key string) values {
	o, err := v.f.object(key)
	return values{get(v, o, true, err, nil), v.err}
}

// fail keeps a fault.
func (v values) fail(key string, kind error, format string, args ...any) {
	if *v.err == nil {
		*v.err = v.f.faultf(key, kind, format, args...)
	}
}

// theta is the base of rotary angles: of rope_parameters, as transformers 5 writes it, where each
// kind of layers may have an object of its own, or of a key of older versions.
func (v values) theta(kind, older string, otherwise float64) float64 {
	old := v.float(older, 1, 0)
	v.unscaled()
	scaling := v.part("rope_scaling")
	scaling.unscaled("rope_type", "type")
	scaling.only([]only{{"rope_theta", nil}}) // some classes take it from there, others do not
	p := v.part("rope_parameters")
	if p.f != nil && len(p.f.m) > 0 && scaling.f != nil && len(scaling.f.m) > 0 {
		v.fail("rope_scaling", ErrContradiction, "is there, and rope_parameters, too")
	}
	if p.f != nil && kind != "" {
		if !p.f.has(kind) {
			p.fail(kind, ErrConfig, "is missing")
		}
		p = p.part(kind)
	}
	p.unscaled("rope_type", "type")
	theta := p.float("rope_theta", 1, 0)
	switch {
	case theta != 0 && old != 0 && theta != old:
		p.fail("rope_theta", ErrContradiction, "is %g, but %s is %g", theta, older, old)
	case theta == 0 && old == 0:
		return otherwise
	}
	return max(theta, old)
}

// unscaled refuses rotary angles that are not those of their base, or not of all dimensions of a
// head. Keys say how they are scaled.
func (v values) unscaled(keys ...string) {
	for _, key := range keys {
		if s := v.text(key, "default"); s != "default" {
			v.fail(key, ErrFamily, "is %q, want default", s)
		}
	}
	if x := v.float("partial_rotary_factor", 0, 1); x != 1 {
		v.fail("partial_rotary_factor", ErrFamily, "is %g, want 1", x)
	}
}

// layerTypes are the kinds of n layers, each one of two: from the list of a file, else by a rule.
func (v values) layerTypes(n int, first, second string, rule func(i int) string) []string {
	const key = "layer_types"
	list, ok, err := words(v.f, key)
	if list = get(v, list, true, err, nil); !ok {
		for i := range n {
			list = append(list, rule(i))
		}
	}
	if len(list) != n {
		v.fail(key, ErrContradiction, "has %d layers, num_hidden_layers is %d", len(list), n)
	}
	for i, kind := range list {
		if kind != first && kind != second {
			v.fail(key+"["+strconv.Itoa(i)+"]", ErrFamily, "is %q, want %s or %s", kind, first, second)
		}
	}
	return list
}
