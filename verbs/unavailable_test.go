package verbs_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/verbs"
)

// child does what a test started this binary for.
func child(job string) int {
	switch job {
	case "devices": // says what it finds
		list, err := verbs.Devices()
		fmt.Println(len(list), errors.Is(err, verbs.ErrUnavailable), err)
		_, err = verbs.Open("mlx5_0")
		fmt.Println(errors.Is(err, verbs.ErrUnavailable), errors.Is(err, verbs.ErrNoDevice), err)
		lib, err := verbs.Load()
		fmt.Println(lib.Path, err)
		fmt.Println(verbs.Live())
		return 0
	}
	return childOnDevice(job)
}

// start makes a command that runs this binary with a job.
func start(job string, env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append([]string{"TUTTI_VERBS_CHILD=" + job}, env...)...)
	cmd.Stderr = os.Stderr
	return cmd
}

func lines(t *testing.T, cmd *exec.Cmd) []string {
	t.Helper()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// Without the library, or with one that is another, there is one clear error
// and the program runs on.
func TestNoLibrary(t *testing.T) {
	libraries := map[string]string{"/nonexistent/libibverbs.so.1": "cannot open shared object file"}
	if runtime.GOOS == "linux" {
		libraries["libc.so.6"] = "no symbol ibv_"
		text := t.TempDir() + "/libibverbs.so.1"
		if err := os.WriteFile(text, []byte("not a library"), 0o600); err != nil {
			t.Fatal(err)
		}
		libraries[text] = "too short"
	}
	for library, says := range libraries {
		l := lines(t, start("devices", verbs.LibraryVariable+"="+library))
		if !compiled {
			says = "CGO_ENABLED=1"
			if runtime.GOOS != "linux" {
				says = runtime.GOOS
			}
		} else if !strings.Contains(l[0], library) || !strings.Contains(l[0], "ibverbs-providers") {
			t.Errorf("%s: the error does not name the library and what to install: %s", library, l[0])
		}
		if !strings.HasPrefix(l[0], "0 true ") || !strings.Contains(l[0], says) {
			t.Errorf("%s: Devices: %s", library, l[0])
		}
		if !strings.HasPrefix(l[1], "true false ") {
			t.Errorf("%s: Open: %s", library, l[1])
		}
		if l[3] != "nothing" {
			t.Errorf("%s: left %s", library, l[3])
		}
	}
}

// The system's library on a machine without RDMA devices: none, and no error.
func TestNoDevices(t *testing.T) {
	if list, _ := verbs.Inventory(nil); len(list) > 0 {
		t.Skipf("this machine has RDMA devices, %s and %d more", list[0].Name, len(list)-1)
	}
	l := lines(t, start("devices", verbs.LibraryVariable+"=libibverbs.so.1"))
	if strings.HasPrefix(l[0], "0 true ") {
		t.Skipf("libibverbs is not installed here: %s", l[0])
	}
	if l[0] != "0 false <nil>" || !strings.HasPrefix(l[1], "false true ") || !strings.Contains(l[1], "mlx5_0") || l[2] != "libibverbs.so.1 <nil>" || l[3] != "nothing" {
		t.Errorf("%q", l)
	}
}
