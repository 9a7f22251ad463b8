//go:build lab

// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/kube"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/site"
)

// kubeWorld is a world with its objects in the Kubernetes API.
type kubeWorld struct {
	*world
	api *kube.ControlPlane
}

func newKubeWorld(t *testing.T, o site.Options) kubeWorld {
	t.Helper()
	o.Kube = kube.New(t, kube.Options{})
	return kubeWorld{newWorld(t, o), o.Kube}
}

// TestMultus has real multus read the NADs from the API and call the plugin:
// one pod with two networks, one of them twice.
func TestMultus(t *testing.T) {
	w := newKubeWorld(t, site.Options{})
	before := w.snapshot(0)
	second := w.LAN()
	second.Name = "second"
	second.Config["name"] = "second"
	w.must(w.PutNetwork(second))
	multus, err := w.multus()
	w.must(err)
	pod := w.Pod("default", "web", 0, "")
	pod.Annotations = map[string]string{podnet.SelectionAnnotation: "lan, second, lan"}
	w.must(w.PutPod(pod))
	name := w.netns("web")
	sandbox := kube.Sandbox{Pod: pod, ContainerID: name, Netns: w.Lab.NetnsPath(name)}
	if _, err := multus.Add(t.Context(), sandbox); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{} // addresses by interface
	for ifname, key := range map[string]string{"net1": "default/lan", "net2": "default/second", "net3": "default/lan/1"} {
		e, ok := w.entry(pod, key)
		if !ok || len(e.Addrs) != 1 {
			t.Fatalf("annotation entry of %s: %+v, %v", key, e, ok)
		}
		want[ifname] = e.Addrs[0].Addr().String()
		if l := w.lease(e.MAC.String()); l == nil || l.Addr.String() != want[ifname] {
			t.Errorf("lease of %s: %+v, want %s", key, l, want[ifname])
		}
		w.in(name, "ping", "-c1", "-W2", "-I", ifname, w.Lab.Phys.Gateway.String())
	}
	now, err := w.GetPod("default", "web")
	w.must(err)
	var status []struct {
		Interface string
		IPs       []string
	}
	w.must(json.Unmarshal([]byte(now.Annotations["k8s.v1.cni.cncf.io/network-status"]), &status))
	for _, s := range status {
		if addr := want[s.Interface]; addr != "" && (len(s.IPs) != 1 || s.IPs[0] != addr) {
			t.Errorf("network-status of %s: %v, want %s", s.Interface, s.IPs, addr)
		}
		delete(want, s.Interface)
	}
	if len(want) > 0 {
		t.Errorf("not in network-status: %v", want)
	}
	w.must(multus.Del(t.Context(), sandbox))
	w.must(w.Delete("pod", "default", "web"))
	delete(before, "links")    // the default network's bridge stays
	delete(before, "NB ports") // the second network's localnet port came
	w.nothingLeft(0, before)
}

// multus installs multus on the first node; the plugin is found beside it.
func (w kubeWorld) multus() (*kube.Multus, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	kubeconfig, err := w.api.Kubeconfig("multus", "system:masters")
	if err != nil {
		return nil, err
	}
	return w.api.NewMultus(w.Lab.Nodes[0], kubeconfig, bin)
}

// TestPodReplacedDuringAdd makes a pod anew under its name while an ADD for the
// old one waits for the DHCP server. The old ADD writes nothing on the new pod.
func TestPodReplacedDuringAdd(t *testing.T) {
	w := newKubeWorld(t, site.Options{NodeArgs: []string{"--add-timeout", "30s"}})
	w.must(w.Lab.DHCP.Stop())
	before := w.snapshot(0)
	pod, netns := w.newPod("web", 0)
	result := make(chan error, 1)
	go func() {
		_, err := w.CNI(t.Context(), 0, w.Attach("ADD", pod, w.lan, netns))
		result <- err
	}()
	w.eventually(10*time.Second, func() string {
		if w.vsctl(0, "--bare", "--columns=name", "find", "Interface", "external_ids:sandbox="+netns, "external_ids:ovn-installed=true") == "" {
			return "the ADD has not come to its lease"
		}
		return ""
	})
	w.must(w.Delete("pod", "default", "web"))
	successor := w.Pod("default", "web", 0, "")
	w.must(w.PutPod(successor))
	w.must(w.Lab.DHCP.Start(t.Context()))
	if err := <-result; err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("the ADD of the old pod ended with %v", err)
	}
	now, err := w.GetPod("default", "web")
	w.must(err)
	if now.UID != successor.UID || len(now.Annotations) != 0 {
		t.Errorf("the new pod has annotations %v", now.Annotations)
	}
	w.noLease(pod)
	w.nothingLeft(0, before)
	w.cni(0, w.Attach("ADD", successor, w.lan, w.netns("successor")))
}

// TestAnnotationOfOthers has somebody else write the same annotation all the
// time: no change of either is lost.
func TestAnnotationOfOthers(t *testing.T) {
	w := newKubeWorld(t, site.Options{})
	pod := w.Pod("default", "web", 0, "")
	const attachments = 5
	pod.Annotations = map[string]string{podnet.SelectionAnnotation: strings.TrimSuffix(strings.Repeat("lan,", attachments), ",")}
	w.must(w.PutPod(pod))
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	written := 0
	wg.Go(func() {
		for ctx.Err() == nil {
			if err := w.writeOther(written + 1); apierrors.IsConflict(err) {
				continue
			} else if err != nil {
				t.Errorf("the other writer: %v", err)
				return
			}
			written++
		}
	})
	netns := w.netns("web")
	for i := range attachments {
		call := w.Attach("ADD", pod, w.lan, netns)
		call.IfName = fmt.Sprintf("net%d", i+1)
		w.cni(0, call)
	}
	stop()
	wg.Wait()
	now, err := w.GetPod("default", "web")
	w.must(err)
	networks, err := podnet.ParseNetworks(now.Annotations[podnet.Annotation])
	w.must(err)
	if keys := networks.Keys(); len(keys) != attachments+1 {
		t.Errorf("entries %v", keys)
	}
	var other map[string]struct {
		Count string `json:"count"`
	}
	w.must(json.Unmarshal([]byte(now.Annotations[podnet.Annotation]), &other))
	if got := other["default"].Count; written < 5 || got != strconv.Itoa(written) {
		t.Errorf("the other writer counted to %d, the annotation says %q", written, got)
	}
}

// writeOther writes the entry of the cluster's own network, as its owner does.
func (w kubeWorld) writeOther(count int) error {
	pods := w.api.Client.CoreV1().Pods("default")
	pod, err := pods.Get(w.t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	var entries map[string]json.RawMessage
	if value := pod.Annotations[podnet.Annotation]; value != "" {
		if err := json.Unmarshal([]byte(value), &entries); err != nil {
			return err
		}
	}
	if entries == nil {
		entries = map[string]json.RawMessage{}
	}
	entries["default"] = json.RawMessage(fmt.Sprintf(`{"count":"%d"}`, count))
	value, err := json.Marshal(entries)
	if err != nil {
		return err
	}
	pod.Annotations[podnet.Annotation] = string(value)
	_, err = pods.Update(context.WithoutCancel(w.t.Context()), pod, metav1.UpdateOptions{})
	return err
}

// TestEvents has problems become Events on the objects that have them.
func TestEvents(t *testing.T) {
	w := newKubeWorld(t, site.Options{NodeArgs: []string{"--install-timeout", "3s"}})
	collision := w.LAN()
	collision.Name, collision.Config["name"] = "other", "LAN"
	collision.Config["vlanID"] = 5000
	w.must(w.PutNetwork(collision))
	first, netns := w.newPod("first", 0)
	mac := w.cni(0, w.Attach("ADD", first, w.lan, netns)).Interfaces[1].Mac
	second := w.Pod("default", "second", 0, "")
	second.Annotations = map[string]string{podnet.SelectionAnnotation: fmt.Sprintf(`[{"name":"lan","mac":%q}]`, mac)}
	w.must(w.PutPod(second))
	w.refused(0, w.Attach("ADD", second, w.lan, w.netns("second")), 11, "MACAddressInUse", mac, "default/first")
	w.event("Pod", "second", "MACAddressInUse", mac)
	w.event("NetworkAttachmentDefinition", "other", "InvalidNetworkConfig", "vlanID")
}

// event awaits an Event on an object.
func (w kubeWorld) event(kind, name, reason, text string) {
	w.t.Helper()
	w.eventually(10*time.Second, func() string {
		events, err := w.api.Client.CoreV1().Events("default").List(w.t.Context(), metav1.ListOptions{})
		w.must(err)
		for _, e := range events.Items {
			if e.InvolvedObject.Kind == kind && e.InvolvedObject.Name == name && e.Reason == reason && e.Type == corev1.EventTypeWarning && strings.Contains(e.Message, text) {
				return ""
			}
		}
		return fmt.Sprintf("no event %s on %s %s", reason, kind, name)
	})
}

// TestAPIServerRestarts has the API away for a while; both daemons go on.
func TestAPIServerRestarts(t *testing.T) {
	w := newKubeWorld(t, site.Options{})
	first, netns := w.newPod("first", 0)
	call := w.Attach("ADD", first, w.lan, netns)
	w.cni(0, call)
	w.must(w.api.StopAPIServer())
	w.in(netns, "ping", "-c1", "-W2", w.Lab.Phys.Gateway.String())
	call.Command = "DEL"
	w.refused(0, call, 999, "default/first", "announce MAC")
	w.must(w.api.StartAPIServer(t.Context()))
	w.cni(0, call)
	w.noLease(first)
	second, netns := w.newPod("second", 0)
	w.cni(0, w.Attach("ADD", second, w.lan, netns))
	w.in(netns, "ping", "-c1", "-W2", w.Lab.Phys.Gateway.String())
}
