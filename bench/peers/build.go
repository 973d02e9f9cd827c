package main

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed src
var sources embed.FS

// writeSources puts the peer programs' sources into dir.
func writeSources(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	entries, err := sources.ReadDir("src")
	if err != nil {
		return err
	}
	for _, e := range entries {
		b, err := sources.ReadFile("src/" + e.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, e.Name()), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// build compiles a peer's program and returns its path.
func build(ctx context.Context, p Peer, at place, src, dir string) (string, error) {
	before, after := p.Compile(at)
	if _, err := exec.LookPath(before[0]); err != nil {
		return "", fmt.Errorf("no compiler: %w", err)
	}
	prog := filepath.Join(dir, "bench-"+p.Name)
	args := append(before, "-o", prog, filepath.Join(src, p.Source))
	if err := quiet(ctx, append(args, after...)...); err != nil {
		return "", fmt.Errorf("compiling %s: %w", p.Source, err)
	}
	return prog, nil
}

// buildTutti builds commbench from the module at root.
func buildTutti(ctx context.Context, root, prog string) error {
	if err := quiet(ctx, "go", "build", "-C", root, "-o", prog, "./cmd/commbench"); err != nil {
		return fmt.Errorf("building commbench: %w", err)
	}
	return nil
}

// moduleRoot is the folder of the module's go.mod, at or above the current one.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("no go.mod at or above %s: run this inside the module", dir)
		}
	}
}
