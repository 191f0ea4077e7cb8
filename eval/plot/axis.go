package plot

import (
	"math"
	"slices"
	"strconv"
)

// ruler maps the values of an axis to pixels.
type ruler struct {
	scale    Scale
	min, max float64 // ends, in values
	lo, hi   float64 // ends, on the scale
	closest  float64 // Nines: the distance to 1 that stands for 0
	from, to float64 // pixels
	ticks    []tick
}

type tick struct {
	value float64
	label string // "" for a small one
}

// newRuler fits the axis to values; ticks is about how many labels there is room for.
func newRuler(a Axis, values []float64, from, to float64, ticks int) *ruler {
	r := &ruler{scale: a.Scale, min: slices.Min(values), max: slices.Max(values), from: from, to: to}
	given := a.Min < a.Max
	if given {
		r.min, r.max = a.Min, a.Max
	} else { // no mark lies on the frame
		room := (to - from) / 40
		r.from, r.to = from+room, to-room
	}
	switch a.Scale {
	case Log:
		r.logarithmic(given, ticks)
	case Nines:
		r.nines(values)
	default:
		r.linear(given, ticks)
	}
	r.lo, r.hi = r.on(r.min), r.on(r.max)
	return r
}

// on is the place of a value on the scale.
func (r *ruler) on(v float64) float64 {
	switch r.scale {
	case Log:
		return math.Log10(v)
	case Nines:
		return -math.Log10(max(1-v, r.closest))
	}
	return v
}

// position is the place of a value in pixels.
func (r *ruler) position(v float64) float64 {
	return r.from + (r.on(v)-r.lo)/(r.hi-r.lo)*(r.to-r.from)
}

// holds allows for the rounding of what was computed.
func (r *ruler) holds(v float64) bool {
	slack := 1e-9 * (r.hi - r.lo)
	return r.on(v) >= r.lo-slack && r.on(v) <= r.hi+slack
}

// linear puts labels at multiples of 1, 2 or 5 times a power of ten, and ends
// the axis at some unless the ends are given.
func (r *ruler) linear(given bool, ticks int) {
	if size := max(math.Abs(r.min), math.Abs(r.max)); r.max-r.min <= 1e-9*size || r.max-r.min < 1e-12 {
		pad := max(size/10, 1e-6)
		if size == 0 {
			pad = 1
		}
		r.min, r.max = r.min-pad, r.max+pad
	}
	raw := (r.max - r.min) / float64(max(ticks, 2))
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	step := 10 * power
	for _, f := range []float64{1, 2, 5} {
		if f*power >= raw*(1-1e-9) {
			step = f * power
			break
		}
	}
	first, last := math.Floor(r.min/step+1e-9), math.Ceil(r.max/step-1e-9)
	if given {
		first, last = math.Ceil(r.min/step-1e-9), math.Floor(r.max/step+1e-9)
	} else {
		r.min, r.max = first*step, last*step
	}
	digits := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	for i := first; i <= last; i++ {
		v := i*step + 0 // no −0
		r.ticks = append(r.ticks, tick{v, strconv.FormatFloat(v, 'f', digits, 64)})
	}
}

// logarithmic puts labels at powers of ten, and at 2 and 5 times them where the
// axis is short, and small ticks between. An axis too short for three of these has labels as a
// linear one has.
func (r *ruler) logarithmic(given bool, ticks int) {
	if !given {
		pad := math.Pow(r.max/r.min, 0.06)
		if r.min == r.max {
			pad = 2
		}
		r.min, r.max = r.min/pad, r.max*pad
	}
	labels := []int{1}
	switch decades := math.Log10(r.max / r.min); {
	case decades < 0.8:
		labels = []int{1, 2, 3, 4, 5, 6, 7, 8, 9}
	case decades < 3:
		labels = []int{1, 2, 5}
	}
	for p := math.Floor(math.Log10(r.min)); p <= math.Ceil(math.Log10(r.max)); p++ {
		for m := 1; m < 10; m++ {
			v := float64(m) * math.Pow(10, p)
			if v < r.min*(1-1e-9) || v > r.max*(1+1e-9) {
				continue
			}
			t := tick{value: v}
			if slices.Contains(labels, m) {
				t.label = strconv.FormatFloat(v, 'f', -1, 64)
				if p > 5 || p < -5 {
					t.label = strconv.FormatFloat(v, 'e', 0, 64)
				}
				if len(t.label) > 8 { // rounding of the power
					t.label = strconv.FormatFloat(v, 'g', 3, 64)
				}
			}
			r.ticks = append(r.ticks, t)
		}
	}
	labelled := 0
	for _, t := range r.ticks {
		if t.label != "" {
			labelled++
		}
	}
	if labelled < 3 && r.max-r.min > 1e-11 {
		r.ticks = nil
		r.linear(true, 2*ticks) // ends that are not at a label leave room for few
	}
}

// nines puts labels at 0, 0.5, 0.9, 0.95, 0.99 and so on, and at 1, which lies
// half as far from 1 as the closest value below it.
func (r *ruler) nines(values []float64) {
	closest := 0.1
	for _, v := range values {
		if v < 1 && 1-v < closest {
			closest = 1 - v
		}
	}
	r.closest = max(closest/2, 1e-9)
	if r.max < 1 { // given
		r.closest = min(r.closest, 1-r.max)
	}
	if r.min >= 1-r.closest {
		r.min = 1 - 10*r.closest
	}
	full := r.max >= 1 || slices.Max(values) >= 1
	if full {
		r.max = 1
	}
	if r.max <= r.min+1e-3 {
		r.max = max(r.max, 1-r.closest)
	}
	r.lo, r.hi = r.on(r.min), r.on(r.max)
	for p := 1.0; p > r.closest/10; p /= 10 {
		for _, m := range []float64{1, 0.5, 0.2} {
			v := 1 - m*p
			if !r.holds(v) || m*p < r.closest*(1-1e-9) || full && m*p < 1.5*r.closest {
				continue
			}
			t := tick{value: v}
			if m != 0.2 {
				t.label = strconv.FormatFloat(math.Round(v*1e10)/1e10, 'f', -1, 64)
			}
			r.ticks = append(r.ticks, t)
		}
	}
	if full {
		r.ticks = append(r.ticks, tick{1, "1"})
	}
}
