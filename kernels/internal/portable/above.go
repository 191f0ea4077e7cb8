package portable

// Above writes to rows the numbers of those of the len(rows) rows of S that exceed
// limits in any of their first n ≤ 32 columns, and returns how many there are.
func Above(rows []uint32, scores []float32, stride, n int, limits *[32]float32) int {
	found := 0
	for r := range rows {
		for i, v := range scores[r*stride:][:n] {
			if v > limits[i] {
				rows[found] = uint32(r)
				found++
				break
			}
		}
	}
	return found
}
