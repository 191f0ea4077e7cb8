// Package out formats what the command line writes: tables, lines of JSON, numbers and texts for
// people to read, and the progress of a command on a terminal.
package out
