package torch

import (
	"fmt"
	"strconv"
)

// MaxDict is the maximum size in bytes of the pickle of a dictionary.
const MaxDict = 1 << 28

// Dict returns the keys and values of a pickled dictionary of strings and integers. Integers are int64.
func Dict(pickle []byte) (keys, values []any, err error) {
	v, err := unpickle(pickle, MaxDict, MaxDict)
	if err != nil {
		return nil, nil, err
	}
	d, ok := v.(*pickleDict)
	if !ok {
		return nil, nil, fmt.Errorf("%w: the pickle holds no dictionary", ErrUnsupported)
	}
	for i := range d.keys {
		if !isStringOrInt(d.keys[i]) || !isStringOrInt(d.values[i]) {
			return nil, nil, fmt.Errorf("%w: entry %d of the dictionary is not of strings and integers",
				ErrUnsupported, i)
		}
	}
	return d.keys, d.values, nil
}

// isStringOrInt reports whether a value is a string or an integer.
func isStringOrInt(v any) bool {
	switch v.(type) {
	case string, int64:
		return true
	}
	return false
}

// StringOrInt returns the value of a pickle of a string or an integer, which is an int64.
func StringOrInt(pickle []byte) (any, error) {
	v, err := unpickle(pickle, maxPickle, maxMemo)
	if err != nil {
		return nil, err
	}
	if isStringOrInt(v) {
		return v, nil
	}
	return nil, fmt.Errorf("%w: pickle holds neither a string nor an integer", ErrUnsupported)
}

// namedTensor is a tensor and its key in a dictionary, or its index in a list.
type namedTensor struct {
	name string
	*pickleTensor
}

// unpickleTensors runs a pickle of one tensor, of a tuple or list of tensors, or of a dictionary with
// tensors, and returns these. It skips other values of a dictionary, and does not search nested ones.
func unpickleTensors(data []byte) ([]namedTensor, error) {
	v, err := unpickle(data, maxPickle, maxMemo)
	if err != nil {
		return nil, err
	}
	var out []namedTensor
	add := func(name string, v any) bool {
		t, ok := v.(*pickleTensor)
		if ok {
			out = append(out, namedTensor{name, t})
		}
		return ok
	}
	addAll := func(items []any) error {
		for i, v := range items {
			if !add(strconv.Itoa(i), v) {
				return fmt.Errorf("%w: item %d of the pickle is no tensor", ErrUnsupported, i)
			}
		}
		return nil
	}
	switch v := v.(type) {
	case *pickleTensor:
		add("0", v)
	case pickleTuple:
		err = addAll(v)
	case *pickleList:
		err = addAll(v.items)
	case *pickleDict:
		seen := map[string]bool{}
		for i, key := range v.keys {
			name, isString := key.(string)
			if _, isTensor := v.values[i].(*pickleTensor); !isTensor {
				continue
			}
			if !isString || seen[name] {
				return nil, fmt.Errorf("%w: key %d of the dictionary is no string, or comes twice", ErrUnsupported, i)
			}
			seen[name] = add(name, v.values[i])
		}
	}
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("%w: the pickle holds no tensor, and no list or dictionary of them", ErrUnsupported)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}
