package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const installLimit = 15 * time.Minute

// An installer brings in the peers' packages: Debian's with apt-get where this
// user may, PyPI's into one virtual environment a peer.
type installer struct {
	dir     string // of the virtual environments
	fetch   bool   // false: take only what is there
	say     func(format string, args ...any)
	updated bool // apt-get update has run
}

func (in *installer) venv(p Peer) string { return filepath.Join(in.dir, "venv-"+p.Name) }

// install makes a peer's packages present and returns the version of the main one.
func (in *installer) install(ctx context.Context, p Peer) (version string, err error) {
	if len(p.Apt) > 0 {
		return in.apt(ctx, p)
	}
	return in.pip(ctx, p)
}

func (in *installer) apt(ctx context.Context, p Peer) (string, error) {
	if _, err := exec.LookPath("dpkg-query"); err != nil {
		return "", fmt.Errorf("needs the Debian packages %s, and this is no Debian", strings.Join(p.Apt, " "))
	}
	var missing []string
	for _, name := range p.Apt {
		if debVersion(ctx, name) == "" {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		if err := in.aptInstall(ctx, missing); err != nil {
			return "", err
		}
	}
	if v := debVersion(ctx, p.Package); v != "" {
		return v, nil
	}
	return "", fmt.Errorf("package %s is not installed after installing it", p.Package)
}

func (in *installer) aptInstall(ctx context.Context, packages []string) error {
	line := "apt-get install " + strings.Join(packages, " ")
	if !in.fetch {
		return fmt.Errorf("not installed; run: sudo %s", line)
	}
	get := []string{"apt-get"}
	if os.Getuid() != 0 {
		if err := exec.CommandContext(ctx, "sudo", "-n", "true").Run(); err != nil {
			return fmt.Errorf("not installed, and this user may not; run: sudo %s", line)
		}
		get = []string{"sudo", "-n", "apt-get"}
	}
	if !in.updated {
		in.updated = true
		in.say("apt-get update")
		if err := quiet(ctx, append(get, "update")...); err != nil {
			in.say("apt-get update: %v (going on with the lists there are)", err)
		}
	}
	in.say("%s", line)
	return quiet(ctx, append(append(get, "install", "-y", "--no-install-recommends"), packages...)...)
}

func debVersion(ctx context.Context, name string) string {
	out, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", name).Output()
	if err != nil {
		return ""
	}
	if v, ok := strings.CutPrefix(string(out), "installed "); ok {
		return v
	}
	return ""
}

func (in *installer) pip(ctx context.Context, p Peer) (string, error) {
	venv := in.venv(p)
	python := filepath.Join(venv, "bin", "python")
	if v := pipVersion(ctx, python, p.Package); v != "" {
		return v, nil
	}
	if !in.fetch {
		return "", fmt.Errorf("not installed; run: go run ./bench/peers install")
	}
	in.say("%s: pip install %s", p.Name, strings.Join(p.Pip, " "))
	if err := quiet(ctx, "python3", "-m", "venv", "--clear", venv); err != nil {
		return "", fmt.Errorf("python3 -m venv: %w", err)
	}
	pip := append([]string{python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"}, p.Pip...)
	if err := quiet(ctx, pip...); err != nil {
		// Half an environment must not pass for a whole one next time.
		return "", errors.Join(fmt.Errorf("pip install %s: %w", strings.Join(p.Pip, " "), err), os.RemoveAll(venv))
	}
	if v := pipVersion(ctx, python, p.Package); v != "" {
		return v, nil
	}
	return "", fmt.Errorf("package %s is not installed after installing it", p.Package)
}

func pipVersion(ctx context.Context, python, name string) string {
	if _, err := os.Stat(python); err != nil {
		return ""
	}
	out, err := exec.CommandContext(ctx, python, "-c", "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))", name).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// quiet runs a command and keeps what it says for the error.
func quiet(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, installLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	cmd.Cancel = func() error { return terminate(cmd) }
	cmd.WaitDelay = 5 * time.Second
	ownGroup(cmd)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", args[0], ctx.Err())
	}
	return fmt.Errorf("%w: %s", err, lastWords(errorLines(out)))
}

// errorLines keeps the lines of an output that speak of an error, or all when
// none does: package managers say much before it.
func errorLines(out []byte) []byte {
	var kept []byte
	for line := range strings.Lines(string(out)) {
		low := strings.ToLower(line)
		if strings.Contains(low, "error") || strings.HasPrefix(low, "e:") {
			kept = append(kept, line...)
		}
	}
	if len(kept) == 0 {
		return out
	}
	return kept
}
