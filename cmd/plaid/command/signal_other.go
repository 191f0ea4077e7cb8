//go:build !unix

package command

// ignoreSizeLimit does nothing: these systems have no signal for the limit.
func ignoreSizeLimit() {}
