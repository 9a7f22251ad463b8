// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Package kube is the Kubernetes API as the daemons use it: the node daemon
// reads and annotates single pods, the controller follows pods, NADs and nodes
// and reports what is wrong with them.
package kube

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Config says how to reach the API.
type Config struct {
	// Kubeconfig is the path of a kubeconfig file; "" stands for the service
	// account of the pod that this process runs in.
	Kubeconfig string
	// Component is who reports problems, and the user agent.
	Component string
	Log       *slog.Logger
}

// Client speaks to the Kubernetes API. It is safe for concurrent use.
type Client struct {
	component string
	log       *slog.Logger
	typed     kubernetes.Interface
	dynamic   dynamic.Interface
}

// New loads the configuration. Nothing is dialled yet.
func New(cfg Config) (*Client, error) {
	load := rest.InClusterConfig
	if cfg.Kubeconfig != "" {
		load = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", cfg.Kubeconfig) }
	}
	config, err := load()
	if err != nil {
		return nil, fmt.Errorf("configuration of the Kubernetes client: %w", err)
	}
	rest.AddUserAgent(config, cfg.Component)
	// The server's priority and fairness limit who asks too much.
	config.QPS = -1
	// Both ends would compress each change of a watch by itself: that takes more
	// time than it saves.
	config.DisableCompression = true
	forDynamic := rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	c := &Client{component: cfg.Component, log: cfg.Log}
	if c.typed, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("client of the Kubernetes API: %w", err)
	}
	if c.dynamic, err = dynamic.NewForConfig(forDynamic); err != nil {
		return nil, fmt.Errorf("client of the Kubernetes API: %w", err)
	}
	return c, nil
}

// retryInterval is between tries to reach an API that doesn't answer.
const retryInterval = time.Second

// ClusterID is the cluster's identity: the UID of the namespace kube-system. It
// tries until the API answers or ctx ends.
func (c *Client) ClusterID(ctx context.Context) (string, error) {
	for {
		ns, err := c.typed.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err == nil {
			return string(ns.UID), nil
		}
		c.log.Warn("identity of the cluster is not known yet", "err", err)
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("identity of the cluster: %w", err)
		case <-time.After(retryInterval):
		}
	}
}
