// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/cniserver"
)

// metricsServer serves a process's metrics while that runs.
type metricsServer struct {
	address  string // empty for none
	registry *prometheus.Registry
}

func (c *common) addMetrics() *metricsServer {
	m := &metricsServer{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	c.set.StringVar(&m.address, "metrics-bind-address", "", "`HOST:PORT` on which Prometheus' metrics are served, at /metrics; empty for nowhere")
	return m
}

// run runs main, and serves metrics until it returns.
func (m *metricsServer) run(ctx context.Context, main func(ctx context.Context) error) error {
	if m.address == "" {
		return main(ctx)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", m.address)
	if err != nil {
		return fmt.Errorf("flag --metrics-bind-address: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve metrics: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		defer server.Close()
		return main(ctx)
	})
	return g.Wait()
}

// countedPods counts what a node daemon tells of its pods.
type countedPods struct {
	cniserver.Pods
	events *prometheus.CounterVec
}

func (m *metricsServer) count(pods cniserver.Pods) countedPods {
	c := countedPods{pods, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ovn_dhcp_ipam_node_events_total",
		Help: "Events on the node's pods, by type and reason.",
	}, []string{"type", "reason"})}
	m.registry.MustRegister(c.events)
	return c
}

func (c countedPods) Event(ctx context.Context, namespace, name string, uid types.UID, eventType, reason, message string) error {
	c.events.WithLabelValues(eventType, reason).Inc()
	return c.Pods.Event(ctx, namespace, name, uid, eventType, reason, message)
}
