package storage

// PartialLeast is the size in bytes below which a file is fetched at once.
var PartialLeast = &minPartialBytes
