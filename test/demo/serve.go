// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/site"
)

// startTimeout is what the lab and the two pods have to come up.
const startTimeout = 2 * time.Minute

// serve is the demo's process: it runs the site until it is told to end.
func serve(f folder, bin string) (err error) {
	if err := lab.Isolate(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	fmt.Println("Starting OVN, two nodes and a DHCP server ...")
	s, err := site.Start(starting, site.Options{Lab: lab.Options{Nodes: 2, Dir: f.run()}, Bin: bin})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	fmt.Println("Attaching the pods web and db to the network default/lan ...")
	if err := show(starting, s); err != nil {
		return err
	}
	fmt.Println(ready)
	<-ctx.Done()
	return nil
}

// attached is a pod of the demo.
type attached struct {
	name, netns string
	result      *types100.Result
}

func (a attached) addr() string { return a.result.IPs[0].Address.IP.String() }
func (a attached) mac() string  { return a.result.Interfaces[1].Mac }
func (a attached) port() string { return "default.lan_default_" + a.name }

func show(ctx context.Context, s *site.Site) error {
	lan := s.LAN()
	if err := s.PutNetwork(lan); err != nil {
		return err
	}
	var pods []attached
	for i, name := range []string{"web", "db"} {
		pod := s.Pod("default", name, i, "demo-"+name)
		if err := s.PutPod(pod); err != nil {
			return err
		}
		if _, err := s.Lab.AddNetns(name); err != nil {
			return err
		}
		result, err := s.CNI(ctx, i, s.Attach("ADD", pod, lan, name))
		if err != nil {
			return fmt.Errorf("CNI ADD of pod %s: %w", name, err)
		}
		pods = append(pods, attached{name, name, result})
	}
	return table(ctx, s, pods)
}

// table prints what is known of the pods in the places where it is known.
func table(ctx context.Context, s *site.Site, pods []attached) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	row := func(title string, cell func(i int, a attached) (string, error)) error {
		line := title
		for i, a := range pods {
			text, err := cell(i, a)
			if err != nil {
				return fmt.Errorf("%s of pod %s: %w", title, a.name, err)
			}
			line += "\t" + text
		}
		_, err := fmt.Fprintln(w, line)
		return err
	}
	other := func(i int) attached { return pods[(i+1)%len(pods)] }
	return errors.Join(
		row("\nPOD", func(_ int, a attached) (string, error) { return a.name, nil }),
		row("node", func(i int, _ attached) (string, error) { return s.Lab.Nodes[i].Name, nil }),
		row("MAC", func(_ int, a attached) (string, error) { return a.mac(), nil }),
		row("address", func(_ int, a attached) (string, error) { return a.result.IPs[0].Address.String(), nil }),
		row("lease until", func(_ int, a attached) (string, error) { return leaseUntil(s, a) }),
		row("LSP addresses", func(_ int, a attached) (string, error) { return pinned(ctx, s, a, "addresses") }),
		row("LSP port security", func(_ int, a attached) (string, error) { return pinned(ctx, s, a, "port_security") }),
		row("ping gateway", func(_ int, a attached) (string, error) { return ping(ctx, s, a, s.Lab.Phys.Gateway.String()) }),
		row("ping other pod", func(i int, a attached) (string, error) { return ping(ctx, s, a, other(i).addr()) }),
		w.Flush(),
	)
}

// leaseUntil reads the DHCP server's own lease file.
func leaseUntil(s *site.Site, a attached) (string, error) {
	leases, err := s.Lab.DHCP.Leases()
	if err != nil {
		return "", err
	}
	for _, l := range leases {
		if l.MAC.String() == a.mac() && l.Addr.String() == a.addr() {
			return l.Expiry.Local().Format(time.DateTime), nil
		}
	}
	return "", fmt.Errorf("the DHCP server has no lease of %s for %s", a.addr(), a.mac())
}

// pinned awaits that a column of the pod's logical port has its address.
func pinned(ctx context.Context, s *site.Site, a attached, column string) (string, error) {
	for {
		got, err := s.Lab.Nbctl(ctx, "--bare", "--columns="+column, "list", "Logical_Switch_Port", a.port())
		if err != nil {
			return "", err
		}
		if got = strings.TrimSpace(got); got == a.mac()+" "+a.addr() {
			return got, nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("still %q", got)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func ping(ctx context.Context, s *site.Site, a attached, target string) (string, error) {
	out, err := s.Lab.InNetns(ctx, a.netns, "ping", "-c", "1", "-W", "5", target).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ping %s: %w: %s", target, err, out)
	}
	for line := range strings.Lines(string(out)) {
		if _, t, ok := strings.Cut(line, "time="); ok {
			return target + " " + strings.TrimSpace(t), nil
		}
	}
	return target, nil
}
