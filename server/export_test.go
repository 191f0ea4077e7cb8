package server

// WithKeys is for tests.
var WithKeys = withKeys
