// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package card

import (
	"errors"
	"fmt"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// From linux/vfio.h.
const (
	vfioSetIOMMU          = 0x3b66
	vfioGroupGetStatus    = 0x3b67
	vfioGroupSetContainer = 0x3b68
	vfioGroupGetDeviceFD  = 0x3b6a
	vfioDeviceGetInfo     = 0x3b6b
	vfioType1IOMMU        = 1
	vfioGroupViable       = 1
)

// Use is a device that is open through the VFIO API, as a virtual machine has it.
type Use struct{ fds []int }

// Open opens a device through its IOMMU group, with the IOMMU in between.
func Open(device string) (_ *Use, err error) {
	u := &Use{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open %s through VFIO: %w", device, err), u.Close())
		}
	}()
	container, err := u.open("/dev/vfio/vfio")
	if err != nil {
		return nil, err
	}
	group, err := u.open(filepath.Join("/dev/vfio", base(filepath.Join(bus, "devices", device, "iommu_group"))))
	if err != nil {
		return nil, err
	}
	status := struct{ size, flags uint32 }{size: 8}
	if _, err := ioctl(group, vfioGroupGetStatus, unsafe.Pointer(&status)); err != nil {
		return nil, fmt.Errorf("group's status: %w", err)
	}
	if status.flags&vfioGroupViable == 0 {
		return nil, errors.New("the group is not viable")
	}
	member := int32(container)
	if _, err := ioctl(group, vfioGroupSetContainer, unsafe.Pointer(&member)); err != nil {
		return nil, fmt.Errorf("set container: %w", err)
	}
	if err := unix.IoctlSetInt(container, vfioSetIOMMU, vfioType1IOMMU); err != nil {
		return nil, fmt.Errorf("set IOMMU: %w", err)
	}
	name, err := unix.BytePtrFromString(device)
	if err != nil {
		return nil, err
	}
	fd, err := ioctl(group, vfioGroupGetDeviceFD, unsafe.Pointer(name))
	if err != nil {
		return nil, fmt.Errorf("get device: %w", err)
	}
	u.fds = append(u.fds, fd)
	info := struct{ size, flags, regions, irqs uint32 }{size: 16}
	if _, err := ioctl(fd, vfioDeviceGetInfo, unsafe.Pointer(&info)); err != nil {
		return nil, fmt.Errorf("device's information: %w", err)
	}
	if info.regions == 0 {
		return nil, errors.New("the device has no regions")
	}
	return u, nil
}

func (u *Use) open(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", path, err)
	}
	u.fds = append(u.fds, fd)
	return fd, nil
}

// Close lets go of the device.
func (u *Use) Close() error {
	var errs []error
	for len(u.fds) > 0 {
		last := len(u.fds) - 1
		errs = append(errs, unix.Close(u.fds[last]))
		u.fds = u.fds[:last]
	}
	return errors.Join(errs...)
}

func ioctl(fd int, request uint, arg unsafe.Pointer) (int, error) {
	r, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(arg))
	if errno != 0 {
		return 0, errno
	}
	return int(r), nil
}
