package engine

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tutti-go/tutti/mem"
)

// layoutVersion changes with everything that ranks of one job must share: the
// control region's layout and the meaning of progress counters.
const layoutVersion = 5

var errForeignLayout = errors.New("another layout of the control region: are all ranks the same build?")

// greeting is what a rank tells the others when it joins.
type greeting struct {
	control mem.RegionID
	cores   int    // of Config
	rules   string // of Config
}

func (g greeting) encode() []byte {
	b := binary.LittleEndian.AppendUint32(nil, layoutVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(g.control))
	b = binary.LittleEndian.AppendUint32(b, uint32(g.cores))
	return append(b, g.rules...)
}

func decodeGreeting(b []byte) (greeting, error) {
	if len(b) < 12 || binary.LittleEndian.Uint32(b) != layoutVersion {
		return greeting{}, errForeignLayout
	}
	return greeting{
		control: mem.RegionID(binary.LittleEndian.Uint32(b[4:])),
		cores:   int(binary.LittleEndian.Uint32(b[8:])),
		rules:   string(b[12:]),
	}, nil
}

// agrees refuses a rank that would choose otherwise than this one.
func (g greeting) agrees(theirs greeting) error {
	switch {
	case g.cores != theirs.cores:
		return fmt.Errorf("it counts %d cores for the job and this rank %d: all ranks must be given the same", theirs.cores, g.cores)
	case g.rules != theirs.rules:
		return fmt.Errorf("it chooses algorithms by %q and this rank by %q: all ranks must be given the same", theirs.rules, g.rules)
	}
	return nil
}
