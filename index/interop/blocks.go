package interop

import (
	"context"
	"fmt"
	"iter"
	"math/bits"
)

// Blocks streams codes and residuals in document order, in blocks of 1 to maxTokens tokens, with
// one block in memory at a time. Residuals are in plaid's order. It checks that every code is below
// K; an error names the file and the token (its row in the file). The first error ends the stream.
//
// Each stream opens the files again, so it may be run more than once.
func (x *Index) Blocks(ctx context.Context, maxTokens int) iter.Seq2[Block, error] {
	return x.streamBlocks(ctx, maxTokens, codesAndResiduals)
}

// blockContent selects the arrays of a stream.
type blockContent bool

const (
	codesAndResiduals blockContent = true
	codesOnly         blockContent = false
)

// streamBlocks implements Blocks, also for codes alone.
func (x *Index) streamBlocks(ctx context.Context, maxTokens int, content blockContent) iter.Seq2[Block, error] {
	return func(yield func(Block, error) bool) {
		if maxTokens < 1 {
			yield(Block{}, fmt.Errorf("index folder %s: blocks of %d tokens, want at least 1", x.Dir, maxTokens))
			return
		}
		s := blockStream{
			index:         x,
			maxTokens:     int(min(int64(maxTokens), x.Tokens)),
			withResiduals: content == codesAndResiduals,
		}
		for _, c := range x.files.chunks {
			ok, err := s.streamChunk(ctx, c, yield)
			if err != nil {
				yield(Block{}, fmt.Errorf("index folder %s: %w", x.Dir, err))
			}
			if err != nil || !ok {
				return
			}
		}
	}
}

// blockStream holds the buffers of a stream, which grow to the size of a block.
type blockStream struct {
	index         *Index
	maxTokens     int
	withResiduals bool

	codes64   []int64
	codes     []uint32
	residuals []byte
}

// streamChunk yields the blocks of a chunk. ok is false if the consumer stopped.
func (s *blockStream) streamChunk(ctx context.Context, c chunk, yield func(Block, error) bool) (ok bool, err error) {
	if c.rows == 0 {
		return true, nil
	}
	codes, err := s.index.folder.openArray(c.codes)
	if err != nil {
		return false, err
	}
	defer codes.close()
	// Check again: the files may have been replaced since Open checked them.
	if err := s.index.checkCodes(c, codes, atLeastRows); err != nil {
		return false, err
	}
	var residuals array // stays empty without residuals
	if s.withResiduals {
		if residuals, err = s.index.folder.openArray(c.residuals); err != nil {
			return false, err
		}
		defer residuals.close()
		if err := s.index.checkResiduals(c, residuals, atLeastRows); err != nil {
			return false, err
		}
	}
	for row := 0; row < c.rows; {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		n := min(s.maxTokens, c.rows-row)
		b, err := s.readBlock(c, codes, residuals, row, n)
		if err != nil {
			return false, err
		}
		if !yield(b, nil) {
			return false, nil
		}
		row += n
	}
	return true, nil
}

// readBlock reads n tokens from firstRow on.
func (s *blockStream) readBlock(c chunk, codes, residuals array, firstRow, n int) (Block, error) {
	if len(s.codes64) < n {
		s.codes64, s.codes = make([]int64, n), make([]uint32, n)
	}
	b := Block{Codes: s.codes[:n]}
	if err := codes.readInts(s.codes64[:n], firstRow); err != nil {
		return Block{}, fmt.Errorf("%s: %w", c.codes, err)
	}
	for i, v := range s.codes64[:n] {
		if v < 0 || v >= int64(s.index.K) {
			return Block{}, fmt.Errorf("%w: %s: token %d has code %d, want 0 to %d",
				ErrBroken, c.codes, firstRow+i, v, s.index.K-1)
		}
		b.Codes[i] = uint32(v)
	}
	if !s.withResiduals {
		return b, nil
	}
	rowBytes := s.index.RowBytes()
	if len(s.residuals) < n*rowBytes {
		s.residuals = make([]byte, n*rowBytes)
	}
	b.Residuals = s.residuals[:n*rowBytes]
	if err := residuals.readBytes(b.Residuals, firstRow*rowBytes); err != nil {
		return Block{}, fmt.Errorf("%s: %w", c.residuals, err)
	}
	repack(b.Residuals)
	return b, nil
}

// repack converts residual bytes in place between the bit orders of ColBERT and plaid.
//
// ColBERT writes the n bits of each bucket least significant first and fills bytes from the most
// significant bit, so bit t of dimension d is at bit 7−((d·n+t) mod 8) of its byte. plaid has it at
// bit (d·n+t) mod 8. For any n that divides 8, the conversion reverses the bits of each byte, and
// is its own inverse.
func repack(b []byte) {
	for i, v := range b {
		b[i] = bits.Reverse8(v)
	}
}
