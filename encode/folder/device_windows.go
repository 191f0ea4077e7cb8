package folder

import (
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/windows"
)

// Device names the volume that a folder is on, by its serial number. Links are not followed. ""
// means that the system does not say.
func Device(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if !info.IsDir() { // a link or a file: the volume of its folder
		path = filepath.Dir(path)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", nil
	}
	defer f.Close()
	var volume windows.ByHandleFileInformation
	if windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &volume) != nil || volume.VolumeSerialNumber == 0 {
		return "", nil
	}
	return strconv.FormatUint(uint64(volume.VolumeSerialNumber), 10), nil
}
