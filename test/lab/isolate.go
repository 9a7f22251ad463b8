// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A program that isolates itself exists three times: the process somebody
// started, which only passes on signals and the exit status; an init, which is
// pid 1 of the new pid namespace; and the program proper as its child.
const (
	stageEnv  = "OVN_DHCP_IPAM_LAB_STAGE"
	stageInit = "init"
	stageMain = "main"
)

// isolatedMark exists where Isolate has prepared the mount namespace.
const isolatedMark = "/run/ovn-dhcp-ipam-lab"

// tempDir is the temporary directory inside; it goes with the mount namespace.
const tempDir = "/run/tmp"

// lifelineFD is where init finds the read end of a pipe whose write end only
// the outer process holds.
const lifelineFD = 3

// Main is the body of a TestMain whose package has tests with a lab. It runs
// the tests isolated and exits. Where namespaces can't be made it says why and
// runs them nevertheless: only those that need a lab then fail.
func Main(m *testing.M) {
	if err := Isolate(); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
	}
	os.Exit(m.Run())
}

// Isolate runs the program again, with the same arguments and files, in pid,
// mount and network namespaces of its own. It returns nil in that second
// process; in the first it exits with the second one's status, or returns an
// error if namespaces can't be made. Call it before anything else.
//
// Inside, /run and the temporary directory (below /run) are empty and private,
// the network has nothing but a loopback device, and PATH includes the sbin
// folders. When
// the first process ends, in whatever way, all that is inside ends with it.
// SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to the program inside.
func Isolate() error {
	switch os.Getenv(stageEnv) {
	case stageMain:
		return os.Unsetenv(stageEnv)
	case stageInit:
		exit(runInit())
	}
	// The parent-death signal is sent when the thread ends that forked.
	runtime.LockOSThread()
	status, err := runOuter()
	if errors.Is(err, unix.EPERM) {
		return errors.New("network, mount and pid namespaces can't be made: root is needed")
	}
	exit(status, err)
	return nil
}

// exit ends the process as its child ended, or with a line on stderr for one
// that could not be run. os.Exit would write coverage data and, with the race
// detector, first wait for a second: both are for the program inside.
func exit(ws syscall.WaitStatus, err error) {
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "lab:", err)
		syscall.Exit(1)
	case ws.Signaled():
		syscall.Exit(128 + int(ws.Signal()))
	}
	syscall.Exit(ws.ExitStatus())
}

// again is a command that runs this program as the given stage.
func again(stage string) *exec.Cmd {
	return &exec.Cmd{
		Path:        "/proc/self/exe",
		Args:        os.Args,
		Env:         append(os.Environ(), stageEnv+"="+stage),
		Stdin:       os.Stdin,
		Stdout:      os.Stdout,
		Stderr:      os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{},
	}
}

// forward passes signals on to the process for as long as this one lives.
func forward(pid int) {
	c := make(chan os.Signal, 8)
	for _, s := range []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT} {
		if !signal.Ignored(s) { // as under nohup
			signal.Notify(c, s)
		}
	}
	go func() {
		for s := range c {
			unix.Kill(pid, s.(syscall.Signal))
		}
	}()
}

func runOuter() (syscall.WaitStatus, error) {
	// The pipe stays open for the life of this process. It covers the moment
	// between fork and the setting of the parent-death signal.
	lifeline, keep, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("make a pipe: %w", err)
	}
	defer keep.Close()
	cmd := again(stageInit)
	cmd.ExtraFiles = []*os.File{lifeline}
	cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET
	cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	// A terminal's signals reach the inside once, through this process.
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("run %s in new namespaces: %w", os.Args[0], err)
	}
	forward(cmd.Process.Pid)
	if err := cmd.Wait(); cmd.ProcessState == nil {
		return 0, fmt.Errorf("wait for %s: %w", os.Args[0], err)
	}
	return cmd.ProcessState.Sys().(syscall.WaitStatus), nil
}

// runInit is pid 1: it prepares the namespaces, starts the program, and reaps
// whatever is orphaned until the program ends. The kernel then ends the rest.
func runInit() (syscall.WaitStatus, error) {
	unix.CloseOnExec(lifelineFD)
	go func() {
		io.Copy(io.Discard, os.NewFile(lifelineFD, "lifeline"))
		os.Exit(1)
	}()
	if err := prepare(); err != nil {
		return 0, err
	}
	cmd := again(stageMain)
	cmd.Env = append(cmd.Env, "TMPDIR="+tempDir, "PATH="+os.Getenv("PATH")+":/usr/local/sbin:/usr/sbin:/sbin")
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("run %s: %w", os.Args[0], err)
	}
	forward(cmd.Process.Pid)
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for %s: %w", os.Args[0], err)
		case pid == cmd.Process.Pid:
			return ws, nil
		}
	}
}

// prepare makes the new namespaces a place to work in.
func prepare() error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV
	for _, m := range []struct {
		source, target, fstype string
		flags                  uintptr
		data                   string
	}{
		{"", "/", "", unix.MS_PRIVATE | unix.MS_REC, ""},
		{"proc", "/proc", "proc", flags | unix.MS_NOEXEC, ""},
		{"sysfs", "/sys", "sysfs", flags | unix.MS_NOEXEC, ""},
		{"tmpfs", "/run", "tmpfs", flags, "mode=755"},
	} {
		if err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	for _, dir := range append([]string{netnsDir, tempDir, isolatedMark}, nodeRunDirs...) {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	// Shared, so that a netns bound here later is seen in the nodes too.
	if err := unix.Mount(netnsDir, netnsDir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", netnsDir, err)
	}
	if err := unix.Mount("", netnsDir, "", unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share %s: %w", netnsDir, err)
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	return nil
}
