//go:build !race

package effort

// RaceDetector says that the race detector watches.
const RaceDetector = false
