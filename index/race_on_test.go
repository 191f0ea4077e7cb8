//go:build race

package index

// raceDetector: it needs address space without limit.
const raceDetector = true
