// Package flags is what the flags of the command line take: values of several
// kinds, and groups of flags that several commands have.
package flags
