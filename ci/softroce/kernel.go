package softroce

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"sort"
	"strings"
)

// Variables of the environment.
const (
	// EnvCache names the folder that keeps unpacked kernels; by default
	// tutti-softroce in the user's cache.
	EnvCache = "TUTTI_SOFTROCE_CACHE"
	// EnvKernel names a tree with boot/vmlinuz-VERSION and
	// lib/modules/VERSION to use instead of the distribution's.
	EnvKernel = "TUTTI_SOFTROCE_KERNEL"
	// EnvAccel chooses kvm or tcg.
	EnvAccel = "TUTTI_SOFTROCE_ACCEL"
)

// A Kernel is one that machines boot.
type Kernel struct {
	Version string
	Image   string // path of the bootable image
	Modules string // folder of the modules, with modules.dep
}

// A KernelError says that no kernel could be had.
type KernelError struct{ Err error }

func (e *KernelError) Error() string { return "softroce: no kernel to boot: " + e.Err.Error() }

func (e *KernelError) Unwrap() error { return e.Err }

// FindKernel returns the distribution's kernel. It is downloaded at first use
// and unpacked into the cache, not installed; where it cannot be, one that is
// in the cache already serves.
func FindKernel(ctx context.Context, say func(string, ...any)) (Kernel, error) {
	if runtime.GOARCH != "amd64" {
		return Kernel{}, &KernelError{fmt.Errorf("machines are amd64 only, and this is %s", runtime.GOARCH)}
	}
	if dir := os.Getenv(EnvKernel); dir != "" {
		k, err := openKernel(dir)
		if err == nil {
			_, err = os.Stat(filepath.Join(k.Modules, "modules.dep"))
		}
		if err != nil {
			return Kernel{}, &KernelError{fmt.Errorf("%s=%s: %w", EnvKernel, dir, err)}
		}
		return k, nil
	}
	cache, err := cacheDir()
	if err != nil {
		return Kernel{}, &KernelError{err}
	}
	packages, err := kernelPackages(ctx, say)
	if err == nil {
		dir := filepath.Join(cache, packages[0])
		if k, err := openKernel(dir); err == nil {
			return k, nil
		}
		if err = download(ctx, say, dir, packages); err == nil {
			var k Kernel
			if k, err = openKernel(dir); err == nil {
				return k, nil
			}
		}
		return older(say, cache, err)
	}
	return older(say, cache, err)
}

// older returns a kernel of the cache, for want of the right one.
func older(say func(string, ...any), cache string, why error) (Kernel, error) {
	dirs, err := filepath.Glob(filepath.Join(cache, "linux-image-*"))
	if err != nil {
		return Kernel{}, &KernelError{errors.Join(why, err)}
	}
	sort.Strings(dirs)
	for i := len(dirs) - 1; i >= 0; i-- {
		if k, err := openKernel(dirs[i]); err == nil {
			say("the kernel %s of the cache serves: %v", k.Version, why)
			return k, nil
		}
	}
	return Kernel{}, &KernelError{why}
}

func cacheDir() (string, error) {
	if dir := os.Getenv(EnvCache); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("nowhere to keep one: %w; set %s", err, EnvCache)
	}
	return filepath.Join(dir, "tutti-softroce"), nil
}

// openKernel looks into a tree of boot/ and lib/modules/.
func openKernel(dir string) (Kernel, error) {
	images, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if err != nil || len(images) == 0 {
		return Kernel{}, fmt.Errorf("no %s/boot/vmlinuz-*", dir)
	}
	sort.Strings(images)
	k := Kernel{Image: images[len(images)-1]}
	k.Version = strings.TrimPrefix(filepath.Base(k.Image), "vmlinuz-")
	for _, lib := range []string{"lib", "usr/lib"} {
		k.Modules = filepath.Join(dir, lib, "modules", k.Version)
		if _, err := os.Stat(filepath.Join(k.Modules, "modules.builtin")); err == nil {
			return k, nil
		}
	}
	return Kernel{}, fmt.Errorf("no %s/lib/modules/%s", dir, k.Version)
}

// flavours are the packages that depend on the current kernel's, by distribution.
var flavours = map[string]string{"debian": "linux-image-amd64", "ubuntu": "linux-image-generic"}

// kernelPackages names the packages of the distribution's current kernel, the
// image first.
func kernelPackages(ctx context.Context, say func(string, ...any)) ([]string, error) {
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return nil, fmt.Errorf("which distribution is this? %w", err)
	}
	id := distribution(string(release))
	if id == "" {
		return nil, fmt.Errorf("this is neither Debian nor Ubuntu; set %s", EnvKernel)
	}
	packages, err := depends(ctx, id)
	if err == nil && len(packages) == 0 { // a machine without package lists
		root, rootErr := asRoot(ctx)
		if rootErr != nil {
			return nil, fmt.Errorf("apt knows no %s, and %w", flavours[id], rootErr)
		}
		say("apt-get update")
		if err := command(ctx, "", append(root, "apt-get", "update", "-qq")...); err != nil {
			return nil, err
		}
		packages, err = depends(ctx, id)
	}
	if err == nil && len(packages) == 0 {
		err = fmt.Errorf("apt knows no %s", flavours[id])
	}
	return packages, err
}

func depends(ctx context.Context, id string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "apt-cache", "depends", flavours[id]).Output()
	if err != nil && len(out) == 0 {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return nil, nil // it does not know the package
		}
		return nil, err
	}
	return parseDepends(id, string(out)), nil
}

// distribution returns the one of flavours that an os-release file speaks of.
func distribution(release string) string {
	ids := map[string]string{}
	for line := range strings.Lines(release) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			ids[key] = strings.Trim(value, `"'`)
		}
	}
	for _, id := range append([]string{ids["ID"]}, strings.Fields(ids["ID_LIKE"])...) {
		if flavours[id] != "" {
			return id
		}
	}
	return ""
}

var imagePackage = regexp.MustCompile(`(?m)^\s*Depends: (linux-image-([0-9]\S*))$`)

// parseDepends reads `apt-cache depends`. Debian's image has all modules;
// Ubuntu keeps them in two packages beside it.
func parseDepends(id, out string) []string {
	m := imagePackage.FindStringSubmatch(out)
	if m == nil {
		return nil
	}
	packages := []string{m[1]}
	if id == "ubuntu" {
		packages = append(packages, "linux-modules-"+m[2], "linux-modules-extra-"+m[2])
	}
	return packages
}

// download brings packages into a folder of the cache: all of them or nothing,
// also when several processes do it at a time.
func download(ctx context.Context, say func(string, ...any), dir string, packages []string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "new-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	tree := filepath.Join(tmp, "tree")
	say("downloading %s", strings.Join(packages, " "))
	if err := command(ctx, tmp, append([]string{"apt-get", "download", "-qq"}, packages...)...); err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil {
		return err
	}
	for _, deb := range debs {
		if err := command(ctx, tmp, "dpkg", "-x", deb, tree); err != nil {
			return err
		}
	}
	k, err := openKernel(tree)
	if err != nil {
		return err
	}
	// On a distribution without /lib of its own, depmod wants it all the same.
	if _, err := os.Stat(filepath.Join(tree, "lib")); err != nil {
		if err := os.Symlink("usr/lib", filepath.Join(tree, "lib")); err != nil {
			return err
		}
	}
	depmod := tool{program: "depmod"}.find()
	if depmod == "" {
		return fmt.Errorf("no depmod (package kmod)")
	}
	if err := command(ctx, tmp, depmod, "-b", tree, k.Version); err != nil {
		return err
	}
	if _, err := openKernel(dir); err != nil {
		_ = os.RemoveAll(dir) // what is there is broken; the renaming says if it stays
	}
	if err := os.Rename(tree, dir); err != nil {
		if _, there := openKernel(dir); there == nil {
			return nil // another process was faster
		}
		return err
	}
	return nil
}
