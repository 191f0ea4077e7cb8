//go:build !unix

package infile

const nonBlocking = 0 // there are no pipes among the files
