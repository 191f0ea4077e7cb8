// Package amxstate asks the operating system for AMX's tile registers: Linux
// gives them to processes that have asked.
package floats
