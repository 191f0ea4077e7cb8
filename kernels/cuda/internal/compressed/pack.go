package compressed

import (
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// packed holds documents in the layout of the scans: a resident index, or a piece.
type packed struct {
	words, rows, codes, tileDoc, firstTile, docMax driver.Mem
	tileCap, docCap                                int64
	docs, tiles                                    int64
}

// packedBytes returns the sizes of the arrays of packed, in the order of its fields.
func (s *shape) packedBytes(docs, tiles int64) [6]int64 {
	slots := tiles + spareTiles
	return [6]int64{
		8 * tileTokens * slots,
		tileTokens * s.rowStride() * slots,
		tileTokens * int64(s.codeBytes) * slots,
		4 * slots,
		4 * (docs + 1),
		4 * max(docs, 1),
	}
}

// newPacked allocates arrays for a number of documents and tiles.
func (s *shape) newPacked(c *driver.Context, docs, tiles int64) (p *packed, err error) {
	p = &packed{tileCap: tiles, docCap: docs}
	bytes := s.packedBytes(docs, tiles)
	for i, m := range []*driver.Mem{&p.words, &p.rows, &p.codes, &p.tileDoc, &p.firstTile, &p.docMax} {
		if *m, err = c.Alloc(bytes[i]); err != nil {
			p.freeArrays(c)
			return nil, err
		}
	}
	return p, nil
}

// freeArrays frees all arrays.
func (p *packed) freeArrays(c *driver.Context) {
	for _, m := range []*driver.Mem{&p.words, &p.rows, &p.codes, &p.tileDoc, &p.firstTile, &p.docMax} {
		_ = c.Free(*m) // fails only on a lost device, whose memory is freed with it
		*m = driver.Mem{}
	}
}

// clearSpare zeroes the spare tiles behind the last one, which scans read ahead.
func (s *shape) clearSpare(rt *runtime.Runtime, p *packed) error {
	for _, a := range []struct {
		m     driver.Mem
		width int64 // of a tile
	}{
		{p.words, 8 * tileTokens},
		{p.rows, tileTokens * s.rowStride()},
		{p.codes, tileTokens * int64(s.codeBytes)},
		{p.tileDoc, 4},
	} {
		if err := rt.Driver.Set(a.m.At(p.tiles*a.width), 0, spareTiles*a.width, rt.Stream); err != nil {
			return err
		}
	}
	return nil
}

// stagedPiece is a piece that is being copied to the device, with the offsets of its arrays.
type stagedPiece struct {
	runtime.Staged
	offsets stageLayout
}

// stagePiece starts the copy of a piece to the device. Its first tile gets the number tile.
func (a *attachment) stagePiece(from kernels.Corpus, p *piece, tile uint32) (stagedPiece, error) {
	at := a.shape.stageLayout(p.docs, p.tokens)
	st, err := a.rt.Stage(at.size, func(host []byte) error { return a.shape.fillStage(host, at, p, from, tile) })
	return stagedPiece{st, at}, err
}

type packParams struct {
	codes, factors, residuals, offsets, firstTile, centroidScale driver.Ptr
	words, rows, tileDoc, docMax, codeList                       driver.Ptr
	docs, docBase, tiles, codeBytes, rowBytes, laneWords         uint32
	plainMax, _                                                  uint32
}

// packPiece converts a staged piece to the layout of the scans, and appends it to the documents
// of dst.
func (a *attachment) packPiece(st stagedPiece, p *piece, dst *packed) error {
	s := a.shape
	if err := a.rt.Driver.Set(dst.docMax.At(4*dst.docs), 0, 4*p.docs, a.rt.Stream); err != nil {
		return err
	}
	if p.tiles > 0 {
		err := runtime.Launch(a.rt, "pack", int(runtime.CeilDiv(p.tiles, 8)), 1, 1, 256, 0, &packParams{
			codes:         st.Raw.Add(st.offsets.codes),
			factors:       st.Raw.Add(st.offsets.factors),
			residuals:     st.Raw.Add(st.offsets.residuals),
			offsets:       st.Raw.Add(st.offsets.offsets),
			firstTile:     st.Raw.Add(st.offsets.firstTile),
			centroidScale: a.codecArray(a.arrays.ratio),
			words:         dst.words.Ptr,
			rows:          dst.rows.Ptr,
			tileDoc:       dst.tileDoc.Ptr,
			docMax:        dst.docMax.Ptr,
			codeList:      dst.codes.Ptr,
			docs:          uint32(p.docs),
			docBase:       uint32(dst.docs),
			tiles:         uint32(p.tiles),
			codeBytes:     uint32(s.codeBytes),
			rowBytes:      uint32(s.rowBytes),
			laneWords:     uint32(s.lanes),
			plainMax:      uint32(int64FromBool(s.mode > halfMode)),
		})
		if err != nil {
			return err
		}
	}
	err := a.rt.Driver.OnDevice(dst.firstTile.At(4*dst.docs), st.Raw.Add(st.offsets.firstTile), 4*(p.docs+1),
		a.rt.Stream)
	if err != nil {
		return err
	}
	dst.docs += p.docs
	dst.tiles += p.tiles
	return s.clearSpare(a.rt, dst)
}
