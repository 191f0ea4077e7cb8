package formats

import (
	"context"
	"encoding/binary"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// checkArrow refuses what the library would believe of a damaged file, and for which the
// process would end for want of memory: lengths of vectors, of batches and of buffers
// beyond what the file holds.
//
// It reads the metadata of all messages, and of compressed buffers their lengths.
func checkArrow(ctx context.Context, f io.ReaderAt, size int64, stream bool) error {
	c := &arrowCheck{ctx: ctx, f: f, size: size, dictionaries: map[int64]needs{}}
	if stream {
		return c.stream()
	}
	return c.file()
}

type arrowCheck struct {
	ctx          context.Context
	f            io.ReaderAt
	size         int64
	schema       needs
	dictionaries map[int64]needs // by their ids
}

// needs are what the library reads of a record batch without looking how many there are.
type needs struct {
	nodes, buffers, views int
	old                   int // buffers more before version 5 of the metadata
}

func (n *needs) add(m needs) {
	n.nodes += m.nodes
	n.buffers += m.buffers
	n.views += m.views
	n.old += m.old
}

// typeBuffers are how many buffers a type has, by its number; fieldTypes has the names.
var typeBuffers = []int{
	2: 2, 3: 2, 4: 3, 5: 3, 6: 2, 7: 2, 8: 2, 9: 2, 10: 2, 11: 2, 12: 2, 13: 1, 14: 1, 15: 2, 16: 1, 17: 2,
	18: 2, 19: 3, 20: 3, 21: 2, 22: 0, 23: 2, 24: 2, 25: 3, 26: 3,
}

// field counts what a field needs, and what the dictionaries in it need.
func (c *arrowCheck) field(t table) needs {
	kind := t.uint8(2)
	n := needs{nodes: 1}
	if int(kind) < len(typeBuffers) {
		n.buffers = typeBuffers[kind]
	}
	switch kind {
	case 14: // union
		n.old = 1
		if t.table(3).int16(0) == 1 { // dense
			n.buffers++
		}
	case 22: // run ends
		n.old = 1
	case 23, 24: // views
		n.views = 1
	}
	for _, child := range t.tables(5) {
		n.add(c.field(child))
	}
	if !t.has(4) {
		return n
	}
	c.dictionaries[t.table(4).int64(0)] = n
	return needs{nodes: 1, buffers: 2}
}

func (c *arrowCheck) setSchema(t table) {
	for _, field := range t.tables(1) {
		c.schema.add(c.field(field))
	}
}

// read reads bytes that have to be in the file.
func (c *arrowCheck) read(at, n int64) ([]byte, error) {
	if at < 0 || n < 0 || at > c.size || n > c.size-at {
		return nil, damaged("%d bytes at %d of a file of %d", n, at, c.size)
	}
	b := make([]byte, n)
	_, err := c.f.ReadAt(b, at)
	return b, err
}

// stream goes from message to message.
func (c *arrowCheck) stream() error {
	for at, first := int64(0), true; at < c.size || first; first = false {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		head, err := c.read(at, 4)
		if err != nil {
			return err
		}
		at += 4
		length := binary.LittleEndian.Uint32(head)
		if length == continuation {
			if head, err = c.read(at, 4); err != nil {
				return err
			}
			at += 4
			length = binary.LittleEndian.Uint32(head)
		}
		if length == 0 {
			return nil // the end
		}
		b, err := c.read(at, int64(length))
		if err != nil {
			return err
		}
		m, err := verify(b, messageLayout)
		if err != nil {
			return err
		}
		at += int64(length)
		body := m.int64(3)
		if body < 0 || body > c.size-at {
			return damaged("a body of %d bytes at %d of a file of %d", body, at, c.size)
		}
		if first != (m.uint8(1) == headerSchema) {
			return damaged("a message of kind %d: the first one is the schema, and no other", m.uint8(1))
		}
		if first {
			c.setSchema(m.table(2))
		} else if err := c.message(m, at, body); err != nil {
			return err
		}
		at += body
	}
	return nil
}

// continuation begins a message, since version 0.15 of Arrow.
const continuation = 0xffffffff

// file goes over the blocks in the footer, which is before its length and the magic.
func (c *arrowCheck) file() error {
	const end = 4 + int64(len(arrowMagic))
	tail, err := c.read(c.size-end, end)
	if err != nil {
		return err
	}
	if string(tail[4:]) != arrowMagic {
		return damaged("no %s at its end", arrowMagic)
	}
	length := int64(binary.LittleEndian.Uint32(tail))
	b, err := c.read(c.size-end-length, length)
	if err != nil {
		return err
	}
	footer, err := verify(b, footerLayout)
	if err != nil {
		return err
	}
	c.setSchema(footer.table(1))
	left := c.size // which all blocks share
	for _, kind := range []uint8{headerDictionary, headerBatch} {
		count, blocks := footer.vector(int(kind)) // the fields have the numbers of the kinds
		for i := range count {
			if err := c.ctx.Err(); err != nil {
				return err
			}
			taken, err := c.block(i, kind, blocks[24*i:], left)
			if err != nil {
				return err
			}
			left -= taken
		}
	}
	return nil
}

// block checks the message at a place in the footer, and returns how many of the bytes
// that are left it takes.
func (c *arrowCheck) block(i int, kind uint8, place []byte, left int64) (taken int64, err error) {
	at, length, body := int64At(place, 0), int64(int32(binary.LittleEndian.Uint32(place[8:]))), int64At(place, 2)
	if length < 8 || body < 0 || body > left-length {
		return 0, damaged("block %d has %d and %d bytes, the file %d", i, length, body, c.size)
	}
	b, err := c.read(at, length)
	if err != nil {
		return 0, err
	}
	prefix := 4
	if binary.LittleEndian.Uint32(b) == continuation {
		prefix = 8
	}
	m, err := verify(b[prefix:], messageLayout)
	if err != nil {
		return 0, err
	}
	if m.uint8(1) != kind || body > c.size-at-length {
		return 0, damaged("block %d is a message of kind %d (want %d), of %d bytes at %d", i, m.uint8(1), kind, body, at)
	}
	return length + body, c.message(m, at+length, body)
}

// int64At is number i of some whole numbers.
func int64At(b []byte, i int) int64 { return int64(binary.LittleEndian.Uint64(b[8*i:])) }

// message checks a record batch or a dictionary, the body of which is in the file.
func (c *arrowCheck) message(m table, at, body int64) error {
	t := m.table(2)
	switch m.uint8(1) {
	case headerBatch:
		n := c.schema
		if m.int16(0) < 4 {
			n.buffers += n.old
		}
		return c.batch(t, n, at, body)
	case headerDictionary:
		n, ok := c.dictionaries[t.int64(0)]
		if !ok {
			return damaged("no column has dictionary %d", t.int64(0))
		}
		n.buffers += n.old // the library takes any dictionary for one of version 1
		return c.batch(t.table(1), n, at, body)
	}
	return damaged("a message of kind %d", m.uint8(1))
}

// believed is how large the buffers of a batch may say to be without compression, before
// they are decompressed once to see: so many bytes, and so many times their length.
const believed, believedTimes = 16 << 20, 16

// batch checks that a batch has what the schema needs, and no more values than bytes.
func (c *arrowCheck) batch(t table, need needs, at, body int64) error {
	nodes, node := t.vector(1)
	buffers, buffer := t.vector(2)
	views, view := t.vector(4)
	if nodes < need.nodes || views < need.views {
		return damaged("a batch of %d columns and %d counts of buffers, the schema has %d and %d", nodes, views, need.nodes, need.views)
	}
	left := int64(buffers - need.buffers)
	for i := range views {
		count := int64At(view, i)
		if count < 0 || count > left {
			return damaged("a batch of %d buffers, column %d of views has %d", buffers, i, count)
		}
		left -= count
	}
	if left < 0 {
		return damaged("a batch of %d buffers, the schema has %d", buffers, need.buffers)
	}
	total := int64(0) // bytes of the buffers, decompressed
	for i := range buffers {
		from, size := int64At(buffer, 2*i), int64At(buffer, 2*i+1)
		if from < 0 || size < 0 || from > body || size > body-from {
			return damaged("buffer %d has %d bytes at %d of %d", i, size, from, body)
		}
		if t.has(3) && size > 0 {
			var err error
			if size, err = c.decompressed(i, t.table(3).uint8(0), at+from, size, believed+believedTimes*body-total); err != nil {
				return err
			}
		}
		total += size
	}
	for i := -1; i < nodes; i++ {
		values := t.int64(0)
		if i >= 0 {
			values = int64At(node, 2*i)
		}
		if values < 0 || values > 8*total { // a value takes a bit at least
			return damaged("%d values in %d bytes", values, total)
		}
	}
	return nil
}

// decompressed is the size that buffer i says to have without compression. Beyond what is
// believed, it is decompressed to see.
func (c *arrowCheck) decompressed(i int, codec uint8, at, size, believe int64) (int64, error) {
	head, err := c.read(at, min(size, 8))
	switch {
	case err != nil:
		return 0, err
	case size < 8:
		return 0, damaged("buffer %d is compressed, and has %d bytes", i, size)
	}
	claim := int64At(head, 0)
	if claim == -1 { // it is as it is
		return size - 8, nil
	}
	if claim < 0 || claim > believe {
		if err := c.count(codec, at+8, size-8, claim); c.ctx.Err() != nil {
			return 0, err
		} else if err != nil {
			return 0, damaged("buffer %d of %d bytes is not one of %d compressed: %v", i, size-8, claim, err)
		}
	}
	return claim, nil
}

// count decompresses a buffer and keeps nothing.
func (c *arrowCheck) count(codec uint8, at, n, size int64) error {
	if size < 0 {
		return io.ErrUnexpectedEOF
	}
	var in io.Reader = lz4.NewReader(io.NewSectionReader(c.f, at, n))
	if codec == 1 {
		d, err := zstd.NewReader(io.NewSectionReader(c.f, at, n), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return err
		}
		defer d.Close()
		in = d
	}
	for ; size > 0; size -= believed {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, in, min(size, believed)); err != nil {
			return err
		}
	}
	return nil
}
