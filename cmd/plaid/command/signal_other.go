//go:build !unix

package command

func ignoreSizeLimit() {}
