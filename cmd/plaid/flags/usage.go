package flags

import "fmt"

// UsageError is a command line that cannot be carried out.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }
func (e UsageError) Unwrap() error { return e.Err }

// Usagef makes a [UsageError].
func Usagef(format string, args ...any) error { return UsageError{Err: fmt.Errorf(format, args...)} }
