package bootstrap

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// variables is an environment from "A=1 B=2".
func variables(s string) environ {
	m := map[string]string{}
	for _, f := range strings.Fields(s) {
		name, value, _ := strings.Cut(f, "=")
		m[name] = value
	}
	return func(name string) string { return m[name] }
}

func TestLaunchers(t *testing.T) {
	const (
		torch = "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=node0 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=run7 TORCHELASTIC_RESTART_COUNT=0 "
		// As Open MPI 4.1.4, 5.0, MPICH 4.0.2 and Slurm 22 set them.
		ompi4  = "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=179372033 PMIX_RANK=3 OMPI_MCA_orte_hnp_uri=179372032.0;tcp://192.0.2.2,172.17.0.1:55037;tcp6://[fd00::2]:33509 "
		ompi5  = "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=prterun-h-77@1 PMIX_SERVER_URI41=prterun-h-77@0.0;tcp4://10.20.160.172:57983 "
		hydra2 = "PMI_RANK=1 PMI_SIZE=2 PMI_FD=8 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1 "
		slurm  = "SLURM_PROCID=2 SLURM_LOCALID=0 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=2 SLURM_STEP_ID=1 SLURM_JOB_ID=4711 SLURM_STEP_NODELIST=gpu[07-08] SLURM_JOB_NODELIST=gpu[05-08] "
		batch  = "SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=4 SLURM_JOB_ID=4711 SLURM_JOB_NODELIST=gpu[05-08] "
		kube   = "JOB_COMPLETION_INDEX=2 TUTTI_SIZE=3 TUTTI_SERVICE=train HOSTNAME=net-2 "
	)
	port := func(job string) string { return ":" + strconv.Itoa(jobPort(job)) }
	for _, tt := range []struct {
		name, env string
		want      Options
	}{
		{"Tutti", "TUTTI_RANK=1 TUTTI_SIZE=2 TUTTI_LOCAL_RANK=0 TUTTI_BOOTSTRAP=tcp://h:5", Options{Rank: 1, Size: 2, LocalRank: 0, Root: "h:5"}},
		{"Tutti without local rank", "TUTTI_RANK=1 TUTTI_SIZE=2 TUTTI_BOOTSTRAP=tcp://h:5", Options{Rank: 1, Size: 2, LocalRank: -1, Root: "h:5"}},
		{"Tutti without port", "TUTTI_RANK=1 TUTTI_SIZE=2 TUTTI_BOOTSTRAP=tcp://h", Options{Rank: 1, Size: 2, LocalRank: -1, Root: "h:17171"}},
		{"Tutti with the port elsewhere", "TUTTI_RANK=1 TUTTI_SIZE=2 TUTTI_BOOTSTRAP=tcp://[::1] TUTTI_PORT=99", Options{Rank: 1, Size: 2, LocalRank: -1, Root: "[::1]:99"}},
		{"Tutti, IPv6", "TUTTI_RANK=1 TUTTI_SIZE=2 TUTTI_BOOTSTRAP=tcp://[fd00::1]:7", Options{Rank: 1, Size: 2, LocalRank: -1, Root: "[fd00::1]:7"}},
		{"Tutti, alone", "TUTTI_RANK=0 TUTTI_SIZE=1", Options{Rank: 0, Size: 1, LocalRank: -1}},
		{"Tutti within torchrun", torch + "TUTTI_RANK=1 TUTTI_SIZE=2 TUTTI_BOOTSTRAP=tcp://h:5", Options{Rank: 1, Size: 2, LocalRank: -1, Root: "h:5"}},
		{"torchrun: one above its store", torch, Options{Rank: 5, Size: 8, LocalRank: 1, Root: "node0:29501", Job: "torchrun run7"}},
		{"torchrun: another port", torch + "TUTTI_PORT=4000", Options{Rank: 5, Size: 8, LocalRank: 1, Root: "node0:4000", Job: "torchrun run7"}},
		{"torchrun: another place", torch + "TUTTI_BOOTSTRAP=tcp://other:1", Options{Rank: 5, Size: 8, LocalRank: 1, Root: "other:1", Job: "torchrun run7"}},
		{"torchrun before Slurm", torch + slurm, Options{Rank: 5, Size: 8, LocalRank: 1, Root: "node0:29501", Job: "torchrun run7"}},
		{"by hand, as for torchrun", "RANK=0 WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=1234", Options{Rank: 0, Size: 2, LocalRank: -1, Root: "10.0.0.1:1235"}},
		{"torchrun, IPv6", "RANK=0 WORLD_SIZE=2 MASTER_ADDR=fd00::1 MASTER_PORT=1234", Options{Rank: 0, Size: 2, LocalRank: -1, Root: "[fd00::1]:1235"}},
		{"Open MPI 4", ompi4, Options{Rank: 3, Size: 4, LocalRank: 1, Root: "192.0.2.2" + port("179372033"), Job: "Open MPI 179372033"}},
		{"Open MPI 5, told where", ompi5 + "TUTTI_BOOTSTRAP=tcp://h:5", Options{Rank: 3, Size: 4, LocalRank: 1, Root: "h:5", Job: "Open MPI prterun-h-77@1"}},
		{"Open MPI 5 within Slurm", batch + ompi5, Options{Rank: 3, Size: 4, LocalRank: 1, Root: "gpu05" + port("prterun-h-77@1"), Job: "Open MPI prterun-h-77@1"}},
		{"Hydra, told where", hydra2 + "TUTTI_BOOTSTRAP=tcp://h:5", Options{Rank: 1, Size: 2, LocalRank: 0, Root: "h:5"}},
		{"Hydra within Slurm", hydra2 + slurm, Options{Rank: 1, Size: 2, LocalRank: 0, Root: "gpu07" + port("4711"), Job: "Hydra 4711"}},
		{"Slurm", slurm, Options{Rank: 2, Size: 4, LocalRank: 0, Root: "gpu07" + port("4711.1"), Job: "Slurm 4711.1"}},
		{"Slurm with PMI", slurm + "PMI_RANK=2 PMI_SIZE=4 PMI_FD=3", Options{Rank: 2, Size: 4, LocalRank: 0, Root: "gpu07" + port("4711.1"), Job: "Slurm 4711.1"}},
		{"PMI alone", "PMI_RANK=0 PMI_SIZE=2 TUTTI_BOOTSTRAP=tcp://h:5", Options{Rank: 0, Size: 2, LocalRank: -1, Root: "h:5"}},
		{"Kubernetes", kube, Options{Rank: 2, Size: 3, LocalRank: 0, Root: "net-0.train:17171", Job: "Kubernetes net"}},
		{"Kubernetes, full name", kube + "HOSTNAME=net-2.train.ns.svc TUTTI_PORT=8", Options{Rank: 2, Size: 3, LocalRank: 0, Root: "net-0.train:8", Job: "Kubernetes net"}},
		{"Kubernetes, told where", "JOB_COMPLETION_INDEX=2 TUTTI_SIZE=3 TUTTI_BOOTSTRAP=tcp://net-0.train", Options{Rank: 2, Size: 3, LocalRank: 0, Root: "net-0.train:17171"}},
		{"what all have", "TUTTI_RANK=0 TUTTI_SIZE=2 TUTTI_BOOTSTRAP=tcp://h:5 TUTTI_OPEN=1 TUTTI_SOCKET_IFNAME=^docker TUTTI_LISTEN=:5 TUTTI_JOIN_TIMEOUT=90s TUTTI_SECRET=0123456789abcdef",
			Options{Size: 2, LocalRank: -1, Root: "h:5", AllowOpen: true, Interface: "^docker", Listen: ":5", Timeout: 90 * time.Second, Secret: Secret("0123456789abcdef")}},
	} {
		s, err := readEnv(variables(tt.env))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		} else if !reflect.DeepEqual(s.Options, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, s.Options, tt.want)
		}
	}
	for _, env := range []string{"", batch, "JOB_COMPLETION_INDEX=3", "RANK=3", "SLURM_STEP_ID=4294967290 " + batch, "SLURM_STEP_ID=4294967291 " + batch} {
		if _, err := readEnv(variables(env)); !errors.Is(err, ErrNoEnvironment) {
			t.Errorf("%q: %v, want no environment", env, err)
		}
	}
	for _, tt := range []struct{ env, bad, says string }{
		{"TUTTI_RANK=0 TUTTI_SIZE=2", EnvBootstrap, "tcp://host:port"},
		{"TUTTI_RANK=0 TUTTI_SIZE=2 TUTTI_BOOTSTRAP=udp://h:5", EnvBootstrap, "tcp://host:port"},
		{"TUTTI_RANK=0 TUTTI_SIZE=2 TUTTI_BOOTSTRAP=tcp://h:99999", EnvBootstrap, "port"},
		{"TUTTI_RANK=0 TUTTI_SIZE=2 TUTTI_BOOTSTRAP=tcp://:5", EnvBootstrap, "host"},
		{"TUTTI_RANK=x TUTTI_SIZE=2 TUTTI_BOOTSTRAP=tcp://h:5", EnvRank, "0 to 1"},
		{"TUTTI_RANK=0 TUTTI_SIZE=2 TUTTI_LOCAL_RANK=2 TUTTI_BOOTSTRAP=tcp://h:5", EnvLocalRank, "0 to 1"},
		{"TUTTI_RANK=0 TUTTI_SIZE=2 TUTTI_BOOTSTRAP=tcp://h TUTTI_PORT=0", EnvPort, "65535"},
		{"RANK=8 WORLD_SIZE=8", "RANK", "0 to 7"},
		{"RANK=0 WORLD_SIZE=no", "WORLD_SIZE", "number"},
		{"RANK=0 WORLD_SIZE=8", EnvBootstrap, "torchrun"},
		{"RANK=0 WORLD_SIZE=8 MASTER_ADDR=h", "MASTER_PORT", EnvPort},
		{"RANK=0 WORLD_SIZE=8 MASTER_ADDR=h MASTER_PORT=65535", "MASTER_PORT", "65534"},
		{ompi5, EnvBootstrap, "Open MPI"},
		{hydra2, EnvBootstrap, "Hydra"},
		{"PMI_RANK=0 PMI_SIZE=2", EnvBootstrap, "PMI"},
		{strings.Replace(slurm, "gpu[07-08]", "gpu[07-", 1), "SLURM_STEP_NODELIST", "n[01-03,7],m5"},
		{strings.Replace(slurm, "STEP_NUM_NODES=2", "STEP_NUM_NODES=many", 1), "SLURM_STEP_NUM_NODES", "number"},
		{"JOB_COMPLETION_INDEX=2 TUTTI_SIZE=3", EnvBootstrap, "Kubernetes"},
		{"JOB_COMPLETION_INDEX=3 TUTTI_SIZE=3", "JOB_COMPLETION_INDEX", "0 to 2"},
		{kube + "HOSTNAME=something", "HOSTNAME", EnvBootstrap},
		{slurm + "TUTTI_OPEN=perhaps", EnvOpen, "1 or 0"},
		{slurm + "TUTTI_JOIN_TIMEOUT=90", EnvTimeout, "90s"},
		{slurm + "TUTTI_JOIN_TIMEOUT=-1s", EnvTimeout, "90s"},
		{slurm + "TUTTI_SOCKET_IFNAME=^", EnvInterface, "interface"},
		{slurm + "TUTTI_SECRET=short", EnvSecret, "16"},
		{slurm + "TUTTI_SECRET_FILE=/does/not/exist", EnvSecretFile, "600"},
		{slurm + "TUTTI_SECRET_FILE=/dev/null", EnvSecretFile, "regular"},
		{slurm + "TUTTI_SECRET=0123456789abcdef TUTTI_SECRET_FILE=/dev/null", EnvSecretFile, EnvSecret},
	} {
		_, err := readEnv(variables(tt.env))
		var e *EnvError
		if !errors.As(err, &e) || e.Name != tt.bad || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v; want an error of %s that says %q", tt.env, err, tt.bad, tt.says)
		}
		if err != nil && (strings.Contains(err.Error(), "short") || strings.Contains(err.Error(), "abcdef")) {
			t.Errorf("a secret is in %v", err)
		}
	}
}

// TestLocalJobs: where the launcher says that all ranks are on this machine,
// they meet where nobody else can come, all at the same place, and those of
// another job at another.
func TestLocalJobs(t *testing.T) {
	seen := map[string]string{}
	for _, tt := range []struct{ a, b string }{
		{"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=29500", "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=29500"},
		{"RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=29600", "RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=29600"},
		{"RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=29500 TORCHELASTIC_RESTART_COUNT=1", "RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=29500 TORCHELASTIC_RESTART_COUNT=1"},
		{"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=1", "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=1"},
		{"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=2", "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=2"},
		{"PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2", "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2"},
		{"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=1 SLURM_STEP_ID=1 SLURM_JOB_ID=1", "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=1 SLURM_STEP_ID=1 SLURM_JOB_ID=1"},
		{"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=1 SLURM_STEP_ID=2 SLURM_JOB_ID=1 SLURM_STEP_NODELIST=n1", "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=1 SLURM_STEP_ID=2 SLURM_JOB_ID=1 SLURM_STEP_NODELIST=n1"},
	} {
		a, err1 := readEnv(variables(tt.a))
		b, err2 := readEnv(variables(tt.b))
		if err1 != nil || err2 != nil {
			t.Errorf("%s: %v, %v", tt.a, err1, err2)
			continue
		}
		if a.Root != b.Root || a.Job != b.Job {
			t.Errorf("%s: at %s and %s, of %q and %q", tt.a, a.Root, b.Root, a.Job, b.Job)
		}
		if abstractSockets && !strings.HasPrefix(a.Root, "unix:@") || !abstractSockets && !strings.HasPrefix(a.Root, "127.0.0.1:") {
			t.Errorf("%s: at %s", tt.a, a.Root)
		}
		if other, ok := seen[a.Root]; ok {
			t.Errorf("%s and %s: both at %s", tt.a, other, a.Root)
		}
		seen[a.Root] = tt.a
		if _, err := a.check(); err != nil {
			t.Errorf("%s: %v", tt.a, err)
		}
	}
}

func TestSecretFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no modes here")
	}
	file := filepath.Join(t.TempDir(), "secret")
	read := func(content string, mode os.FileMode) (Secret, error) {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		s, err := readEnv(variables("TUTTI_RANK=0 TUTTI_SIZE=2 TUTTI_BOOTSTRAP=tcp://h:5 TUTTI_SECRET_FILE=" + file))
		if err != nil {
			return nil, err
		}
		return s.Secret, nil
	}
	for _, mode := range []os.FileMode{0o600, 0o400} {
		if s, err := read("0123456789abcdef\n", mode); err != nil || string(s) != "0123456789abcdef" {
			t.Errorf("mode %o: %d bytes, %v", mode, len(s), err)
		}
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o660, 0o644, 0o620} {
		var e *EnvError
		if _, err := read("0123456789abcdef\n", mode); !errors.As(err, &e) || e.Name != EnvSecretFile || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	for _, content := range []string{"", "\n", "short", strings.Repeat("x", 5000)} {
		var e *EnvError
		if _, err := read(content, 0o600); !errors.As(err, &e) || e.Name != EnvSecretFile {
			t.Errorf("%d bytes: %v", len(content), err)
		}
	}
}

func TestExpandHosts(t *testing.T) {
	for _, tt := range []struct{ list, want string }{
		{"n1", "n1"},
		{"n[01-03,7],m5", "n01 n02 n03 n7 m5"},
		{"r[1-2]n[0-1]", "r1n0 r1n1 r2n0 r2n1"},
		{"gpu[098-101]", "gpu098 gpu099 gpu100 gpu101"},
		{"n[9-11]-ib", "n9-ib n10-ib n11-ib"},
		{"10-0-3-12", "10-0-3-12"},
		{"a.example.org,b.example.org", "a.example.org b.example.org"},
		{"[1-2]", "1 2"},
	} {
		got, err := expandHosts(tt.list)
		if err != nil || strings.Join(got, " ") != tt.want {
			t.Errorf("%q: %v, %v", tt.list, got, err)
		}
	}
	for _, bad := range []string{"", ",", "n1,", ",n1", "n1,,n2", "n[", "n]", "n[1", "n[]", "n[1-]", "n[-1]", "n[3-1]", "n[1-2-3]", "n[a]", "n[[1]]", "n[1]]",
		"n 1", "n/1", "n[1-9999999999]", "n[1-999999999]", "n[1-1000]m[1-1000]", "n[1-100]m[1-100]k[1-100]", strings.Repeat("n", 300), "n[+1]"} {
		if got, err := expandHosts(bad); err == nil {
			t.Errorf("%q: %d hosts", bad, len(got))
		}
	}
}

func FuzzHosts(f *testing.F) {
	f.Add("n[01-03,7],m5")
	f.Add("r[1-2]n[0-1],10-0-3-12")
	f.Fuzz(func(t *testing.T, s string) {
		hosts, err := expandHosts(s)
		if err != nil {
			return
		}
		if len(hosts) == 0 || len(hosts) > maxHosts {
			t.Errorf("%q: %d hosts", s, len(hosts))
		}
		for _, h := range hosts {
			if h == "" || len(h) > longestHost || strings.ContainsAny(h, "[], \x00") {
				t.Errorf("%q: host %q", s, h)
			}
		}
		// What is expanded expands to itself.
		if again, err := expandHosts(strings.Join(hosts, ",")); err != nil || !reflect.DeepEqual(again, hosts) {
			t.Errorf("%q: %v again is %v, %v", s, hosts, again, err)
		}
	})
}

func FuzzURI(f *testing.F) {
	f.Add("179372032.0;tcp://192.0.2.2,172.17.0.1:55037;tcp6://[fd00::2]:33509")
	f.Fuzz(func(t *testing.T, s string) {
		if host := hostOfURI(s); host != "" {
			if _, err := parseTarget("[" + host + "]:5"); err != nil {
				t.Errorf("%q: %q: %v", s, host, err)
			}
		}
	})
}

func TestHostOfURI(t *testing.T) {
	for uri, want := range map[string]string{
		"179372032.0;tcp://192.0.2.2,172.17.0.1:55037;tcp6://[fd00::2]:33509": "192.0.2.2",
		"723386368.0;usock;tcp://192.168.0.103:56672":                         "192.168.0.103",
		"1.0;tcp://127.0.0.1,10.1.1.1:5":                                      "10.1.1.1",
		"1.0;tcp6://[fd00::2]:33509":                                          "fd00::2",
		"1.0;tcp://127.0.0.1:5":                                               "",
		"2783903744.0":                                                        "",
		"":                                                                    "",
	} {
		if got := hostOfURI(uri); got != want {
			t.Errorf("%q: %q, want %q", uri, got, want)
		}
	}
}
