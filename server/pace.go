package server

import "time"

// pace is how a client keeps up with a body that it sends, or takes. It may be idle for a
// while, and each byte gives it time again, as the least rate has it, up to that while: who
// goes on below the rate is out of time sooner or later, and who stays above it never is.
// Only time that is waited for the client counts.
type pace struct {
	rate int64 // bytes a second
	most time.Duration
	left time.Duration // that may go by without a byte
	now  func() time.Time
}

func (s *Server) pace() pace {
	l := &s.o.Limits
	return pace{rate: l.Transfer, most: l.Stall, left: l.Stall, now: s.now}
}

// passed counts bytes that came, or went, since a time; false: the client is too slow.
func (p *pace) passed(bytes int, since time.Time) bool {
	if p.left -= p.now().Sub(since); p.left < 0 {
		return false
	}
	if bytes == 0 {
		return true
	}
	if p.rate == 0 { // any byte will do
		p.left = p.most
		return true
	}
	more := time.Duration(min(float64(bytes)/float64(p.rate)*float64(time.Second), float64(p.most)))
	p.left = min(p.left+more, p.most)
	return true
}

// lateBody is the problem of a body that did not come, or too slowly.
func (s *Server) lateBody() *Problem {
	l := &s.o.Limits
	if l.Transfer == 0 {
		return problem(CodeTimeout, "the body did not come: nothing was sent for %v", l.Stall)
	}
	return problem(CodeTimeout, "the body did not come, or too slowly: %d bytes a second are the least, after %v", l.Transfer, l.Stall)
}
