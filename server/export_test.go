package server

import "encoding/json"

// WithKeys is for tests.
var WithKeys = withKeys

// Routes are the methods and patterns of all routes of the API.
func Routes(s *Server) []string {
	var all []string
	for _, r := range s.routes.routes {
		if !r.page {
			all = append(all, r.method+" "+r.pattern)
		}
	}
	return all
}

// ReadMatrix reads vectors as a request has them.
func ReadMatrix(text []byte) (Matrix, error) {
	var v vectorsJSON
	if err := json.Unmarshal(text, &v); err != nil {
		return Matrix{}, err
	}
	return v.matrix()
}

// WriteMatrix writes vectors as an answer has them.
func WriteMatrix(m Matrix) []byte {
	text, err := json.Marshal(vectorsJSON{Embeddings: rowsJSON{given: true, m: m}})
	if err != nil {
		panic(err)
	}
	return text
}
