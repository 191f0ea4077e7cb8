// Package out is how the command line writes: tables, lines of JSON, numbers and
// texts for people to read, and what goes to a terminal while a command works.
package out
