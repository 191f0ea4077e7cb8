package packed

// Parse reads a file that is in memory.
var Parse = parse
