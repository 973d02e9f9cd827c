package softroce

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/tutti-go/tutti/ci/softroce/image"
)

// addMPI puts in Open MPI with UCX: programs, what they load by name, and
// their texts.
func addMPI(ctx context.Context, b *image.Builder) error {
	var errs []error
	for _, name := range []string{"mpirun", "orted", "ompi_info"} {
		p := (tool{program: name}).find()
		if p == "" {
			errs = append(errs, fmt.Errorf("softroce: no program %s", name))
			continue
		}
		errs = append(errs, b.Program(ctx, "/usr/bin/"+name, p))
	}
	for _, pattern := range []string{
		"/usr/lib/*/openmpi/lib/openmpi3", "/usr/lib/*/pmix2/lib/pmix", "/usr/lib/*/pmix2/share/pmix", "/usr/lib/*/ucx",
		"/usr/share/openmpi", "/usr/share/pmix*", "/etc/openmpi",
	} {
		dirs, err := filepath.Glob(pattern)
		errs = append(errs, err)
		for _, dir := range dirs {
			errs = append(errs, b.Tree(ctx, dir))
		}
	}
	return errors.Join(errs...)
}
