package kernels

// OwnFast says whether level Fast of a scorer is by products of bytes, whose
// integers are others than those of tables.
func OwnFast(s Scorer) bool {
	sc := s.(*scorer)
	return sc.tiled() || sc.p.maxLevels != nil && sc.codec.Codebook.Uniform() && !sc.negative
}
