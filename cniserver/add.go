// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// adding is an ADD under way. Its attachment is what the record says.
type adding struct {
	attachment
	conf    *podnet.NetConf
	config  []byte
	args    map[string]string
	cniArgs string
	mac     net.HardwareAddr
	limits  podnet.Bandwidth
	// learn is from what the guest's address is learned afterwards.
	learn string
	// hostName is what the DHCP server is told.
	hostName string
	course   course
	guest    guest
	netns    *podNetns
	// lease, and the routes that it has put into the pod.
	lease  dhcp.Lease
	routes []route
}

// add attaches a pod to a network. What it did is undone when it fails.
func (s *Server) add(ctx context.Context, c call) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.AddTimeout)
	defer cancel()
	unlock, err := s.locks.lock(ctx, cancel, attachmentKey(c.containerID, c.ifname))
	if err != nil {
		return nil, err
	}
	defer unlock()
	conf, err := s.netConf(c)
	if err != nil {
		return nil, err
	}
	if old, ok := s.records.Get(attachmentKey(c.containerID, c.ifname)); ok {
		if old.State == stateLive && inPlace(old) {
			return s.answerAgain(old, conf.CNIVersion)
		}
		// The remains of an ADD that failed, or of a network namespace that
		// went without a DEL, are in this one's way.
		if err := s.undo(ctx, old, steps()); err != nil {
			return nil, err
		}
	}
	a, err := s.prepare(ctx, c, conf)
	if err != nil {
		return nil, err
	}
	defer a.netns.Close()
	if err := s.do(ctx, a); err != nil {
		return nil, fmt.Errorf("attach pod %s/%s to network %s: %w", a.Namespace, a.Pod, a.Network, err)
	}
	return versioned(result(a.attachment, a.lease, a.routes), conf.CNIVersion)
}

// answerAgain is the result of an ADD that was answered before, as it would be
// now: the lease may have changed since.
func (s *Server) answerAgain(a attachment, version string) (json.RawMessage, error) {
	lease, ok := s.lease(a)
	if !ok {
		return nil, fail(types.ErrTryAgainLater, fmt.Errorf("pod %s/%s has no lease on network %s at this moment", a.Namespace, a.Pod, a.Network))
	}
	if a.VM != "" {
		return versioned(result(a, lease, nil), version)
	}
	netns, err := openNetns(a.Netns)
	if err != nil {
		return nil, err
	}
	defer netns.Close()
	routes, err := netns.routesFor(a, lease)
	if err != nil {
		return nil, err
	}
	return versioned(result(a, lease, routes), version)
}

// inPlace reports whether what an attachment was made of is where it was. What
// becomes of the interface in a virtual machine's pod is up to its runtime.
func inPlace(a attachment) bool {
	netns, err := openNetns(a.Netns)
	if err != nil {
		return false
	}
	defer netns.Close()
	switch {
	case a.VM != "" && a.Device == nil:
		exists, err := hostVethExists(a)
		return exists && err == nil
	case a.VM != "":
		return true
	}
	link, err := netns.LinkByName(a.IfName)
	return err == nil && link.Attrs().HardwareAddr.String() == a.MAC
}

// prepare checks everything that can be checked before the first side effect.
// The caller closes netns of what it returns.
func (s *Server) prepare(ctx context.Context, c call, conf *podnet.NetConf) (*adding, error) {
	pod, err := s.findPod(ctx, c)
	if err != nil {
		return nil, err
	}
	selections, err := podnet.ParseSelections(pod.Annotations[podnet.SelectionAnnotation], pod.Namespace)
	var request podnet.Request
	if err == nil {
		request, err = podnet.FindRequest(selections, conf.NADName, c.ifname)
	}
	var limits podnet.Bandwidth
	if err == nil {
		limits, err = podnet.ParseBandwidth(pod.Annotations)
	}
	if err != nil {
		return nil, fail(types.ErrInvalidNetworkConfig, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err))
	}
	g, err := s.guestOf(ctx, pod, request.NADKey)
	if err != nil {
		return nil, err
	}
	vf, err := s.findDevice(ctx, conf.DeviceID, c.device)
	if err != nil {
		return nil, err
	}
	course, err := plan(s.missing, g.workload, vf)
	if err != nil {
		return nil, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if course.plumbing == vfioVF {
		// A configuration can name any device of the node, also another plugin's.
		if err := s.devices.Unused(vf.Address); err != nil {
			return nil, fail(types.ErrInvalidNetworkConfig, fmt.Errorf("deviceID: Invalid value: %q: %w", vf.Address, err))
		}
	}
	mac := s.macOf(pod, request, g)
	a := &adding{
		attachment: attachment{
			State:       stateAdding,
			ContainerID: c.containerID,
			IfName:      c.ifname,
			Netns:       c.netns,
			Namespace:   pod.Namespace,
			Pod:         pod.Name,
			UID:         pod.UID,
			Network:     conf.Name,
			NADKey:      request.NADKey,
			MAC:         mac.String(),
			VM:          g.vm,

			PhysicalNetwork: conf.PhysicalNetworkName,
			VLAN:            conf.VLANID,
			MTU:             conf.MTU,
			DefaultRoute:    request.DefaultRoute,
			RouteMetric:     conf.DHCP.Priority,
		},
		conf: conf, config: c.config, args: c.args, cniArgs: c.cniArgs, mac: mac, limits: limits, hostName: hostName(pod, g.vm),
		learn:  cmp.Or(conf.Learn, s.cfg.Learn),
		course: course, guest: g,
	}
	if vf != nil {
		a.Device = newDevice(vf)
		if a.HostIfName, err = s.representor(a.Device.PCI, c.device); err != nil {
			return nil, err
		}
	}
	if _, err := clientConfig(a); err != nil {
		return nil, fail(types.ErrInvalidNetworkConfig, err)
	}
	if _, err := s.vswitch.physicalBridge(ctx, conf.PhysicalNetworkName); err != nil {
		return nil, fail(types.ErrInvalidNetworkConfig, err)
	}
	a.netns, err = findNetns(c)
	return a, err
}

// findPod reads the call's pod and checks that it is the one that the runtime
// means, and one that can be served.
func (s *Server) findPod(ctx context.Context, c call) (*corev1.Pod, error) {
	name, uid, err := c.podName()
	if err != nil {
		return nil, err
	}
	pod, err := s.cfg.Pods.GetPod(ctx, name.Namespace, name.Name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fail(types.ErrUnknownContainer, fmt.Errorf("CNI_ARGS: pod %s does not exist: %w", name, err))
	case err != nil:
		return nil, fmt.Errorf("read pod %s: %w", name, err)
	case uid != "" && uid != pod.UID:
		return nil, fail(types.ErrUnknownContainer, fmt.Errorf("CNI_ARGS: K8S_POD_UID %q is not that of pod %s, which is %q: it is another pod of the same name", uid, name, pod.UID))
	case pod.Spec.NodeName != s.cfg.NodeName:
		return nil, fail(types.ErrInvalidEnvironmentVariables, fmt.Errorf("pod %s: spec.nodeName is %q, but this is node %q", name, pod.Spec.NodeName, s.cfg.NodeName))
	}
	return pod, nil
}

// findNetns opens the pod's network namespace and checks that the interface can
// be made there. The caller closes it.
func findNetns(c call) (*podNetns, error) {
	if c.netns == "" {
		return nil, fail(types.ErrInvalidEnvironmentVariables, errors.New("CNI_NETNS is missing"))
	}
	netns, err := openNetns(c.netns)
	if err != nil {
		return nil, fail(types.ErrInvalidNetNS, fmt.Errorf("CNI_NETNS %q: %w", c.netns, err))
	}
	taken, err := netns.hasLink(c.ifname)
	if taken {
		err = fail(types.ErrInvalidEnvironmentVariables, fmt.Errorf("CNI_IFNAME %q: the pod has an interface of that name already", c.ifname))
	}
	if err != nil {
		return nil, errors.Join(err, netns.Close())
	}
	return netns, nil
}

// announce writes the attachment's MAC address into the pod's annotation, from
// which the controller makes the logical port. An address of an earlier sandbox
// goes: a port pinned to it would drop an offer of another one.
func (s *Server) announce(ctx context.Context, a *adding) error {
	return s.annotate(ctx, a.attachment, macEntry(a.mac))
}

var errSuperseded = errors.New("a newer sandbox of the pod has taken its place")

// publish writes the lease's address into the pod's annotation, from which the
// controller pins the logical port to it, unless it is a guest's.
func (s *Server) publish(ctx context.Context, a *adding) error {
	if a.VM != "" {
		return s.annotate(ctx, a.attachment, guestEntry(a.mac, a.lease))
	}
	return s.annotate(ctx, a.attachment, leaseEntry(a.mac, a.lease, a.routes))
}

// annotate writes the attachment's entry into the pod's annotation, unless a newer
// attachment has it by then.
func (s *Server) annotate(ctx context.Context, a attachment, e podnet.Entry) error {
	return s.cfg.Pods.AnnotatePod(ctx, a.Namespace, a.Pod, a.UID, podnet.Annotation, func(old string) (string, error) {
		if s.superseded(a) {
			return "", errSuperseded
		}
		networks, err := podnet.ParseNetworks(old)
		if err != nil {
			return "", err
		}
		networks, err = networks.With(a.NADKey, e)
		return networks.String(), err
	})
}

// withdraw takes the attachment's entry out of the pod's annotation. The
// controller then removes the logical port.
func (s *Server) withdraw(ctx context.Context, a attachment) error {
	err := s.cfg.Pods.AnnotatePod(ctx, a.Namespace, a.Pod, a.UID, podnet.Annotation, func(old string) (string, error) {
		if s.superseded(a) {
			return old, nil
		}
		networks, err := podnet.ParseNetworks(old)
		if err != nil {
			// Somebody broke the annotation: there is no entry to remove.
			return old, nil
		}
		if networks = networks.Without(a.NADKey); len(networks.Keys()) == 0 {
			return "", nil
		}
		return networks.String(), nil
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (s *Server) plug(ctx context.Context, a *adding) error {
	if a.Device != nil {
		return s.plugDevice(ctx, a)
	}
	if err := addVeth(a.netns, a.HostIfName, hostMAC(a.ContainerID, a.IfName), a.IfName, a.mac, a.conf.MTU); err != nil {
		return err
	}
	if err := errors.Join(a.setUpInPod(), setUp(&netlink.Handle{}, a.HostIfName)); err != nil {
		return err
	}
	userspace, err := s.vswitch.userspace(ctx)
	if err != nil || !userspace {
		return err
	}
	return computeChecksums(a.netns, a.IfName)
}

func (s *Server) unplug(_ context.Context, a attachment) error {
	if a.Device != nil {
		return s.unplugDevice(a)
	}
	return deleteVeth(a.HostIfName, hostMAC(a.ContainerID, a.IfName))
}

func (s *Server) join(ctx context.Context, a *adding) error {
	ids := map[string]string{
		"attached_mac":        a.MAC,
		idIface:               podnet.PortName(a.NADKey, a.Namespace, a.Pod),
		"iface-id-ver":        string(a.UID),
		idSandbox:             a.ContainerID,
		idIfName:              a.IfName,
		"k8s.ovn.org/network": a.Network,
		idNAD:                 a.NADKey,
	}
	if a.Device != nil {
		ids["vf-netdev-name"] = a.Device.Netdev
		if a.Device.Passed {
			ids["vf-netdev-name"], ids["vf-is-vfio"] = a.Device.PCI, "true"
		}
	}
	return s.vswitch.addPort(ctx, a.HostIfName, ids, a.limits)
}

func (s *Server) part(ctx context.Context, a attachment) error {
	_, err := s.vswitch.deletePorts(ctx, a.ContainerID, a.IfName)
	return err
}

// awaitOVN waits until the logical port is installed on this node. What the
// controller has to say about the pod is part of the error.
func (s *Server) awaitOVN(ctx context.Context, a *adding) error {
	started := time.Now()
	wait, cancel := context.WithTimeout(ctx, s.cfg.InstallTimeout)
	defer cancel()
	err := s.vswitch.awaitInstalled(wait, a.HostIfName)
	if err == nil || ctx.Err() != nil {
		return err
	}
	problems, problemsErr := s.cfg.Pods.PodProblems(ctx, a.Namespace, a.Pod, started)
	if len(problems) > 0 {
		return fmt.Errorf("%w; reported on the pod: %q", err, problems)
	}
	return errors.Join(err, problemsErr)
}

// versioned is a CNI result in the version that a configuration asks for.
func versioned(newest *types100.Result, version string) (json.RawMessage, error) {
	r, err := newest.GetAsVersion(version)
	if err != nil {
		return nil, fail(types.ErrIncompatibleCNIVersion, fmt.Errorf("CNI result in cniVersion %q: %w", version, err))
	}
	return json.Marshal(r)
}
