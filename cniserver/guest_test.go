// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ktypes "k8s.io/apimachinery/pkg/types"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// podList is a source of pods that has only a list.
type podList struct {
	Pods
	pods []*corev1.Pod
}

func (l podList) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	for _, p := range l.pods {
		if p.Namespace == namespace && p.Name == name {
			return p, nil
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

func (l podList) ListPods(_ context.Context, namespace string, having map[string]string) ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	for _, p := range l.pods {
		if (namespace == "" || p.Namespace == namespace) && labels.SelectorFromSet(having).Matches(labels.Set(p.Labels)) {
			pods = append(pods, p)
		}
	}
	return pods, nil
}

// launcher is a pod of virtual machine vm1, created an hour and so many minutes
// before noon.
func launcher(name string, minutes int, annotation string) *corev1.Pod {
	created := time.Date(2026, 8, 1, 11, 0, 0, 0, time.UTC).Add(-time.Duration(minutes) * time.Minute)
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: ktypes.UID(name), CreationTimestamp: metav1.NewTime(created),
		Labels:      map[string]string{"vm.kubevirt.io/name": "vm1"},
		Annotations: map[string]string{podnet.Annotation: annotation},
	}}
}

func completed(p *corev1.Pod) *corev1.Pod {
	p.Status.Phase = corev1.PodSucceeded
	return p
}

func TestGuestOf(t *testing.T) {
	const (
		entry1 = `{"ns/lan":{"mac_address":"02:00:00:00:00:01","ip_addresses":["10.1.0.5/24"],"ipam_mode":"dhcp"}}`
		entry2 = `{"ns/lan":{"mac_address":"02:00:00:00:00:02","ipam_mode":"dhcp"}}`
		other  = `{"ns/wan":{"mac_address":"02:00:00:00:00:03","ipam_mode":"dhcp"}}`
	)
	plain := launcher("pod", 0, "")
	plain.Labels = nil
	derived := podnet.DeriveVMMAC("cluster", "ns", "vm1", "ns/lan").String()
	for _, test := range []struct {
		name     string
		pod      *corev1.Pod
		request  string
		others   []*corev1.Pod
		mac      string
		migrates bool
	}{
		{name: "a plain pod", pod: plain, others: []*corev1.Pod{launcher("a", 5, entry1)}, mac: podnet.DeriveMAC("cluster", "ns", "pod", "ns/lan").String()},
		{name: "a VM alone", mac: derived},
		{name: "a VM that asks for an address", request: "02:00:00:00:00:09", others: []*corev1.Pod{completed(launcher("a", 5, entry1))}, mac: "02:00:00:00:00:09"},
		{name: "a VM started again", others: []*corev1.Pod{completed(launcher("a", 5, entry1))}, mac: "02:00:00:00:00:01"},
		{name: "a VM started again and again", others: []*corev1.Pod{completed(launcher("a", 9, entry1)), completed(launcher("b", 5, entry2))}, mac: "02:00:00:00:00:02"},
		{name: "a VM that migrates", others: []*corev1.Pod{launcher("a", 9, entry1), completed(launcher("b", 5, entry2))}, mac: "02:00:00:00:00:01", migrates: true},
		{name: "a VM that migrates from before it has an address", others: []*corev1.Pod{launcher("a", 9, entry2)}, mac: "02:00:00:00:00:02", migrates: true},
		{name: "a VM that migrates to one more network", others: []*corev1.Pod{launcher("a", 9, other)}, mac: derived},
		{name: "the source of a migration", others: []*corev1.Pod{launcher("z", -5, entry1)}, mac: "02:00:00:00:00:01"},
		{name: "an annotation that can't be read", others: []*corev1.Pod{completed(launcher("a", 5, "x")), completed(launcher("b", 9, entry1))}, mac: "02:00:00:00:00:01"},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := test.pod
			if pod == nil {
				pod = launcher("pod", 0, "")
			}
			s := &Server{cfg: Config{ClusterID: "cluster", Pods: podList{pods: append(test.others, pod)}}}
			g, err := s.guestOf(t.Context(), pod, "ns/lan")
			if err != nil {
				t.Fatal(err)
			}
			request := podnet.Request{NADKey: "ns/lan"}
			if test.request != "" {
				if request.MAC, err = net.ParseMAC(test.request); err != nil {
					t.Fatal(err)
				}
			}
			if got := s.macOf(pod, request, g).String(); got != test.mac || g.migrates != test.migrates {
				t.Errorf("MAC %s, migrates: %v; want %s, %v", got, g.migrates, test.mac, test.migrates)
			}
		})
	}
}

func TestHostName(t *testing.T) {
	long := strings.Repeat("x", 60)
	for _, test := range []struct{ vm, hostname, want string }{
		{want: "pod"},
		{hostname: "web", want: "web"},
		{vm: "vm1", hostname: "web", want: "vm1"},
		{vm: "VM1", want: "VM1"},
		{vm: "db.vm1", want: "db"},
		{vm: long + "-vm1", want: long + "-vm"},
		{vm: long + "---1", want: long},
		{vm: "my vm", want: ""},
		{vm: "ns_vm1", want: ""},
		{vm: ".vm1", want: ""},
	} {
		pod := launcher("pod", 0, "")
		pod.Spec.Hostname = test.hostname
		got := hostName(pod, test.vm)
		if got != test.want {
			t.Errorf("%q in a pod with host name %q: %q, want %q", test.vm, test.hostname, got, test.want)
		}
		if _, err := clientConfig(&adding{conf: &podnet.NetConf{}, mac: net.HardwareAddr{2, 0, 0, 0, 0, 1}, hostName: got}); err != nil {
			t.Error(err)
		}
	}
}

// TestPodsWithMAC asks for the pods among which one can have an attachment's address.
func TestPodsWithMAC(t *testing.T) {
	elsewhere := launcher("elsewhere", 0, "")
	elsewhere.Namespace = "other"
	s := &Server{cfg: Config{ClusterID: "cluster", Pods: podList{pods: []*corev1.Pod{launcher("pod", 0, ""), launcher("pod2", 0, ""), elsewhere}}}}
	pod := podnet.DeriveMAC("cluster", "ns", "pod", "ns/lan").String()
	vm := podnet.DeriveVMMAC("cluster", "ns", "vm1", "ns/lan").String()
	for _, test := range []struct {
		name    string
		vm, mac string
		want    int
	}{
		{"of the pod", "", pod, 1},
		{"of the virtual machine", "vm1", vm, 2},
		{"of another virtual machine", "vm2", vm, 3},
		{"asked for", "", "02:00:00:00:00:09", 3},
		{"asked for by a virtual machine", "vm1", "02:00:00:00:00:09", 3},
	} {
		pods, err := s.podsWithMAC(t.Context(), attachment{Namespace: "ns", Pod: "pod", NADKey: "ns/lan", VM: test.vm, MAC: test.mac})
		if err != nil || len(pods) != test.want {
			t.Errorf("%s: %d pods, want %d; error %v", test.name, len(pods), test.want, err)
		}
	}
}

func TestInherit(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	expires, server := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC), addr("10.1.0.2")
	a := &adding{mac: mac, guest: guest{source: "launcher", entry: podnet.Entry{
		MAC: mac, Addrs: []netip.Prefix{prefix("10.1.0.5/24")}, Gateways: []netip.Addr{addr("10.1.0.1")},
		DHCP: &podnet.DHCPStatus{State: podnet.StateOpen, Expires: &expires, Server: &server},
	}}}
	if err := inherit(a); err != nil {
		t.Fatal(err)
	}
	want := dhcp.Lease{Addr: prefix("10.1.0.5/24"), Gateway: addr("10.1.0.1"), Server: server, Expires: expires, HardwareAddr: mac}
	if diff := cmp.Diff(want, a.lease, plainAddrs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(a.guest.entry, guestEntry(mac, a.lease), plainAddrs, cmp.FilterPath(func(p cmp.Path) bool {
		return p.String() == "Role" || p.String() == "IPAMMode"
	}, cmp.Ignore())); diff != "" {
		t.Errorf("the entry is not that of the source (-source +target):\n%s", diff)
	}
	a.guest.entry = podnet.Entry{MAC: mac}
	var f *failure
	if err := inherit(a); !errors.As(err, &f) || f.code != types.ErrTryAgainLater {
		t.Errorf("a source without an address: got error %v", err)
	}
}
