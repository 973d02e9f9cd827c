package image

import (
	"bufio"
	"fmt"
	"io"
	"os"
)

// Write writes the image as the kernel wants it: a cpio archive in the "newc"
// format, in which each number is eight hexadecimal digits and everything is
// padded to four bytes.
func (b *Builder) Write(w io.Writer) error {
	a := &archive{w: bufio.NewWriterSize(w, 1<<20)}
	for _, name := range b.names() {
		if err := a.add(name[1:], b.files[name]); err != nil {
			return err
		}
	}
	a.header("TRAILER!!!", 0, 0)
	if a.err != nil {
		return a.err
	}
	return a.w.Flush()
}

type archive struct {
	w     *bufio.Writer
	inode int
	err   error
}

func (a *archive) add(name string, f file) error {
	if f.from == "" {
		a.header(name, f.mode, int64(len(f.data)))
		a.write(f.data)
		a.pad(len(f.data))
		return a.err
	}
	src, err := os.Open(f.from)
	if err != nil {
		return err
	}
	defer src.Close()
	info, err := src.Stat()
	if err != nil {
		return err
	}
	if info.Size() >= 1<<32 {
		return fmt.Errorf("image: %s is too large for the archive", f.from)
	}
	a.header(name, f.mode, info.Size())
	if a.err != nil {
		return a.err
	}
	if _, err := io.CopyN(a.w, src, info.Size()); err != nil {
		return fmt.Errorf("image: %s became shorter: %w", f.from, err)
	}
	a.pad(int(info.Size()))
	return a.err
}

func (a *archive) header(name string, mode uint32, size int64) {
	a.inode++
	links := 1
	if mode&typeFolder != 0 {
		links = 2
	}
	// magic, inode, mode, uid, gid, links, mtime, size, device, special device,
	// length of the name with its zero, checksum
	h := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		a.inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, len(name)+1, 0, name)
	a.write([]byte(h))
	a.pad(len(h))
}

var zeros [4]byte

func (a *archive) pad(n int) { a.write(zeros[:(4-n%4)%4]) }

func (a *archive) write(p []byte) {
	if a.err == nil {
		_, a.err = a.w.Write(p)
	}
}
