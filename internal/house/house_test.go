// Package house holds the module to its own rules.
package house

import (
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/tutti-go/tutti"

// mayImport lists, for each package of the module, which others it may import
// besides internal ones. A package that is not listed fails the test: decide
// on its floor and write it down.
var mayImport = map[string][]string{
	"mem":                {},
	"reduce":             {"mem"},
	"reduce/codec":       {"mem", "reduce"},
	"plan":               {},
	"algo":               {"plan"},
	"tune":               {"plan"},
	"link":               {"mem"},
	"link/linktest":      {"mem", "link"},
	"shm":                {"mem", "link"},
	"span":               {"mem", "link"},
	"tcp":                {"mem", "link"},
	"verbs":              {},
	"verbs/fakeverbs":    {},
	"bootstrap":          {},
	"engine":             {"mem", "reduce", "reduce/codec", "plan", "tune", "link"},
	"bucket":             {"mem", "engine"},
	"":                   {"mem", "plan", "algo", "tune", "link", "shm", "tcp", "verbs", "verbs/rc", "span", "bootstrap", "engine"},
	"cmd/commbench":      {"", "mem", "reduce", "plan", "bootstrap", "engine"},
	"bench/peers":        {},
	"verbs/rc":           {"mem", "link", "verbs"},
	"internal/cmalloc":   {},
	"internal/cpu":       {},
	"internal/float16":   {},
	"internal/fence":     {},
	"internal/futex":     {},
	"internal/hostnet":   {},
	"internal/house":     {},
	"internal/move":      {},
	"internal/spin":      {},
	"internal/leak":      {},
	"internal/mesh":      {},
	"internal/testhost":  {},
	"ci/softroce":        {"ci/softroce/image", "ci/softroce/remote"},
	"ci/softroce/agent":  {"ci/softroce/remote"},
	"ci/softroce/image":  {},
	"ci/softroce/remote": {},
	"ci/softroce/run":    {"ci/softroce"},
}

// An example imports what its reader would.
var examplesMayImport = []string{"", "mem", "bucket", "bootstrap", "examples/internal/job"}

func TestImports(t *testing.T) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	packages := 0
	for {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		packages++
		name := within(p.ImportPath)
		allowed, known := mayImport[name]
		if name == "examples" || strings.HasPrefix(name, "examples/") {
			allowed, known = examplesMayImport, true
		}
		if !known {
			t.Errorf("package %q is not on any floor: add it to mayImport", name)
			continue
		}
		for _, imp := range p.Imports {
			if imp != module && !strings.HasPrefix(imp, module+"/") {
				continue
			}
			if dep := within(imp); !strings.HasPrefix(dep, "internal/") && !contains(allowed, dep) {
				t.Errorf("%q imports %q, which is not a floor below it", name, dep)
			}
		}
	}
	if packages < 10 {
		t.Errorf("go list found %d packages only", packages)
	}
}

func within(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}
