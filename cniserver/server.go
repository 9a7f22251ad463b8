// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Package cniserver turns a CNI call into plumbing, a lease and an annotation,
// and undoes all of it. It is the node daemon's side of the CNI shim's socket.
// It speaks to the node's own Open vSwitch database and to the API that has the
// pods, never to OVN's databases.
package cniserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	ktypes "k8s.io/apimachinery/pkg/types"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/cniserver/wire"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/internal/store"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/vfio"
)

// Limits of the calls.
const (
	maxRequest     = 4 << 20          // bytes of a request
	undoTimeout    = 15 * time.Second // to undo an ADD that failed
	delTimeout     = 30 * time.Second // for one DEL
	settleInterval = 30 * time.Second // between tries to undo what could not be undone
	stopTimeout    = 20 * time.Second // for calls under way when the server stops
)

// Pods is where the pods are: the Kubernetes API, or a directory of objects.
type Pods interface {
	// GetPod returns a pod as it is now; apierrors.IsNotFound holds for the
	// error of one that does not exist.
	GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	// AnnotatePod replaces one annotation's value by what change makes of it,
	// "" standing for an annotation that is not set, and loses no change that
	// somebody else makes meanwhile. It fails as GetPod does when the pod is
	// gone or has another UID.
	AnnotatePod(ctx context.Context, namespace, name string, uid ktypes.UID, annotation string, change func(old string) (string, error)) error
	// PodProblems returns what the controller has reported on a pod since then,
	// or what is wrong with it now.
	PodProblems(ctx context.Context, namespace, name string, since time.Time) ([]string, error)
	// ListPods returns the pods of a namespace, or with "" of the cluster, that have
	// all of these labels.
	ListPods(ctx context.Context, namespace string, having map[string]string) ([]*corev1.Pod, error)
	// Event tells, on the pod with this UID, of something that happened to it.
	Event(ctx context.Context, namespace, name string, uid ktypes.UID, eventType, reason, message string) error
}

// Config is what a Server needs. All fields but ExternalDHCP, Probe, Learn, Representors,
// Sysfs and Proc are required.
type Config struct {
	// Socket is the path of the unix socket to listen on. Its directory is
	// made if need be, for root only.
	Socket string
	// StateDir is where the records are.
	StateDir string
	// NodeName is the node's name in the API.
	NodeName string
	// ClusterID is the cluster's identity, from which MAC addresses derive.
	ClusterID string
	// PluginType is the "type" of the network configurations that are served.
	PluginType string
	// OVSDB is the endpoint of the node's Open_vSwitch database.
	OVSDB string
	// AddTimeout is the time that one ADD has, and InstallTimeout what OVN
	// has of it to install a new port.
	AddTimeout, InstallTimeout time.Duration
	// ExternalDHCP is the path of the CNI dhcp plugin that gets the leases, whose
	// daemon keeps them; empty for the server's own DHCP client.
	ExternalDHCP string
	// Probe has the address of a pod asked for by ARP before it is used, by the server's
	// own DHCP client: see dhcp.Config.
	Probe bool
	// Learn is from what the addresses of virtual machines are learned on networks whose
	// configuration doesn't say: one of podnet's Learn constants; empty for LearnAuto.
	Learn string
	// Representors name, by PCI address, the interfaces on the node that stand for
	// virtual functions whose NIC doesn't tell.
	Representors map[string]string
	// Sysfs and Proc are where the node's sysfs is mounted, and a procfs with all of its
	// processes; empty for /sys and /proc.
	Sysfs, Proc string
	Pods        Pods
	Log         *slog.Logger
}

func (c Config) check() error {
	for name, value := range map[string]string{
		"Socket": c.Socket, "StateDir": c.StateDir, "NodeName": c.NodeName, "ClusterID": c.ClusterID, "PluginType": c.PluginType, "OVSDB": c.OVSDB,
	} {
		if value == "" {
			return fmt.Errorf("CNI server: %s is not set", name)
		}
	}
	if c.Learn != "" && !podnet.ValidLearn(c.Learn) {
		return fmt.Errorf("CNI server: Learn: %q is not off, auto or all", c.Learn)
	}
	if c.InstallTimeout <= 0 || c.AddTimeout <= c.InstallTimeout {
		return fmt.Errorf("CNI server: AddTimeout %v must be more than InstallTimeout %v, and that more than 0", c.AddTimeout, c.InstallTimeout)
	}
	return nil
}

// Server answers the CNI shim's calls.
type Server struct {
	cfg       Config
	log       *slog.Logger
	stateLock *os.File
	records   *store.Store[attachment]
	keeper    *dhcp.Keeper
	security  *security
	devices   *vfio.Handoffs
	vswitch   *vswitch
	missing   []string // capabilities
	locks     locks
	opening   sync.Mutex // held while an attachment's record is made
}

// New reads the node's records. It makes StateDir and locks it until Run ends.
func New(cfg Config) (*Server, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	vs, err := newVswitch(cfg.OVSDB, cfg.Log)
	if err != nil {
		return nil, err
	}
	missing, err := missingCapabilities()
	if err != nil {
		return nil, err
	}
	lock, err := store.Lock(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, log: cfg.Log, stateLock: lock, vswitch: vs, missing: missing, locks: locks{held: map[string]*holder{}}}
	if err := s.openState(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return s, nil
}

// openState reads the records of attachments, leases and hand-offs.
func (s *Server) openState() (err error) {
	cfg := s.cfg
	if s.security, err = newSecurity(cfg.Log, s.followGuest); err != nil {
		return err
	}
	if s.records, err = store.Open[attachment](filepath.Join(cfg.StateDir, "attachments"), cfg.Log); err != nil {
		return err
	}
	if s.devices, err = vfio.New(vfio.Config{Sysfs: cfg.Sysfs, Proc: cfg.Proc, Dir: filepath.Join(cfg.StateDir, "handoffs"), Log: cfg.Log}); err != nil {
		return err
	}
	s.keeper, err = dhcp.NewKeeper(dhcp.KeeperConfig{
		Dir:         filepath.Join(cfg.StateDir, "leases"),
		OnChange:    s.leaseChanged,
		OnLost:      s.leaseLost,
		OnGone:      s.interfaceGone,
		Releasable:  s.releasable,
		SendRelease: s.releaseByBridge,
		Log:         cfg.Log,
	})
	return err
}

// Run serves until ctx ends, then gives the calls that are under way some time
// to finish, and after that ends and undoes them. It returns when everything
// that it started has ended.
func (s *Server) Run(ctx context.Context) error {
	defer s.stateLock.Close()
	if err := s.devices.Recover(ctx); err != nil {
		// The next hand-off of a device tries again; other pods need none.
		s.log.Error("a hand-off that was cut off can't be undone yet", "err", err)
	}
	s.watchAgain()
	listener, err := listen(s.cfg.Socket)
	if err != nil {
		return err
	}
	// The vswitch session outlives the calls, and the calls outlive ctx.
	sessions, endSessions := context.WithCancel(context.WithoutCancel(ctx))
	defer endSessions()
	calls, endCalls := context.WithCancel(sessions)
	defer endCalls()
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return calls },
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := s.vswitch.run(sessions); sessions.Err() == nil {
			return err
		}
		return nil
	})
	g.Go(func() error {
		if err := s.keeper.Run(sessions); sessions.Err() == nil {
			return err
		}
		return nil
	})
	g.Go(func() error { return s.security.watcher.Run(sessions) })
	g.Go(func() error {
		if err := s.security.run(sessions); sessions.Err() == nil {
			return err
		}
		return nil
	})
	g.Go(func() error { return s.settle(ctx) })
	g.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		defer endSessions()
		<-ctx.Done()
		hurry := time.AfterFunc(stopTimeout, endCalls)
		defer hurry.Stop()
		stop, cancel := context.WithTimeout(sessions, stopTimeout+undoTimeout+time.Second)
		defer cancel()
		return errors.Join(ctx.Err(), server.Shutdown(stop))
	})
	s.log.Info("serving CNI calls", "socket", s.cfg.Socket, "node", s.cfg.NodeName, "attachments", len(s.records.All()))
	return g.Wait()
}

// listen makes the socket, in the place of one that nobody listens on any more.
func listen(path string) (net.Listener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("CNI socket directory: %w", err)
	}
	// Who can write there could put another socket in its place.
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("CNI socket directory: %w", err)
	}
	if mode := info.Mode(); mode.Perm()&0o022 != 0 {
		return nil, fmt.Errorf("CNI socket directory %s: others than root can write there (mode %v)", dir, mode)
	}
	if conn, err := net.Dial("unix", path); err == nil {
		return nil, errors.Join(fmt.Errorf("CNI socket %s: another daemon listens there", path), conn.Close())
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("stale CNI socket: %w", err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("CNI socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("CNI socket: %w", err), listener.Close())
	}
	return listener, nil
}

// ServeHTTP answers one call.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	result, err := s.answer(w, r)
	if err == nil {
		err = wire.WriteResult(w, result)
	} else {
		err = wire.WriteError(w, cniError(err))
	}
	if err != nil {
		s.log.Warn("the answer to a CNI call did not get through", "err", err)
	}
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) (json.RawMessage, error) {
	if r.Method == http.MethodPost && r.URL.Path == "/metrics" {
		return nil, nil // OVN-Kubernetes' shim tells how long its calls took
	}
	if r.Method != http.MethodPost || r.URL.Path != "/" {
		return nil, fail(types.ErrDecodingFailure, fmt.Errorf("%s %s is not a CNI call: want POST /", r.Method, r.URL.Path))
	}
	var request wire.Request
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&request); err != nil {
		return nil, fail(types.ErrDecodingFailure, fmt.Errorf("CNI call: %w", err))
	}
	c, err := parseCall(request)
	if err != nil {
		return nil, err
	}
	log := s.log.With("command", c.command, "sandbox", c.containerID, "ifname", c.ifname, "pod", c.args["K8S_POD_NAMESPACE"]+"/"+c.args["K8S_POD_NAME"])
	started := time.Now()
	result, err := s.serve(r.Context(), c)
	log.Info("CNI call", "took", time.Since(started).Round(time.Millisecond), "err", err)
	return result, err
}

func (s *Server) serve(ctx context.Context, c call) (json.RawMessage, error) {
	switch c.command {
	case "ADD":
		return s.add(ctx, c)
	case "DEL":
		return nil, s.del(ctx, c)
	case "CHECK":
		return nil, s.check(ctx, c)
	case "GC":
		return nil, s.collect(ctx, c)
	case "STATUS":
		return nil, s.status(ctx, c)
	default:
		return nil, fail(types.ErrInvalidEnvironmentVariables, fmt.Errorf("CNI_COMMAND %q is not served", c.command))
	}
}
