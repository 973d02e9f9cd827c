package fakeverbs

import "testing"

func TestBuild(t *testing.T) {
	p, err := Build("")
	if err != nil {
		t.Fatal(err)
	}
	t.Log(p)
}
