//go:build !unix

package files

const nonBlocking = 0 // there are no pipes among the files
