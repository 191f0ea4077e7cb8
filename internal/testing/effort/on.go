//go:build race

package effort

// RaceDetector reports whether the race detector is on, which makes a test about ten times
// slower and requires unlimited address space.
const RaceDetector = true
