package driver

import (
	"bytes"
	"fmt"
)

// Info describes a device.
type Info struct {
	Ordinal         int    `json:"ordinal"`
	Name            string `json:"name"`
	Major           int    `json:"-"` // of the compute capability
	Minor           int    `json:"-"`
	Memory          uint64 `json:"memory"` // bytes
	PCI             string `json:"pci"`
	Multiprocessors int    `json:"multiprocessors"`
	Shared          int    `json:"shared"` // maximum of shared memory of a block, in bytes
	Driver          string `json:"driver"` // CUDA version that the driver supports
}

// Capability returns the compute capability, such as "9.0".
func (i *Info) Capability() string { return fmt.Sprintf("%d.%d", i.Major, i.Minor) }

// Devices initialises the driver and describes its devices, in the order of
// their numbers.
//
// Errors: [ErrNoDriver] if the driver has no device, [ErrDriverTooOld].
func Devices(api *API) ([]Info, error) {
	if err := resultError(api.Init(), "cuInit", ""); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoDriver, err)
	}
	var version, n int32
	if err := resultError(api.DriverVersion(&version), "cuDriverGetVersion", ""); err != nil {
		return nil, err
	}
	if version < MinVersion {
		return nil, fmt.Errorf("%w: it supports CUDA %s, plaid needs at least %s", ErrDriverTooOld, Version(version),
			Version(MinVersion))
	}
	if err := resultError(api.DeviceCount(&n), "cuDeviceGetCount", ""); err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, fmt.Errorf("%w: it has no device", ErrNoDriver)
	}
	infos := make([]Info, n)
	for i := range infos {
		if err := describeDevice(api, i, &infos[i]); err != nil {
			return nil, fmt.Errorf("device %d: %w", i, err)
		}
		infos[i].Driver = Version(version)
	}
	return infos, nil
}

// describeDevice fills info with the properties of the device with a number.
func describeDevice(api *API, ordinal int, info *Info) error {
	var dev DeviceHandle
	if err := resultError(api.DeviceGet(&dev, int32(ordinal)), "cuDeviceGet", ""); err != nil {
		return err
	}
	info.Ordinal = ordinal
	name, pci := make([]byte, 256), make([]byte, 32)
	if err := resultError(api.DeviceName(name, dev), "cuDeviceGetName", ""); err != nil {
		return err
	}
	if err := resultError(api.DevicePCIBusID(pci, dev), "cuDeviceGetPCIBusId", ""); err != nil {
		return err
	}
	info.Name, info.PCI = stringFromC(name), stringFromC(pci)
	if err := resultError(api.DeviceTotalMem(&info.Memory, dev), "cuDeviceTotalMem", ""); err != nil {
		return err
	}
	for _, a := range []struct {
		attr Attribute
		dst  *int
	}{
		{AttrCapabilityMajor, &info.Major},
		{AttrCapabilityMinor, &info.Minor},
		{AttrMultiprocessors, &info.Multiprocessors},
		{AttrMaxSharedPerBlock, &info.Shared},
	} {
		var v int32
		if err := resultError(api.DeviceAttribute(&v, a.attr, dev), "cuDeviceGetAttribute", "attribute %d",
			a.attr); err != nil {
			return err
		}
		*a.dst = int(v)
	}
	return nil
}

// stringFromC returns the bytes before the first zero byte.
func stringFromC(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}
