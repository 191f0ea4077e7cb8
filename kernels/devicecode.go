package kernels

// coder is a [DeviceKind] that has code for its devices in the program.
type coder interface{ Code() []string }

// DeviceCode lists the device code that is in this program, by kind of device: also
// where there is no such device.
func DeviceCode() map[string][]string {
	code := map[string][]string{}
	for _, k := range deviceKinds() {
		code[k.Kind()] = []string{}
		if c, ok := k.(coder); ok {
			code[k.Kind()] = c.Code()
		}
	}
	return code
}
