// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
)

// ready ends what the demo's process has to say before it goes to the
// background.
const ready = "-- ready --"

// endTimeout is what the demo's process has to clean up.
const endTimeout = 30 * time.Second

// up starts the demo in the background, in the place of one that is up.
func up(f folder, bin string) error {
	if err := lab.Preflight(); err != nil {
		return err
	}
	if err := down(f); err != nil {
		return err
	}
	if err := os.MkdirAll(string(f), 0o755); err != nil {
		return err
	}
	log, err := os.Create(f.log())
	if err != nil {
		return err
	}
	defer log.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "serve", string(f), bin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := f.writePID(cmd.Process.Pid); err != nil {
		return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	if !relay(out) {
		// It ends by itself, and has said why.
		waitErr := cmd.Wait()
		reason, err := os.ReadFile(f.log())
		if err == nil && len(reason) > 0 {
			waitErr = errors.New(strings.TrimPrefix(strings.TrimSpace(string(reason)), "demo: "))
		}
		return errors.Join(waitErr, down(f))
	}
	return writeEnv(f, cmd.Process.Pid)
}

// relay prints what the demo's process says until it is ready, or ends.
func relay(out io.Reader) (isReady bool) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if lines.Text() == ready {
			return true
		}
		fmt.Println(lines.Text())
	}
	return false
}

// writeEnv writes the settings for a shell. The tools of OVN and OVS reach the
// lab by its sockets; what is in a namespace is reached by way of a process
// there, the child of the child of the demo's process.
func writeEnv(f folder, pid int) error {
	for range 2 {
		var err error
		if pid, err = onlyChild(pid); err != nil {
			return err
		}
	}
	run := f.run()
	env := fmt.Sprintf(`export PATH="$PATH:/usr/sbin:/sbin"
export OVN_NB_DB='unix:%[1]s/central/ovnnb_db.sock'
export OVN_SB_DB='unix:%[1]s/central/ovnsb_db.sock'
# "lab COMMAND" runs a command where the lab's processes and network namespaces
# are, "node NAME COMMAND" on a node, and "pod NAME COMMAND" in a pod.
lab() { nsenter --target %[2]d --mount --pid --net -- "$@"; }
node() { _node=$1; shift; lab nsenter --target "$(cat '%[1]s'/"$_node"/node.pid)" --mount --net -- "$@"; }
pod() {
	_pod=$(lab ip netns list | awk '{print $1}' | grep -e "-$1\$") || { echo "no pod $1 in the lab" >&2; return 1; }
	shift; lab ip netns exec "$_pod" "$@"
}
`, run, pid)
	if err := os.WriteFile(f.env(), []byte(env), 0o644); err != nil {
		return err
	}
	fmt.Printf(`
The lab stays up until "make demo-down". To look around:
  . %s
  ovn-nbctl show; ovn-sbctl show; node node1 ovs-vsctl show
  pod web ip addr; pod web ping -c 3 %s
  ls %s   # the pods and the network, as files
`, relative(f.env()), "10.1.192.1", relative(filepath.Join(run, "objects")))
	return nil
}

// relative is a path as one would type it here.
func relative(path string) string {
	dir, err := os.Getwd()
	if err != nil {
		return path
	}
	if r, err := filepath.Rel(dir, path); err == nil && len(r) < len(path) {
		return r
	}
	return path
}

// down ends the demo, if one is up, and removes its folder.
func down(f folder) error {
	pid, err := f.process()
	if err != nil {
		return err
	}
	if pid != 0 {
		if err := end(pid); err != nil {
			return err
		}
		fmt.Println("The demo's lab has ended.")
	}
	for _, path := range []string{f.run(), f.pid(), f.env(), f.log()} {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	if err := os.Remove(string(f)); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return err
	}
	return nil
}

// end ends a process by SIGTERM.
func end(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("end process %d: %w", pid, err)
	}
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(endTimeout.Milliseconds()))
	if err != nil || n == 0 {
		return fmt.Errorf("process %d does not end: %w", pid, cmp.Or(err, error(os.ErrDeadlineExceeded)))
	}
	return nil
}
