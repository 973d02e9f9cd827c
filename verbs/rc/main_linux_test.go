package rc

import (
	"fmt"
	"os"
	"testing"
)

// TestMain lets a test start this binary again with another job: children are
// named by TUTTI_RC_CHILD.
func TestMain(m *testing.M) {
	done, err := prepare()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if job := os.Getenv("TUTTI_RC_CHILD"); job != "" {
		os.Exit(child(job))
	}
	code := m.Run()
	done()
	os.Exit(code)
}
