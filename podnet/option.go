// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"fmt"
	"strconv"
)

// maxOptionLen is the longest value of one DHCP option (RFC 2132, 2).
const maxOptionLen = 255

// optionNames are the option names of the CNI dhcp plugin.
var optionNames = map[string]uint8{
	"subnet-mask":             1,
	"routers":                 3,
	"host-name":               12,
	"vendor-class-identifier": 60,
	"dhcp-client-identifier":  61,
	"user-class":              77,
}

// OptionCode is the code of a DHCP option given by the name that the CNI dhcp
// plugin knows, or by its number (1 to 254).
func OptionCode(nameOrNumber string) (uint8, error) {
	if code, ok := optionNames[nameOrNumber]; ok {
		return code, nil
	}
	n, err := strconv.ParseUint(nameOrNumber, 10, 8)
	if err != nil || n == 0 || n == 255 {
		return 0, fmt.Errorf("not the name or the number (1 to 254) of a DHCP option")
	}
	return uint8(n), nil
}
