package storage

// PartialLeast is how large a file has to be for parts of it to be fetched.
var PartialLeast = &partialLeast
