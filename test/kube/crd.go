// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// fieldOwner is who we are in the managed fields of objects.
const fieldOwner = "test"

// InstallCRDs applies the files of deploy/crds and returns when their resources
// can be used. kube-apiserver takes two seconds for each object of such a
// resource that is created within the first two.
func (c *ControlPlane) InstallCRDs(ctx context.Context) error {
	root, err := moduleDir(ctx)
	if err != nil {
		return err
	}
	pattern := filepath.Join(root, "deploy/crds/*.yaml")
	files, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("install CRDs: there is no file %s", pattern)
	}
	var resources []schema.GroupVersionResource
	for _, file := range files {
		crd, err := readCRD(file)
		if err != nil {
			return fmt.Errorf("install CRD: %s: %w", file, err)
		}
		options := metav1.ApplyOptions{FieldManager: fieldOwner, Force: true}
		if _, err := c.Dynamic.Resource(crdResource()).Apply(ctx, crd.GetName(), crd, options); err != nil {
			return fmt.Errorf("install CRD: %s: %w", file, err)
		}
		resources = append(resources, resourcesOf(crd)...)
	}
	return c.awaitServed(ctx, resources)
}

func crdResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

func readCRD(file string) (*unstructured.Unstructured, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var crd unstructured.Unstructured
	return &crd, yaml.UnmarshalStrict(data, &crd.Object)
}

// resourcesOf are the resources that a CRD defines, one per version. What is
// not as it has to be in a CRD has been refused by the server.
func resourcesOf(crd *unstructured.Unstructured) []schema.GroupVersionResource {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	var resources []schema.GroupVersionResource
	for _, v := range versions {
		if v, ok := v.(map[string]any); ok && v["served"] == true {
			resources = append(resources, schema.GroupVersionResource{Group: group, Version: fmt.Sprint(v["name"]), Resource: plural})
		}
	}
	return resources
}

// awaitServed returns when all the resources can be listed.
func (c *ControlPlane) awaitServed(ctx context.Context, resources []schema.GroupVersionResource) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not done within %v", startTimeout))
	defer cancel()
	for _, r := range resources {
		err := c.apiserver.await(ctx, func(ctx context.Context) error {
			_, err := c.Dynamic.Resource(r).List(ctx, metav1.ListOptions{Limit: 1})
			return err
		})
		if err != nil {
			return fmt.Errorf("use %v: %w", r, err)
		}
	}
	return nil
}
