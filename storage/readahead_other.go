//go:build !linux

package storage

// Other systems read a page when it is touched.

func willNeed(memorySpan) {}

func isMissing(memorySpan) bool { return false }

func majorFaultCount() int64 { return 0 }
