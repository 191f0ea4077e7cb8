package maxsim

// Unwarn lets the next call warn again.
func Unwarn() { warned.Store(false) }
