package maxsim

// Unwarn lets the next call warn again.
func Unwarn() { warned.Store(false) }

// SetTopScores lets a [Top] score few documents at a time, until done is called.
func SetTopScores(n int) (done func()) {
	before := topScores
	topScores = n
	return func() { topScores = before }
}
