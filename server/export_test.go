package server

// WithKeys is for tests.
var WithKeys = withKeys

// Routes are the methods and patterns of all routes.
func Routes(s *Server) []string {
	var all []string
	for _, r := range s.routes.routes {
		all = append(all, r.method+" "+r.pattern)
	}
	return all
}
