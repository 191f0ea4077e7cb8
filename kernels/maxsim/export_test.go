package maxsim

// Unwarn lets the next call warn again.
func Unwarn() { lengthsWarned.Store(false) }

// SetTopScores lets a [Top] score few documents at a time, until done is called.
func SetTopScores(n int) (done func()) {
	before := maxBufferedScores
	maxBufferedScores = n
	return func() { maxBufferedScores = before }
}
