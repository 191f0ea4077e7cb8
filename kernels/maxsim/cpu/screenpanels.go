package cpu

import (
	"math"

	"github.com/plaid-ir/plaid/kernels/internal/tier"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// screenPanels are columns of queries in bytes, or in bfloat16.
type screenPanels struct {
	stride int
	levels []byte           // [panels, stride/4, 32, 4]
	starts [][width]int32   // take off what 128 adds
	perErr [][width]float32 // what |x − x̃| and |x̃| add to twice the bound, in units of the column
	per    [][width]float32

	halves []uint16 // [panels, dim/2, 32, 2], bfloat16; empty: bytes are used
}

// columns is what is summed up of a panel while it is rounded.
type columns struct {
	most          [width]uint32  // bits of the largest |value|
	scale         [width]float32 // the power of two that brings it to between 1/2 and 1, or near
	errs, lengths [width]float32 // squares of the rounding errors, and of the values, so scaled
}

// begin looks for the largest values of a panel.
func (c *columns) begin(data []float32) {
	*c = columns{}
	for j := 0; j < len(data); j += width {
		for lane, v := range (*[width]float32)(data[j:]) {
			c.most[lane] = max(c.most[lane], math.Float32bits(v)&^(1<<31))
		}
	}
	for lane, bits := range c.most {
		_, exponent := math.Frexp(float64(math.Float32frombits(bits)))
		c.scale[lane] = float32(math.Ldexp(1, max(min(-exponent, 120), -120)))
	}
}

// fit says that products with all columns can be screened.
func (c *columns) fit(dim int) bool {
	for _, bits := range c.most {
		most := float64(math.Float32frombits(bits))
		if !fits(most) || !fits(most*math.Sqrt(float64(dim))) { // between which the length is
			return false
		}
	}
	return true
}

// end returns the lengths of the error and of the column, or a little more.
func (c *columns) end(lane, dim int) (err, length float64) {
	sums := 1 + float64(dim)/(1<<23) // theirs, in float32
	return sums * math.Sqrt(float64(c.errs[lane])), sums * math.Sqrt(float64(c.lengths[lane]))
}

// reset lays the columns out: in halves where the documents can be multiplied as bfloat16,
// else in bytes. It reports whether the documents can be screened for them.
func (s *screenPanels) reset(p *panels, stride int, halves bool) bool {
	n := p.count()
	s.perErr, s.per = resize(s.perErr, n), resize(s.per, n)
	if s.halves = s.halves[:0]; halves {
		return s.resetHalves(p)
	}
	s.stride = stride
	s.levels, s.starts = resize(s.levels, n*width*stride), resize(s.starts, n)
	clear(s.levels)
	rounding := float64(p.dim+8) / (1 << 23) // of a sum of float32 products, twice
	var c columns
	for i := range n {
		data, out := p.data[i*p.dim*width:(i+1)*p.dim*width], s.levels[i*width*stride:(i+1)*width*stride]
		if c.begin(data); !c.fit(p.dim) {
			return false
		}
		var unit, inverse [width]float32
		for lane, bits := range c.most {
			if most := math.Float32frombits(bits) * c.scale[lane]; most > 0 {
				unit[lane], inverse[lane] = most/127, 127/most
			}
		}
		var sums [width]int32
		for j := range p.dim {
			to := out[j/4*4*width+j%4:]
			for lane, v := range (*[width]float32)(data[j*width:]) {
				const magic = 3 << 22 // whose last bit is 1: adding it rounds
				v *= c.scale[lane]
				level := float32(v*inverse[lane]) + magic - magic
				d := v - float32(level*unit[lane])
				b := int32(level)
				to[4*lane] = byte(b)
				sums[lane] += b
				c.errs[lane] += d * d
				c.lengths[lane] += v * v
			}
		}
		for lane := range width {
			s.starts[i][lane] = -128 * sums[lane]
			s.perErr[i][lane], s.per[i][lane] = float32(math.Inf(1)), 0 // a query of zeros
			if unit := float64(unit[lane]); unit > 0 {
				err, length := c.end(lane, p.dim)
				err += rounding * length
				length += rounding * length
				s.perErr[i][lane], s.per[i][lane] = up(2*length/unit), up(2*err/unit)
			}
		}
	}
	return true
}

// resetHalves lays the columns out as bfloat16, in units so near the largest value of a
// column that no product is so small that it counts as zero.
func (s *screenPanels) resetHalves(p *panels) bool {
	n := p.count()
	s.halves = resize(s.halves, n*width*p.dim)
	rounding := float64(p.dim+8) / (1 << 22) // of two sums of float32 products, twice
	var c columns
	for i := range n {
		data, out := p.data[i*p.dim*width:(i+1)*p.dim*width], s.halves[i*p.dim*width:(i+1)*p.dim*width]
		if c.begin(data); !c.fit(p.dim) {
			return false
		}
		for j := range p.dim {
			to := out[j/2*2*width+j%2:]
			for lane, v := range (*[width]float32)(data[j*width:]) {
				v *= c.scale[lane]
				bits := math.Float32bits(v)
				bits += 0x7fff + bits>>16&1
				to[2*lane] = uint16(bits >> 16)
				d := v - math.Float32frombits(bits&^0xffff)
				c.errs[lane] += d * d
				c.lengths[lane] += v * v
			}
		}
		for lane, bits := range c.most {
			s.perErr[i][lane], s.per[i][lane] = float32(math.Inf(1)), 0 // a query of zeros
			if bits > 0 {
				// |x| is no larger than |x − x̃| + |x̃|, of bytes.
				err, length := c.end(lane, p.dim)
				gap := up(2 * (err + rounding*length))
				s.perErr[i][lane], s.per[i][lane] = gap, gap
			}
		}
	}
	return true
}

// halvesFit says that documents can be multiplied as bfloat16, as they are.
func halvesFit(t *tier.Tier, docs *maxsim.Batch) bool {
	m, x := &docs.Tokens, t.Vectors.Screen
	return m.Type == maxsim.BF16 && docs.Mask == nil && x.Halves != nil && m.Dim%x.HalvesDims == 0
}

// rows is the least number of tokens of a document that can be screened.
func (s *screenPanels) rows(t *tier.Tier) int {
	if len(s.halves) > 0 {
		return t.Vectors.Screen.HalvesRows
	}
	return t.Vectors.Screen.Rows
}
