package dense

import (
	"unsafe"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// format is the layout of a row in device memory; see src/dense/dense.cuh. The formats
// that store elements unchanged have the numbers of the types.
type format uint32

const (
	f32   = format(maxsim.F32)
	f16   = format(maxsim.F16)
	bf16  = format(maxsim.BF16)
	i8    = format(maxsim.I8)
	e4m3  = format(maxsim.E4M3)
	split = format(maxsim.E4M3) + 1
)

// sourceNumber returns the number of a type for dense_pack.
func sourceNumber(t maxsim.Type) uint32 {
	if t == maxsim.Compressed {
		return uint32(split) + 1
	}
	return uint32(t)
}

// kernelName returns the part of a kernel's name that stands for the format.
func (f format) kernelName() string {
	return [...]string{f32: "f32", f16: "f16", bf16: "bf16", i8: "i8", e4m3: "e4m3", split: "split"}[f]
}

// scaled reports whether rows in a format have a scale, even without normalization.
func (f format) scaled(m *maxsim.Matrix) bool { return f == split || m.Scales != nil }

// naturalFormat returns the fastest format that stores a matrix without loss.
func naturalFormat(m *maxsim.Matrix) format {
	switch {
	case m.Type == maxsim.F32, m.Type == maxsim.Compressed:
		return split
	case m.Type == maxsim.I8 && m.Zeros != nil:
		return f16 // x − zero has nine bits
	}
	return format(m.Type)
}

// operandFormats returns the format of a query matrix with which products with rows of documents are
// fastest, and whether the kernels of sm_90a support the two.
func operandFormats(docs format, m *maxsim.Matrix) (format, bool) {
	switch {
	case docs == split:
		return split, true
	case docs == f16 && (m.Type == maxsim.F16 || m.Type == maxsim.I8 || m.Type == maxsim.E4M3):
		return f16, true
	case docs == e4m3 && (m.Type == maxsim.F16 || m.Type == maxsim.I8 || m.Type == maxsim.E4M3):
		return f16, true // documents become f16 in registers
	}
	q := naturalFormat(m)
	return q, q == docs
}

// formatsFor chooses the formats of documents, whose natural format is docs, and of queries. It reports
// whether the kernels of sm_90a support the two. Documents that are held keep their format.
func formatsFor(docs format, held bool, queries *maxsim.Matrix) (d, q format, fast bool) {
	if q, fast = operandFormats(docs, queries); !fast && !held {
		return split, split, true
	}
	return docs, q, fast
}

// rowBytes returns the length of a row: a multiple of 64 bytes that is divisible by the number of bytes
// that kernels read at a time.
func rowBytes(f format, dim int) int {
	size := [...]int{f32: 4, f16: 2, bf16: 2, i8: 1, e4m3: 1, split: 4}[f]
	n := runtime.CeilDiv(dim*size, 64)
	switch f {
	case split:
		n = runtime.CeilDiv(dim, 32) * 2
	case f16, bf16:
		for n > 4 && n%4 != 0 && n%3 != 0 {
			n++
		}
	case i8, e4m3:
		if n > 1 {
			n += n % 2
		}
	}
	return 64 * n
}

// vectorsPerStep returns how many times 64 bytes of a row dense_rows reads at a time.
func vectorsPerStep(f format, rowBytes int) int {
	n := rowBytes / 64
	switch {
	case f == i8 || f == e4m3:
		return min(n, 2)
	case n%4 == 0:
		return 4
	case f != split && n%3 == 0:
		return 3
	case f == f32 && n%2 > 0:
		return 1
	}
	return min(n, 2)
}

// elementBytes returns the memory of the elements of a matrix.
func elementBytes(m *maxsim.Matrix) []byte {
	switch m.Type {
	case maxsim.F32:
		return runtime.Bytes(m.F32)
	case maxsim.F16, maxsim.BF16:
		return runtime.Bytes(m.U16)
	case maxsim.I8:
		return runtime.Bytes(m.I8)
	}
	return m.U8
}

// packedRows are packed tokens in device memory.
type packedRows struct {
	format
	rowBytes             int
	ptr                  driver.Ptr
	scale, unit, inverse driver.Ptr   // factors of each row, see scaleFor, 0 if absent
	codec                *codecTables // of compressed tokens, else nil
}

// rowsOf returns rows of a format without addresses.
func rowsOf(f format, dim int) packedRows { return packedRows{format: f, rowBytes: rowBytes(f, dim)} }

// startingAt returns the rows from a row on.
func (r packedRows) startingAt(row int) packedRows {
	r.ptr += driver.Ptr(row * r.rowBytes)
	for _, p := range []*driver.Ptr{&r.scale, &r.unit, &r.inverse} {
		if *p != 0 {
			*p += driver.Ptr(4 * row)
		}
	}
	return r
}

// scaleFor returns the address of the factors of rows, with normalization or without.
func (r *packedRows) scaleFor(normalize bool) driver.Ptr {
	switch {
	case !normalize:
		return r.scale
	case r.unit != 0:
		return r.unit
	}
	return r.inverse
}

// reserveRows reserves memory for n rows: with scales if scaled, and with inverse lengths if lengths. The
// function that it returns gives the rows for the address at which the arena begins.
func reserveRows(a *runtime.Arena, f format, dim, n int, scaled, lengths bool) func(base driver.Ptr) packedRows {
	r := rowsOf(f, dim)
	offset := a.Append(int64(n) * int64(r.rowBytes))
	var scale, unit, inverse int64 = -1, -1, -1
	if scaled {
		scale = a.Append(4 * int64(n))
	}
	if lengths {
		inverse = a.Append(4 * int64(n))
		if scaled {
			unit = a.Append(4 * int64(n))
		}
	}
	return func(base driver.Ptr) packedRows {
		r := r
		r.ptr = base.Add(offset)
		for _, p := range []struct {
			to     *driver.Ptr
			offset int64
		}{{&r.scale, scale}, {&r.unit, unit}, {&r.inverse, inverse}} {
			if p.offset >= 0 {
				*p.to = base.Add(p.offset)
			}
		}
		return r
	}
}

// reserveBatch reserves memory for n rows of a batch in a format, as reserveRows does, and for the tables
// of its codec.
func reserveBatch(a *runtime.Arena, f format, b *maxsim.Batch, n int, lengths bool) func(base driver.Ptr) packedRows {
	placeRows := reserveRows(a, f, b.Tokens.Dim, n, f.scaled(&b.Tokens), lengths)
	codec := reserveCodec(a, &b.Tokens)
	return func(base driver.Ptr) packedRows {
		r := placeRows(base)
		r.codec = codec.setBase(base)
		return r
	}
}

// structsFrom returns memory as n structs or numbers of the device code.
func structsFrom[T any](b []byte, n int) []T {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}
