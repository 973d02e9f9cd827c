package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestParseMachine(t *testing.T) {
	m, err := parseMachine("console=ttyS0 quiet softroce.node=1 softroce.nodes=2 softroce.mtu=4200\n")
	if err != nil || m != (machine{1, 2, 4200}) || m.name() != "node1" || m.address() != "10.0.0.2" {
		t.Errorf("%+v, %v", m, err)
	}
	for _, bad := range []string{
		"", "softroce.node=0 softroce.nodes=2", "softroce.node=2 softroce.nodes=2 softroce.mtu=1500",
		"softroce.node=x softroce.nodes=2 softroce.mtu=1500", "softroce.node=-1 softroce.nodes=2 softroce.mtu=1500",
	} {
		if m, err := parseMachine(bad); err == nil {
			t.Errorf("%q is %+v", bad, m)
		}
	}
}

func TestPut(t *testing.T) {
	in, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if _, err := in.WriteString("text"); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	stdin := os.Stdin
	os.Stdin = in
	defer func() { os.Stdin = stdin }()
	to := filepath.Join(t.TempDir(), "deep", "file")
	if err := put(to, "750"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(to)
	if err != nil || info.Mode().Perm() != 0o750 || info.Size() != 4 {
		t.Errorf("%v, %v", info, err)
	}
	if err := put(to, "rwx"); err == nil {
		t.Error("a mode that is no number was taken")
	}
}
