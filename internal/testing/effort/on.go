//go:build race

package effort

// RaceDetector says that the race detector watches, which makes a test about ten times
// slower and needs address space without limit.
const RaceDetector = true
