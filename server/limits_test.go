package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What is not set of the limits follows from what is.
func TestLimitsFollow(t *testing.T) {
	const mib = 1 << 20
	all := func(l Limits) Limits {
		l.setDefaults()
		return Limits{
			Body: l.Body, Text: l.Text, Bodies: l.Bodies, Decoded: l.Decoded,
			Answers: l.Answers, Answer: l.Answer, Work: l.Work, Quick: l.Quick,
		}
	}
	require.Equal(t, Limits{
		Body: 100 * mib, Text: mib, Bodies: 1024 * mib, Decoded: 512 * mib,
		Answers: 1024 * mib, Answer: 256 * mib, Work: 5 * time.Minute, Quick: 30 * time.Second,
	}, all(Limits{}))
	require.Equal(t, Limits{
		Body: 800 * mib, Text: 8 * mib, Bodies: 32 * mib, Decoded: 16 * mib,
		Answers: 32 * mib, Answer: 8 * mib, Work: time.Second, Quick: 100 * time.Millisecond,
	}, all(Limits{Body: 800 * mib, Bodies: 32 * mib, Answers: 32 * mib, Work: time.Second}))
	given := Limits{Body: 1, Text: 2, Bodies: 3, Decoded: 4, Answers: 5, Answer: 6, Work: 7, Quick: 8}
	require.Equal(t, given, all(given))
	none := all(Limits{Body: -1, Bodies: -1, Answers: -1, Work: -1})
	require.Greater(t, min(none.Text, none.Decoded, none.Answer), int64(1)<<50)
	require.Greater(t, none.Quick, 10_000*time.Hour)
}
