// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Command hello is the least that a Go program costs to start.
package main

import "fmt"

func main() { fmt.Println("hello, world") }
