package engine

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tutti-go/tutti/mem"
)

// layoutVersion changes with everything that ranks of one job must share: the
// control region's layout and the meaning of progress counters.
const layoutVersion = 6

var errForeignLayout = errors.New("another layout of the control region: are all ranks the same build?")

// greeting is what a rank tells the others when it joins.
type greeting struct {
	control mem.RegionID
	cores   int    // of Config
	sharers int    // of Config
	nodes   uint64 // a hash of Config's
	rules   string // of Config
}

func (g greeting) encode() []byte {
	b := binary.LittleEndian.AppendUint32(nil, layoutVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(g.control))
	b = binary.LittleEndian.AppendUint32(b, uint32(g.cores))
	b = binary.LittleEndian.AppendUint32(b, uint32(g.sharers))
	b = binary.LittleEndian.AppendUint64(b, g.nodes)
	return append(b, g.rules...)
}

func decodeGreeting(b []byte) (greeting, error) {
	if len(b) < 24 || binary.LittleEndian.Uint32(b) != layoutVersion {
		return greeting{}, errForeignLayout
	}
	return greeting{
		control: mem.RegionID(binary.LittleEndian.Uint32(b[4:])),
		cores:   int(binary.LittleEndian.Uint32(b[8:])),
		sharers: int(binary.LittleEndian.Uint32(b[12:])),
		nodes:   binary.LittleEndian.Uint64(b[16:]),
		rules:   string(b[24:]),
	}, nil
}

// agrees refuses a rank that would choose otherwise than this one.
func (g greeting) agrees(theirs greeting) error {
	switch {
	case g.cores != theirs.cores:
		return fmt.Errorf("it counts %d cores for the job and this rank %d: all ranks must be given the same", theirs.cores, g.cores)
	case g.sharers != theirs.sharers:
		return fmt.Errorf("it counts %d ranks that share them and this rank %d: all ranks must be given the same", theirs.sharers, g.sharers)
	case g.nodes != theirs.nodes:
		return errors.New("it was told of other nodes than this rank: all ranks must be given the same")
	case g.rules != theirs.rules:
		return fmt.Errorf("it chooses algorithms by %q and this rank by %q: all ranks must be given the same", theirs.rules, g.rules)
	}
	return nil
}
