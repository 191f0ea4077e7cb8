package kernels

// Copies makes one device of several, each of which holds the whole of an index, as
// OpenDevice does of a name that begins with "copies:".
func Copies(devices ...Device) Device { return &several{devices: devices, copies: true} }
