// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what the controller counts.
type metrics struct {
	problems *prometheus.CounterVec
}

// newMetrics registers the metrics, unless with is nil.
func newMetrics(with prometheus.Registerer) (metrics, error) {
	m := metrics{problems: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ovn_dhcp_ipam_controller_problems_total",
		Help: "Problems that were reported on objects, each time that they began or changed, by the object's kind and the reason.",
	}, []string{"kind", "reason"})}
	if with == nil {
		return m, nil
	}
	if err := with.Register(m.problems); err != nil {
		return m, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}

// reported counts what is new among the problems of an object, which are messages
// by reason.
func (m metrics) reported(kind string, before, now map[string]string) {
	for reason, message := range now {
		if before[reason] != message {
			m.problems.WithLabelValues(kind, reason).Inc()
		}
	}
}
