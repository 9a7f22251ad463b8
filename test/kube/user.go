// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"net/url"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Config is a client configuration for a user, who has the rights that RBAC
// gives to the user's name and groups. A service account is the user
// "system:serviceaccount:NAMESPACE:NAME".
func (c *ControlPlane) Config(user string, groups ...string) (*rest.Config, error) {
	config, err := c.kubeconfig(user, groups)
	if err != nil {
		return nil, err
	}
	return clientcmd.NewDefaultClientConfig(*config, nil).ClientConfig()
}

// Kubeconfig writes a kubeconfig file with what Config has, and returns its
// path. Another call for the same user replaces it.
func (c *ControlPlane) Kubeconfig(user string, groups ...string) (path string, err error) {
	config, err := c.kubeconfig(user, groups)
	if err != nil {
		return "", err
	}
	path = c.file(url.PathEscape(user) + ".kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", fmt.Errorf("write the kubeconfig of %s: %w", user, err)
	}
	return path, nil
}

func (c *ControlPlane) kubeconfig(user string, groups []string) (*clientcmdapi.Config, error) {
	credentials, err := c.authority.client(user, groups)
	if err != nil {
		return nil, err
	}
	const name = "test"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: c.Endpoint, CertificateAuthorityData: c.CA}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: credentials.cert, ClientKeyData: credentials.key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user}
	config.CurrentContext = name
	return config, nil
}
