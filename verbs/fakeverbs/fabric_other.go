//go:build !linux

package fakeverbs

func (*Fabric) command(string, []field) error { return ErrUnavailable }

// Processes lists the processes of the job; here there are none.
func (*Fabric) Processes() ([]Process, error) { return nil, ErrUnavailable }
