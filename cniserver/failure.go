// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"

	"github.com/containernetworking/cni/pkg/types"
)

// failure is an error that has a CNI error code of its own.
type failure struct {
	code uint
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func fail(code uint, err error) error { return &failure{code: code, err: err} }

// cniError is the one place where an error becomes a CNI error.
func cniError(err error) *types.Error {
	var f *failure
	switch {
	case errors.As(err, &f):
		return types.NewError(f.code, err.Error(), "")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return types.NewError(types.ErrTryAgainLater, err.Error(), "")
	default:
		return types.NewError(types.ErrInternal, err.Error(), "")
	}
}
