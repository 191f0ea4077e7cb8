// Package torchtest writes files in the format of torch.save.
package torchtest

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/stretchr/testify/require"
)

// Tensor is a tensor to save.
type Tensor struct {
	Class   string // of its storage
	Shape   []int
	Data    []byte
	Strides []int  // nil for row-major order
	Name    string // its key in a dictionary
}

// Pickle returns the pickle of tensors: two tensors as a tuple, and named ones as the OrderedDict of a
// model's weights. The storage of each is named by its number.
func Pickle(tensors ...Tensor) []byte {
	// The letters are opcodes of pickle: X a string, J an integer, ( to t a tuple, c a global, R a call, Q a storage,
	// ( to u entries of a dictionary, b an attribute, . the end.
	var b bytes.Buffer
	text := func(s string) {
		b.WriteByte('X')
		b.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(s))))
		b.WriteString(s)
	}
	integer := func(v int) {
		b.WriteByte('J')
		b.Write(binary.LittleEndian.AppendUint32(nil, uint32(v)))
	}
	tuple := func(values []int) {
		b.WriteByte('(')
		for _, v := range values {
			integer(v)
		}
		b.WriteByte('t')
	}
	named := len(tensors) > 0 && tensors[0].Name != ""
	b.WriteString("\x80\x02")
	if named {
		b.WriteString("ccollections\nOrderedDict\n)R(")
	}
	for i, t := range tensors {
		if named {
			text(t.Name)
		}
		b.WriteString("ctorch._utils\n_rebuild_tensor_v2\n((")
		text("storage")
		b.WriteString("ctorch\n" + t.Class + "\n")
		text(fmt.Sprint(i))
		text("cuda:0")
		n := 1
		strides := make([]int, len(t.Shape))
		for d := len(t.Shape) - 1; d >= 0; d-- {
			strides[d] = n
			n *= t.Shape[d]
		}
		if t.Strides != nil {
			strides = t.Strides
		}
		integer(n)
		b.WriteString("tQK\x00")
		tuple(t.Shape)
		tuple(strides)
		b.WriteString("\x89ccollections\nOrderedDict\n)RtR")
	}
	switch {
	case named:
		b.WriteString("u}")
		text("_metadata")
		b.WriteString("ccollections\nOrderedDict\n)Rsb")
	case len(tensors) == 2:
		b.WriteByte(0x86)
	}
	b.WriteByte('.')
	return b.Bytes()
}

// Archive returns a ZIP archive of entries.
func Archive(t require.TestingT, method uint16, entries map[string][]byte) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, data := range entries {
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: method})
		require.NoError(t, err)
		_, err = w.Write(data)
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	return b.Bytes()
}

// File returns a file of tensors.
func File(t require.TestingT, tensors ...Tensor) []byte {
	entries := map[string][]byte{
		"any name/data.pkl":  Pickle(tensors...),
		"any name/byteorder": []byte("little"),
		"any name/version":   []byte("3\n"),
	}
	for i, s := range tensors {
		entries[fmt.Sprintf("any name/data/%d", i)] = s.Data
	}
	return Archive(t, zip.Store, entries)
}
