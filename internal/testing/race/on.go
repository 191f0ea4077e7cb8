//go:build race

package race

// Enabled says that the race detector watches, which makes a test about ten times
// slower and needs address space without limit.
const Enabled = true
