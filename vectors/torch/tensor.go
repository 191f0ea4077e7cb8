package torch

import "math"

// pushGlobal pushes a global of pickleGlobals. Its name is in the pickle for GLOBAL, and on the stack for
// STACK_GLOBAL.
func (u *unpickler) pushGlobal(op byte) error {
	var module, name string
	if op == opGlobal {
		var err error
		if module, err = u.readLine(); err != nil {
			return err
		}
		if name, err = u.readLine(); err != nil {
			return err
		}
	} else {
		args, err := u.popValues(2)
		if err != nil {
			return err
		}
		var moduleOK, nameOK bool
		module, moduleOK = args[0].(string)
		name, nameOK = args[1].(string)
		if !moduleOK || !nameOK {
			return u.malformed("the name of a global is no string")
		}
	}
	full := module + " " + name
	if _, ok := pickleGlobals[full]; !ok {
		return u.unsupported("global %.80q is not one of a saved tensor", module+"."+name)
	}
	return u.pushValue(pickleGlobal(full))
}

// pushStorage pops the persistent id ("storage", class, key, device, number of elements), and pushes a
// reference to an entry of the archive.
func (u *unpickler) pushStorage() error {
	top, err := u.popValues(1)
	if err != nil {
		return err
	}
	id, ok := top[0].(pickleTuple)
	if !ok || len(id) != 5 || id[0] != "storage" {
		return u.malformed("persistent id is not that of a storage")
	}
	class, _ := id[1].(pickleGlobal)
	key, isText := id[2].(string)
	_, hasDevice := id[3].(string)
	numel, isInt := id[4].(int64)
	kind := pickleGlobals[string(class)]
	if kind == "" || !isText || !hasDevice || !isInt || numel < 0 || numel > math.MaxInt64/8 {
		return u.malformed("persistent id of a storage is malformed")
	}
	return u.pushValue(&pickleStorage{dtype: kind, key: key, numel: numel})
}

// runCall runs the calls that a saved tensor needs: of a tensor, of a parameter, which is a tensor, and of
// an empty OrderedDict, for hooks or for later entries.
func (u *unpickler) runCall() error {
	top, err := u.popValues(2)
	if err != nil {
		return err
	}
	callee, _ := top[0].(pickleGlobal)
	args, ok := top[1].(pickleTuple)
	switch {
	case !ok:
		return u.malformed("arguments of REDUCE are no tuple")
	case callee == globalDict && len(args) == 0:
		return u.pushValue(&pickleDict{})
	case callee == globalParam && len(args) > 0:
		if t, ok := args[0].(*pickleTensor); ok {
			return u.pushValue(t)
		}
		return u.malformed("parameter without a tensor")
	case callee == globalTensor:
		t, err := u.newTensor(args)
		if err != nil {
			return err
		}
		return u.pushValue(t)
	}
	return u.unsupported("REDUCE of a value that is not a tensor")
}

// newTensor checks the arguments of torch._utils._rebuild_tensor_v2: storage,
// offset, size, stride, requires_grad, backward hooks and, in later versions,
// metadata.
func (u *unpickler) newTensor(args pickleTuple) (*pickleTensor, error) {
	if u.tensors++; u.tensors > maxTensors {
		return nil, u.unsupported("more than %d tensors", maxTensors)
	}
	if len(args) != 6 && len(args) != 7 {
		return nil, u.malformed("tensor with %d arguments", len(args))
	}
	storage, ok0 := args[0].(*pickleStorage)
	offset, ok1 := args[1].(int64)
	size, ok2 := args[2].(pickleTuple)
	stride, ok3 := args[3].(pickleTuple)
	if !ok0 || !ok1 || !ok2 || !ok3 || len(size) != len(stride) || len(size) > maxDims {
		return nil, u.malformed("arguments of a tensor are malformed")
	}
	t := &pickleTensor{storage: storage, offset: offset, numel: 1}
	t.shape, t.stride = make([]int, len(size)), make([]int64, len(size))
	// Check the dimensions, from the innermost on. A contiguous tensor has there the stride 1.
	contiguous := true
	last := int64(0) // the element with the largest offset from the first
	for i := len(size) - 1; i >= 0; i-- {
		n, okN := size[i].(int64)
		s, okS := stride[i].(int64)
		if !okN || !okS || n < 0 || n > math.MaxInt || s < 0 {
			return nil, u.malformed("dimension %d of a tensor is malformed", i)
		}
		if n > 1 && s != t.numel {
			contiguous = false
		}
		if n > 1 && (t.numel > math.MaxInt64/8/n || s > math.MaxInt64/16/n) {
			return nil, u.malformed("shape of a tensor is too large")
		}
		t.numel *= n
		t.shape[i], t.stride[i] = int(n), s
		if n > 1 {
			last += (n - 1) * s
		}
		if last < 0 || last > math.MaxInt64/16 {
			return nil, u.malformed("shape of a tensor is too large")
		}
	}
	if t.numel == 0 {
		last = -1
	}
	if contiguous || t.numel == 0 {
		t.stride = nil
	}
	// A tensor with more elements than its storage would repeat some, and a small file could claim a huge
	// one.
	if offset < 0 || offset > storage.numel || t.numel > storage.numel || last >= storage.numel-offset {
		return nil, u.malformed("tensor of shape %v at %d exceeds its storage of %d elements",
			t.shape, offset, storage.numel)
	}
	return t, nil
}
