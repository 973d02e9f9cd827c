package image

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
)

// Builder collects files. Paths in the image are absolute; folders above them
// come by themselves. /bin, /sbin, /lib and /lib64 are what they are in /usr.
// A later file replaces an earlier one of the same path.
type Builder struct {
	files map[string]file
}

// A file is one thing in the image: bytes of its own or of a file here.
type file struct {
	mode uint32 // type and permissions as in stat
	from string // file here whose bytes it has, or ""
	data []byte // its bytes, or where a link leads
}

const (
	typeFile   = 0o100000
	typeFolder = 0o040000
	typeLink   = 0o120000
)

var merged = []string{"bin", "sbin", "lib", "lib64"}

// New returns an image that holds the folders which every machine has.
func New() *Builder {
	b := &Builder{files: map[string]file{}}
	for _, d := range merged {
		b.files["/usr/"+d] = file{mode: typeFolder | 0o755}
		b.files["/"+d] = file{mode: typeLink | 0o777, data: []byte("usr/" + d)}
	}
	for _, d := range []string{"/dev", "/proc", "/sys", "/etc", "/root", "/run", "/tmp", "/usr", "/var"} {
		b.files[d] = file{mode: typeFolder | 0o755}
	}
	return b
}

// at cleans a path of the image and follows the four links.
func at(name string) (string, error) {
	if !path.IsAbs(name) {
		return "", fmt.Errorf("image: %q is not an absolute path", name)
	}
	name = path.Clean(name)
	first, rest, _ := strings.Cut(name[1:], "/")
	for _, d := range merged {
		if first == d && rest != "" {
			return "/usr" + name, nil
		}
	}
	return name, nil
}

func (b *Builder) put(name string, f file) error {
	name, err := at(name)
	if err != nil {
		return err
	}
	for d := path.Dir(name); d != "/"; d = path.Dir(d) {
		if up, ok := b.files[d]; !ok {
			b.files[d] = file{mode: typeFolder | 0o755}
		} else if up.mode&typeFolder == 0 {
			return fmt.Errorf("image: %s is wanted both as a file and as a folder", d)
		}
	}
	b.files[name] = f
	return nil
}

// Has reports whether the image has something of that path.
func (b *Builder) Has(name string) bool {
	name, err := at(name)
	_, ok := b.files[name]
	return err == nil && ok
}

// Bytes puts data into the image as a file.
func (b *Builder) Bytes(name string, data []byte, mode fs.FileMode) error {
	return b.put(name, file{mode: typeFile | uint32(mode.Perm()), data: data})
}

// Link puts a symbolic link into the image.
func (b *Builder) Link(name, to string) error {
	return b.put(name, file{mode: typeLink | 0o777, data: []byte(to)})
}

// File puts a file of this machine into the image, links followed. Of a
// program it is only the file: see Program.
func (b *Builder) File(name, from string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("image: %s is not a file", from)
	}
	return b.put(name, file{mode: typeFile | uint32(info.Mode().Perm()), from: from})
}

// Program puts a program or a library into the image with the libraries that
// it needs, these at the paths that they have here. Anything that is no ELF
// file is put as it is.
func (b *Builder) Program(ctx context.Context, name, from string) error {
	if err := b.File(name, from); err != nil {
		return err
	}
	libraries, err := Libraries(ctx, from)
	if err != nil {
		return err
	}
	for _, l := range libraries {
		if !b.Has(l) {
			if err := b.File(l, l); err != nil {
				return err
			}
		}
	}
	return nil
}

// Tree puts a folder of this machine with all that it holds into the image at
// the same path, programs and libraries with what they need.
func (b *Builder) Tree(ctx context.Context, dir string) error {
	return filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Stat(p) // links followed
		if err != nil || !info.Mode().IsRegular() {
			return nil // a folder comes with its files, and a link to nowhere leads nowhere there too
		}
		return b.Program(ctx, p, p)
	})
}

// names are the paths in an order in which a folder comes before its files.
func (b *Builder) names() []string {
	names := make([]string, 0, len(b.files))
	for n := range b.files {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}
