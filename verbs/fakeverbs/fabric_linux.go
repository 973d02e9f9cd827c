package fakeverbs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a process may take to obey. It may be busy, or stopped.
const patience = 10 * time.Second

// ErrNotObeyed says that a process did not take a command in time.
var ErrNotObeyed = errors.New("fakeverbs: command not taken")

// command appends a line to the control file and waits until every process of
// the job that matters has read it.
func (f *Fabric) command(name string, fields []field) error {
	line := name
	pid := 0
	for _, c := range fields {
		line += fmt.Sprintf(" %s=%v", c.name, c.value)
		if c.name == "pid" {
			pid, _ = c.value.(int)
		}
	}
	file, err := os.OpenFile(filepath.Join(f.dir, "control"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("fakeverbs: %w", err)
	}
	defer file.Close()
	if _, err := file.WriteString(line + "\n"); err != nil {
		return fmt.Errorf("fakeverbs: %w", err)
	}
	end, err := file.Seek(0, io.SeekCurrent)
	if err != nil {
		return fmt.Errorf("fakeverbs: %w", err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		behind, err := f.behind(end, line, pid)
		if err != nil || behind == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w: process %d has not read %q", ErrNotObeyed, behind, line)
		}
	}
}

// behind names a process that has not read the control file up to end, or 0.
func (f *Fabric) behind(end int64, line string, pid int) (int, error) {
	processes, err := f.Processes()
	if err != nil {
		return 0, err
	}
	for _, p := range processes {
		if pid != 0 && p.PID != pid {
			continue
		}
		if p.applied < end {
			return p.PID, nil
		}
		if strings.HasSuffix(p.complaint, ": "+line) {
			return 0, fmt.Errorf("fakeverbs: process %d: %s", p.PID, p.complaint)
		}
	}
	return 0, nil
}

// Processes lists the processes of the job that have opened a device and
// live, and what each had open when it last said so: after any command.
func (f *Fabric) Processes() ([]Process, error) {
	names, err := filepath.Glob(filepath.Join(f.dir, "process-*"))
	if err != nil {
		return nil, err
	}
	var all []Process
	for _, name := range names {
		p, alive, err := process(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has just ended
		}
		if err != nil {
			return nil, fmt.Errorf("fakeverbs: %w", err)
		}
		if alive {
			all = append(all, p)
		}
	}
	return all, nil
}

// process reads the file in which a process says how it is. One that was
// killed left its file behind, but not the lock on it.
func process(name string) (p Process, alive bool, err error) {
	file, err := os.Open(name)
	if err != nil {
		return p, false, err
	}
	defer file.Close()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB); err == nil {
		return p, false, nil
	} else if !errors.Is(err, unix.EWOULDBLOCK) {
		return p, false, err
	}
	if p.PID, err = strconv.Atoi(strings.TrimPrefix(filepath.Base(name), "process-")); err != nil {
		return p, false, err
	}
	for {
		text, err := io.ReadAll(io.NewSectionReader(file, 0, 1<<16))
		if err != nil {
			return p, false, err
		}
		if len(text) == 0 {
			return p, true, nil // it is only starting
		}
		if p.parse(text) {
			return p, true, nil
		}
		time.Sleep(100 * time.Microsecond) // it is writing
	}
}
