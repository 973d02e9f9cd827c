package image

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// ModuleDir is where Modules puts the modules, and ModuleList the file that
// names them, one path a line, in the order in which they load.
const (
	ModuleDir  = "/modules"
	ModuleList = "/modules/list"
)

// A NoModuleError says that a kernel lacks a module.
type NoModuleError struct{ Kernel, Module string }

func (e *NoModuleError) Error() string {
	return fmt.Sprintf("image: the kernel %s has no module %s, and it is not built in", e.Kernel, e.Module)
}

// Modules puts modules of the kernel tree at dir (lib/modules/VERSION) into
// the image, with what they depend on and before what depends on them. What is
// built in is left out. The tree needs modules.dep, which depmod makes.
func (b *Builder) Modules(ctx context.Context, dir string, wanted ...string) error {
	t, err := readModules(dir)
	if err != nil {
		return err
	}
	order, err := t.order(wanted)
	if err != nil {
		return err
	}
	var list []string
	for _, file := range order {
		data, err := unpacked(ctx, filepath.Join(dir, file))
		if err != nil {
			return err
		}
		to := path.Join(ModuleDir, moduleName(file)+".ko")
		if err := b.Bytes(to, data, 0o644); err != nil {
			return err
		}
		list = append(list, to)
	}
	return b.Bytes(ModuleList, []byte(strings.Join(list, "\n")+"\n"), 0o644)
}

// moduleName is the name the kernel knows a module by.
func moduleName(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

// A moduleTree is what depmod and the kernel's build say about its modules.
type moduleTree struct {
	kernel  string
	file    map[string]string   // by name
	needs   map[string][]string // files by name, in depmod's order: the nearest first
	builtin map[string]bool
}

func readModules(dir string) (*moduleTree, error) {
	dep, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return nil, err
	}
	builtin, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	return parseModules(filepath.Base(dir), string(dep), string(builtin)), nil
}

// parseModules reads modules.dep, "file: file file", and modules.builtin, a
// file a line.
func parseModules(kernel, dep, builtin string) *moduleTree {
	t := &moduleTree{kernel, map[string]string{}, map[string][]string{}, map[string]bool{}}
	for line := range strings.Lines(dep) {
		file, needs, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		t.file[moduleName(file)] = file
		t.needs[moduleName(file)] = strings.Fields(needs)
	}
	for line := range strings.Lines(builtin) {
		t.builtin[moduleName(strings.TrimSpace(line))] = true
	}
	return t
}

// order lists the files of the wanted modules, each after what it depends on.
func (t *moduleTree) order(wanted []string) ([]string, error) {
	var order []string
	add := func(file string) {
		if !slices.Contains(order, file) {
			order = append(order, file)
		}
	}
	for _, name := range wanted {
		name = moduleName(name)
		file, ok := t.file[name]
		if !ok {
			if t.builtin[name] {
				continue
			}
			return nil, &NoModuleError{t.kernel, name}
		}
		// A module's own line has all it needs, also what those need in turn.
		for _, need := range slices.Backward(t.needs[name]) {
			add(need)
		}
		add(file)
	}
	return order, nil
}

// unpacked reads a module, which some distributions compress.
func unpacked(ctx context.Context, file string) ([]byte, error) {
	tool := map[string]string{".xz": "xz", ".zst": "zstd", ".gz": "gzip"}[filepath.Ext(file)]
	if tool == "" {
		return os.ReadFile(file)
	}
	var complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, tool, "-dc", file)
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out, nil
}
