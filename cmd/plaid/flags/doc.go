// Package flags defines flags of the command line: the types of their values, and groups of flags
// that several commands share.
package flags
