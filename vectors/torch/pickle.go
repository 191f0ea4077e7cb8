package torch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/plaid-ir/plaid/vectors"
)

// Limits of the pickle machine. For each tensor, torch.save writes about 150 bytes, a stack of eight, and
// twelve memo entries. Up to 1,000 entries of a dictionary are on the stack at a time.
const (
	maxPickle  = 4 << 20 // bytes
	maxStack   = 1 << 12
	maxMemo    = 1 << 18
	maxTensors = 1 << 14
	maxDims    = 8
)

// The values that the machine knows, in addition to nil, bool, int64, float64 and string. No pickle can
// create other values.
type (
	pickleMark   struct{}
	pickleTuple  []any
	pickleList   struct{ items []any }
	pickleDict   struct{ keys, values []any }
	pickleGlobal string // "module name", one of pickleGlobals

	pickleStorage struct {
		dtype string // as package vectors spells it
		key   string // entry data/key of the archive
		numel int64
	}
	pickleTensor struct {
		storage *pickleStorage
		offset  int64 // in elements
		shape   []int
		stride  []int64 // in elements. nil means row-major
		numel   int64
	}
)

const (
	globalTensor = "torch._utils _rebuild_tensor_v2"
	globalParam  = "torch._utils _rebuild_parameter"
	globalDict   = "collections OrderedDict"
)

// pickleGlobals maps every global that a pickle may name to the element type of a storage, or "" for other
// globals. Names are only keys of this table; nothing is imported or called.
var pickleGlobals = map[string]string{
	globalTensor:            "",
	globalParam:             "",
	globalDict:              "",
	"torch HalfStorage":     "<f2",
	"torch BFloat16Storage": "bf16",
	"torch FloatStorage":    "<f4",
	"torch DoubleStorage":   "<f8",
	"torch BoolStorage":     "|b1",
	"torch ByteStorage":     "|u1",
	"torch CharStorage":     "|i1",
	"torch ShortStorage":    "<i2",
	"torch IntStorage":      "<i4",
	"torch LongStorage":     "<i8",
}

// The opcodes of Python's pickle protocols 2 to 5 that occur in a saved tensor.
const (
	opMark           = '('
	opStop           = '.'
	opBinFloat       = 'G'
	opBinInt         = 'J'
	opBinInt1        = 'K'
	opBinInt2        = 'M'
	opNone           = 'N'
	opBinPersID      = 'Q'
	opReduce         = 'R'
	opBinUnicode     = 'X'
	opEmptyList      = ']'
	opAppend         = 'a'
	opBuild          = 'b'
	opGlobal         = 'c'
	opAppends        = 'e'
	opBinGet         = 'h'
	opLongBinGet     = 'j'
	opBinPut         = 'q'
	opLongBinPut     = 'r'
	opSetItem        = 's'
	opTuple          = 't'
	opSetItems       = 'u'
	opEmptyDict      = '}'
	opEmptyTuple     = ')'
	opProto          = 0x80
	opTuple1         = 0x85
	opTuple2         = 0x86
	opTuple3         = 0x87
	opNewTrue        = 0x88
	opNewFalse       = 0x89
	opLong1          = 0x8a
	opShortBinUni    = 0x8c
	opBinUnicode8    = 0x8d
	opStackGlobal    = 0x93
	opMemoize        = 0x94
	opFrame          = 0x95
	maxPickleVersion = 5
)

// pickleError returns an error at an offset in the pickle.
func pickleError(kind error, offset int, format string, args ...any) error {
	return fmt.Errorf("%w: pickle offset %d: %s", kind, offset, fmt.Sprintf(format, args...))
}

// unpickler runs a pickle.
type unpickler struct {
	data     []byte
	maxMemo  int // maximum number of memo entries
	pos      int // offset of the next byte
	opcodeAt int // offset of the current opcode
	stack    []any
	marks    []int // stack heights of the open marks
	memo     map[uint32]any
	tensors  int // number of tensors so far
}

// unpickle runs a pickle of at most maxSize bytes with at most maxMemo memo entries. Time and memory are
// linear in len(data), since values are shared and never copied.
func unpickle(data []byte, maxSize, maxMemo int) (any, error) {
	if len(data) > maxSize {
		return nil, fmt.Errorf("%w: pickle of %d bytes, more than %d", ErrUnsupported, len(data), maxSize)
	}
	u := &unpickler{data: data, maxMemo: maxMemo, memo: map[uint32]any{}}
	return u.runAll()
}

// runAll runs all opcodes, and returns the value that remains on the stack.
func (u *unpickler) runAll() (any, error) {
	for {
		u.opcodeAt = u.pos
		op, err := u.readBytes(1)
		if err != nil {
			return nil, err
		}
		if op[0] == opStop {
			if len(u.stack) != 1 || len(u.marks) != 0 {
				return nil, u.malformed("STOP with %d values and %d marks on the stack", len(u.stack), len(u.marks))
			}
			return u.stack[0], nil
		}
		if err := u.runOpcode(op[0]); err != nil {
			return nil, err
		}
	}
}

// runOpcode runs one opcode.
func (u *unpickler) runOpcode(op byte) error {
	switch op {
	case opProto:
		v, err := u.readBytes(1)
		if err != nil {
			return err
		}
		if v[0] > maxPickleVersion {
			return u.unsupported("protocol %d", v[0])
		}
		return nil
	case opFrame: // a hint for buffering
		_, err := u.readBytes(8)
		return err

	case opNone:
		return u.pushValue(nil)
	case opNewTrue:
		return u.pushValue(true)
	case opNewFalse:
		return u.pushValue(false)
	case opBinInt, opBinInt1, opBinInt2, opLong1:
		return u.pushInteger(op)
	case opBinFloat:
		b, err := u.readBytes(8)
		if err != nil {
			return err
		}
		return u.pushValue(math.Float64frombits(binary.BigEndian.Uint64(b)))
	case opBinUnicode, opShortBinUni, opBinUnicode8:
		return u.pushText(op)

	case opBinPut, opLongBinPut, opMemoize, opBinGet, opLongBinGet:
		return u.runMemoOpcode(op)

	case opMark:
		if err := u.pushValue(pickleMark{}); err != nil {
			return err
		}
		u.marks = append(u.marks, len(u.stack)-1)
		return nil
	case opEmptyTuple:
		return u.pushValue(pickleTuple(nil))
	case opEmptyList:
		return u.pushValue(&pickleList{})
	case opEmptyDict:
		return u.pushValue(&pickleDict{})
	case opTuple1, opTuple2, opTuple3:
		items, err := u.popValues(int(op) - opTuple1 + 1)
		if err != nil {
			return err
		}
		return u.pushValue(pickleTuple(items))
	case opTuple:
		items, err := u.popMark()
		if err != nil {
			return err
		}
		return u.pushValue(pickleTuple(items))
	case opAppend, opAppends, opSetItem, opSetItems:
		return u.fillContainer(op)
	case opBuild:
		return u.ignoreAttributes()

	case opGlobal, opStackGlobal:
		return u.pushGlobal(op)
	case opBinPersID:
		return u.pushStorage()
	case opReduce:
		return u.runCall()
	}
	return u.unsupported("opcode %s is not one of a saved tensor", strconv.QuoteToASCII(string(rune(op))))
}

func (u *unpickler) malformed(format string, args ...any) error {
	return pickleError(vectors.ErrFormat, u.opcodeAt, format, args...)
}

func (u *unpickler) unsupported(format string, args ...any) error {
	return pickleError(ErrUnsupported, u.opcodeAt, format, args...)
}

// readBytes reads the next n bytes of the pickle.
func (u *unpickler) readBytes(n int) ([]byte, error) {
	if n < 0 || n > len(u.data)-u.pos {
		return nil, u.malformed("%d bytes wanted, %d left", n, len(u.data)-u.pos)
	}
	b := u.data[u.pos : u.pos+n]
	u.pos += n
	return b, nil
}

// readLine reads the bytes before the next line feed, and skips that.
func (u *unpickler) readLine() (string, error) {
	n := bytes.IndexByte(u.data[u.pos:], '\n')
	if n < 0 {
		return "", u.malformed("line without end")
	}
	b, err := u.readBytes(n + 1)
	if err != nil {
		return "", err
	}
	return string(b[:n]), nil
}

// pushValue pushes a value on the stack.
func (u *unpickler) pushValue(v any) error {
	if len(u.stack) >= maxStack {
		return u.unsupported("stack deeper than %d", maxStack)
	}
	u.stack = append(u.stack, v)
	return nil
}

// popValues pops n values. They must be above the innermost mark.
func (u *unpickler) popValues(n int) ([]any, error) {
	floor := 0
	if len(u.marks) > 0 {
		floor = u.marks[len(u.marks)-1] + 1
	}
	if n > len(u.stack)-floor {
		return nil, u.malformed("stack holds %d values, %d wanted", len(u.stack)-floor, n)
	}
	height := len(u.stack) - n
	items := slices.Clone(u.stack[height:])
	u.stack = u.stack[:height]
	return items, nil
}

// popMark pops the innermost mark and the values above it, which it returns.
func (u *unpickler) popMark() ([]any, error) {
	if len(u.marks) == 0 {
		return nil, u.malformed("no mark on the stack")
	}
	height := u.marks[len(u.marks)-1]
	u.marks = u.marks[:len(u.marks)-1]
	items := slices.Clone(u.stack[height+1:])
	u.stack = u.stack[:height]
	return items, nil
}

// pushInteger runs the opcodes of integers.
func (u *unpickler) pushInteger(op byte) error {
	width := map[byte]int{opBinInt: 4, opBinInt1: 1, opBinInt2: 2, opLong1: 1}[op]
	b, err := u.readBytes(width)
	if err != nil {
		return err
	}
	switch op {
	case opBinInt:
		return u.pushValue(int64(int32(binary.LittleEndian.Uint32(b))))
	case opBinInt1:
		return u.pushValue(int64(b[0]))
	case opBinInt2:
		return u.pushValue(int64(binary.LittleEndian.Uint16(b)))
	}
	n := int(b[0]) // LONG1: n bytes in two's complement, little endian
	if b, err = u.readBytes(n); err != nil {
		return err
	}
	if n > 8 {
		return u.malformed("integer of %d bytes", n)
	}
	var v int64
	if n > 0 && b[n-1]&0x80 != 0 {
		v = -1
	}
	for i := n - 1; i >= 0; i-- {
		v = v<<8 | int64(b[i])
	}
	return u.pushValue(v)
}

// pushText runs the opcodes of strings.
func (u *unpickler) pushText(op byte) error {
	width := map[byte]int{opBinUnicode: 4, opShortBinUni: 1, opBinUnicode8: 8}[op]
	b, err := u.readBytes(width)
	if err != nil {
		return err
	}
	var n [8]byte
	copy(n[:], b)
	size := binary.LittleEndian.Uint64(n[:])
	if size > uint64(len(u.data)-u.pos) {
		return u.malformed("string of %d bytes, %d left", size, len(u.data)-u.pos)
	}
	if b, err = u.readBytes(int(size)); err != nil {
		return err
	}
	return u.pushValue(string(b))
}

// runMemoOpcode runs the opcodes of the memo.
func (u *unpickler) runMemoOpcode(op byte) error {
	key := uint32(len(u.memo))
	switch op {
	case opBinPut, opBinGet:
		b, err := u.readBytes(1)
		if err != nil {
			return err
		}
		key = uint32(b[0])
	case opLongBinPut, opLongBinGet:
		b, err := u.readBytes(4)
		if err != nil {
			return err
		}
		key = binary.LittleEndian.Uint32(b)
	}
	if op == opBinGet || op == opLongBinGet {
		v, ok := u.memo[key]
		if !ok {
			return u.malformed("memo %d is empty", key)
		}
		return u.pushValue(v)
	}
	if len(u.stack) == 0 {
		return u.malformed("nothing to remember")
	}
	v := u.stack[len(u.stack)-1]
	if _, mark := v.(pickleMark); mark {
		return u.malformed("a mark cannot be remembered")
	}
	u.memo[key] = v
	if len(u.memo) > u.maxMemo {
		return u.unsupported("more than %d memo entries", u.maxMemo)
	}
	return nil
}

// fillContainer pops values, and appends them to the list or dict below them on the stack.
func (u *unpickler) fillContainer(op byte) error {
	var items []any
	var err error
	switch op {
	case opAppend:
		items, err = u.popValues(1)
	case opSetItem:
		items, err = u.popValues(2)
	default:
		items, err = u.popMark()
	}
	if err != nil {
		return err
	}
	if len(u.stack) == 0 {
		return u.malformed("no container for %d values", len(items))
	}
	switch c := u.stack[len(u.stack)-1].(type) {
	case *pickleList:
		if op == opAppend || op == opAppends {
			c.items = append(c.items, items...)
			return nil
		}
	case *pickleDict:
		if (op == opSetItem || op == opSetItems) && len(items)%2 == 0 {
			for i := 0; i < len(items); i += 2 {
				c.keys, c.values = append(c.keys, items[i]), append(c.values, items[i+1])
			}
			return nil
		}
	}
	return u.malformed("values do not fit their container")
}

// ignoreAttributes pops and ignores the attributes of the dictionary below them on the stack. The dictionary of a
// model's weights has the versions of its modules as attributes.
func (u *unpickler) ignoreAttributes() error {
	if _, err := u.popValues(1); err != nil {
		return err
	}
	if n := len(u.stack); n > 0 {
		if _, isDict := u.stack[n-1].(*pickleDict); isDict {
			return nil
		}
	}
	return u.unsupported("attributes of a value that is not a dictionary")
}
