package formats

import (
	"context"
	"encoding/binary"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// checkArrow checks the lengths of vectors, batches and buffers in a file of size bytes. The library trusts
// them, and would run out of memory for a damaged file.
//
// It reads the metadata of all messages, and the lengths of compressed buffers.
func checkArrow(ctx context.Context, f io.ReaderAt, size int64, stream bool) error {
	c := &arrowCheck{ctx: ctx, f: f, size: size, dictionaries: map[int64]needs{}}
	if stream {
		return c.checkStream()
	}
	return c.checkFile()
}

// arrowCheck checks one file or stream. The numbers of fields are indexes in the layouts of arrowmeta.go.
type arrowCheck struct {
	ctx          context.Context
	f            io.ReaderAt
	size         int64
	schema       needs           // of a record batch
	dictionaries map[int64]needs // of dictionary batches, by id
}

// needs is the numbers of descriptions that the library reads of a batch, without checking that the batch
// has them.
type needs struct {
	nodes, buffers, views int
	old                   int // additional buffers before version 5 of the metadata
}

// add adds the needs of another field.
func (n *needs) add(m needs) {
	n.nodes += m.nodes
	n.buffers += m.buffers
	n.views += m.views
	n.old += m.old
}

// typeBuffers is the number of buffers of a type, by the number of the type; see fieldTypes for names.
var typeBuffers = []int{
	2: 2, 3: 2, 4: 3, 5: 3, 6: 2, 7: 2, 8: 2, 9: 2, 10: 2, 11: 2, 12: 2, 13: 1, 14: 1, 15: 2, 16: 1, 17: 2,
	18: 2, 19: 3, 20: 3, 21: 2, 22: 0, 23: 2, 24: 2, 25: 3, 26: 3,
}

// fieldNeeds returns the needs of a field in a batch, and records those of its dictionaries.
func (c *arrowCheck) fieldNeeds(t table) needs {
	kind := t.uint8Field(2)
	n := needs{nodes: 1}
	if int(kind) < len(typeBuffers) {
		n.buffers = typeBuffers[kind]
	}
	switch kind {
	case 14: // union
		n.old = 1
		if t.tableField(3).int16Field(0) == 1 { // dense
			n.buffers++
		}
	case 22: // run ends
		n.old = 1
	case 23, 24: // views
		n.views = 1
	}
	for _, child := range t.tables(5) {
		n.add(c.fieldNeeds(child))
	}
	if !t.hasField(4) {
		return n
	}
	c.dictionaries[t.tableField(4).int64Field(0)] = n
	return needs{nodes: 1, buffers: 2}
}

// setSchema records the needs of the fields of a schema.
func (c *arrowCheck) setSchema(t table) {
	for _, field := range t.tables(1) {
		c.schema.add(c.fieldNeeds(field))
	}
}

// read reads n bytes at an offset, after checking that the file has them.
func (c *arrowCheck) read(offset, n int64) ([]byte, error) {
	if offset < 0 || n < 0 || offset > c.size || n > c.size-offset {
		return nil, damaged("%d bytes at %d of a file of %d", n, offset, c.size)
	}
	b := make([]byte, n)
	_, err := c.f.ReadAt(b, offset)
	return b, err
}

// checkStream checks the messages of a stream: the schema, and then batches.
func (c *arrowCheck) checkStream() error {
	for offset, first := int64(0), true; offset < c.size || first; first = false {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		// The length of the metadata.
		head, err := c.read(offset, 4)
		if err != nil {
			return err
		}
		offset += 4
		length := binary.LittleEndian.Uint32(head)
		if length == continuation {
			if head, err = c.read(offset, 4); err != nil {
				return err
			}
			offset += 4
			length = binary.LittleEndian.Uint32(head)
		}
		if length == 0 {
			return nil // the end
		}
		// The metadata.
		b, err := c.read(offset, int64(length))
		if err != nil {
			return err
		}
		m, err := verify(b, messageLayout)
		if err != nil {
			return err
		}
		// The body.
		offset += int64(length)
		body := m.int64Field(3)
		if body < 0 || body > c.size-offset {
			return damaged("a body of %d bytes at %d of a file of %d", body, offset, c.size)
		}
		if first != (m.uint8Field(1) == headerSchema) {
			return damaged("a message of kind %d: the first one is the schema, and no other", m.uint8Field(1))
		}
		if first {
			c.setSchema(m.tableField(2))
		} else if err := c.checkMessage(m, offset, body); err != nil {
			return err
		}
		offset += body
	}
	return nil
}

// continuation is the first four bytes of a message since version 0.15 of Arrow.
const continuation = 0xffffffff

// checkFile checks the messages of a file. The footer lists them; it is followed by its length and the magic.
func (c *arrowCheck) checkFile() error {
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
	c.setSchema(footer.tableField(1))
	remaining := c.size // bytes, since blocks do not overlap
	for _, kind := range []uint8{headerDictionary, headerBatch} {
		count, blocks := footer.vector(int(kind)) // the number of a field is that of its kind
		for i := range count {
			if err := c.ctx.Err(); err != nil {
				return err
			}
			used, err := c.checkBlock(i, kind, blocks[24*i:], remaining) // a block has 24 bytes
			if err != nil {
				return err
			}
			remaining -= used
		}
	}
	return nil
}

// checkBlock checks the message of block i in the footer: its offset, the length of its metadata, and that of
// its body. It returns its size, which must be at most remaining bytes.
func (c *arrowCheck) checkBlock(i int, kind uint8, location []byte, remaining int64) (used int64, err error) {
	offset, body := int64At(location, 0), int64At(location, 2)
	length := int64(int32(binary.LittleEndian.Uint32(location[8:])))
	if length < 8 || body < 0 || body > remaining-length {
		return 0, damaged("block %d has %d and %d bytes, the file %d", i, length, body, c.size)
	}
	b, err := c.read(offset, length)
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
	if m.uint8Field(1) != kind || body > c.size-offset-length {
		return 0, damaged("block %d is a message of kind %d (want %d), of %d bytes at %d",
			i, m.uint8Field(1), kind, body, offset)
	}
	return length + body, c.checkMessage(m, offset+length, body)
}

// int64At returns integer i of little-endian 64-bit integers.
func int64At(b []byte, i int) int64 { return int64(binary.LittleEndian.Uint64(b[8*i:])) }

// checkMessage checks a record batch or a dictionary. Its body of the given length is at an offset in the file.
func (c *arrowCheck) checkMessage(m table, offset, body int64) error {
	t := m.tableField(2)
	switch m.uint8Field(1) {
	case headerBatch:
		n := c.schema
		if m.int16Field(0) < 4 {
			n.buffers += n.old
		}
		return c.checkBatch(t, n, offset, body)
	case headerDictionary:
		n, ok := c.dictionaries[t.int64Field(0)]
		if !ok {
			return damaged("no column has dictionary %d", t.int64Field(0))
		}
		n.buffers += n.old // the library reads every dictionary as version 1
		return c.checkBatch(t.tableField(1), n, offset, body)
	}
	return damaged("a message of kind %d", m.uint8Field(1))
}

// trustedBytes plus trustedFactor times the size of the body is the decompressed size that the buffers of a
// batch may claim. Beyond that a buffer is decompressed to check its claim.
const trustedBytes, trustedFactor = 16 << 20, 16

// checkBatch checks that a batch has the descriptions that the schema needs, and not more values than bytes.
func (c *arrowCheck) checkBatch(t table, need needs, offset, body int64) error {
	// The numbers of descriptions.
	nodes, node := t.vector(1)
	buffers, buffer := t.vector(2)
	views, view := t.vector(4)
	if nodes < need.nodes || views < need.views {
		return damaged("a batch of %d columns and %d counts of buffers, the schema has %d and %d",
			nodes, views, need.nodes, need.views)
	}
	spare := int64(buffers - need.buffers) // buffers for the columns of views
	for i := range views {
		count := int64At(view, i)
		if count < 0 || count > spare {
			return damaged("a batch of %d buffers, column %d of views has %d", buffers, i, count)
		}
		spare -= count
	}
	if spare < 0 {
		return damaged("a batch of %d buffers, the schema has %d", buffers, need.buffers)
	}
	// The sizes of the buffers.
	total := int64(0) // bytes, decompressed
	for i := range buffers {
		from, size := int64At(buffer, 2*i), int64At(buffer, 2*i+1)
		if from < 0 || size < 0 || from > body || size > body-from {
			return damaged("buffer %d has %d bytes at %d of %d", i, size, from, body)
		}
		if t.hasField(3) && size > 0 {
			codec, trusted := t.tableField(3).uint8Field(0), trustedBytes+trustedFactor*body-total
			var err error
			if size, err = c.decompressedSize(i, codec, offset+from, size, trusted); err != nil {
				return err
			}
		}
		total += size
	}
	// The numbers of values: of the rows (i = -1), and of each column.
	for i := -1; i < nodes; i++ {
		values := t.int64Field(0)
		if i >= 0 {
			values = int64At(node, 2*i)
		}
		if values < 0 || values > 8*total { // a value has at least one bit
			return damaged("%d values in %d bytes", values, total)
		}
	}
	return nil
}

// decompressedSize returns the decompressed size that buffer i claims. If it is more than trusted bytes, the
// buffer is decompressed to check it.
func (c *arrowCheck) decompressedSize(i int, codec uint8, offset, size, trusted int64) (int64, error) {
	head, err := c.read(offset, min(size, 8))
	switch {
	case err != nil:
		return 0, err
	case size < 8:
		return 0, damaged("buffer %d is compressed, and has %d bytes", i, size)
	}
	claim := int64At(head, 0)
	if claim == -1 { // not compressed
		return size - 8, nil
	}
	if claim < 0 || claim > trusted {
		if err := c.checkDecompressed(codec, offset+8, size-8, claim); c.ctx.Err() != nil {
			return 0, err
		} else if err != nil {
			return 0, damaged("buffer %d of %d bytes is not one of %d compressed: %v", i, size-8, claim, err)
		}
	}
	return claim, nil
}

// checkDecompressed checks that a compressed buffer of n bytes has at least size bytes. It decompresses the buffer
// without keeping it.
func (c *arrowCheck) checkDecompressed(codec uint8, offset, n, size int64) error {
	if size < 0 {
		return io.ErrUnexpectedEOF
	}
	var in io.Reader = lz4.NewReader(io.NewSectionReader(c.f, offset, n))
	if codec == 1 { // Zstandard. 0 is LZ4
		d, err := zstd.NewReader(io.NewSectionReader(c.f, offset, n), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return err
		}
		defer d.Close()
		in = d
	}
	for ; size > 0; size -= trustedBytes {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, in, min(size, trustedBytes)); err != nil {
			return err
		}
	}
	return nil
}
