package cpu

import (
	"io/fs"
	"testing"
	"testing/fstest"
)

func tree(files map[string]string) fs.FS {
	m := fstest.MapFS{}
	for name, text := range files {
		m[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return m
}

func TestCgroupCores(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		want  float64 // 0: not known
	}{
		"bare": {map[string]string{}, 0},
		"v2": {map[string]string{
			"proc/self/cgroup":          "0::/a/b\n",
			"sys/fs/cgroup/a/cpu.max":   "150000 100000\n",
			"sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
		}, 1.5},
		"v2 namespaced": {map[string]string{
			"proc/self/cgroup":      "0::/\n",
			"sys/fs/cgroup/cpu.max": "50000 100000\n",
		}, 0.5},
		"v1": {map[string]string{
			"proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/x\n",
			"sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us":  "300000\n",
			"sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000\n",
		}, 3},
		"v1 unlimited": {map[string]string{
			"proc/self/cgroup":                      "3:cpu:/\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us":    "-1\n",
			"sys/fs/cgroup/cpu/cpu.cfs_period_us":   "100000\n",
			"sys/fs/cgroup/memory/memory.max_usage": "1\n",
		}, 0},
		"garbage": {map[string]string{
			"proc/self/cgroup":      "0::/\nnonsense\n",
			"sys/fs/cgroup/cpu.max": "a b c\n",
		}, 0},
	} {
		got, err := cgroupCores(tree(tt.files))
		if got != tt.want || (err == nil) != (tt.want != 0) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, tt.want)
		}
	}
}

func TestCacheBytes(t *testing.T) {
	const dir = "sys/devices/system/cpu/cpu0/cache/index"
	files := map[string]string{
		dir + "0/level": "1\n", dir + "0/size": "48K\n",
		dir + "3/level": "3\n", dir + "3/size": "32768K\n",
		dir + "2/level": "2\n", dir + "2/size": "1024K\n",
	}
	if got, err := cacheBytes(tree(files)); got != 32<<20 || err != nil {
		t.Errorf("three levels: %d, %v", got, err)
	}
	files[dir+"3/size"] = "lots"
	if got, err := cacheBytes(tree(files)); got != 1<<20 || err != nil {
		t.Errorf("the last not told: %d, %v", got, err)
	}
	if got, err := cacheBytes(tree(nil)); err == nil {
		t.Errorf("nothing told: %d", got)
	}
}

func TestMemAvailable(t *testing.T) {
	files := map[string]string{"proc/meminfo": "MemTotal:  900 kB\nMemAvailable:    500 kB\n"}
	if got, err := memAvailable(tree(files)); got != 500<<10 || err != nil {
		t.Errorf("machine: %d, %v", got, err)
	}
	files["proc/self/cgroup"] = "0::/a\n"
	files["sys/fs/cgroup/a/memory.max"] = "307200\n"
	files["sys/fs/cgroup/a/memory.current"] = "102400\n"
	if got, err := memAvailable(tree(files)); got != 200<<10 || err != nil {
		t.Errorf("cgroup: %d, %v", got, err)
	}
	files["sys/fs/cgroup/a/memory.stat"] = "anon 5\ninactive_file 51200\n"
	if got, err := memAvailable(tree(files)); got != 250<<10 || err != nil {
		t.Errorf("cgroup with cached files: %d, %v", got, err)
	}
	files["sys/fs/cgroup/a/memory.current"] = "999999\n"
	if got, err := memAvailable(tree(files)); got != 0 || err != nil {
		t.Errorf("over the limit: %d, %v", got, err)
	}
	if _, err := memAvailable(tree(nil)); err == nil {
		t.Error("no /proc, no error")
	}
}

func TestModel(t *testing.T) {
	if got := model(tree(map[string]string{"proc/cpuinfo": "processor : 0\nmodel name\t: Fast 9000\n"})); got != "Fast 9000" {
		t.Errorf("got %q", got)
	}
	if got := model(tree(nil)); got != "unknown" {
		t.Errorf("without /proc: %q", got)
	}
}

func TestHere(t *testing.T) {
	usable, err := Usable()
	if err != nil || len(usable) == 0 {
		t.Fatalf("usable cores: %v, %v", usable, err)
	}
	if n := Count(); n < 1 || n > len(usable) {
		t.Errorf("Count %d of %d usable cores", n, len(usable))
	}
	if x := Limit(); x <= 0 || x > float64(Count()) {
		t.Errorf("Limit %v, Count %d", x, Count())
	}
}
