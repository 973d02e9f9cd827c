package verbs_test

import (
	"fmt"
	"os"
	"testing"
)

// TestMain lets a test start this binary again with another job: children are
// named by TUTTI_VERBS_CHILD.
func TestMain(m *testing.M) {
	if job := os.Getenv("TUTTI_VERBS_CHILD"); job != "" {
		os.Exit(child(job))
	}
	done, err := prepare()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	done()
	os.Exit(code)
}
