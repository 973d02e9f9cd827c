package engine

import (
	"encoding/binary"
	"errors"

	"github.com/tutti-go/tutti/mem"
)

// layoutVersion changes with everything that ranks of one job must share: the
// control region's layout and the meaning of progress counters.
const layoutVersion = 1

var errForeignLayout = errors.New("another layout of the control region: are all ranks the same build?")

func encodeRegion(r mem.RegionID) []byte {
	b := binary.LittleEndian.AppendUint32(nil, layoutVersion)
	return binary.LittleEndian.AppendUint32(b, uint32(r))
}

func decodeRegion(b []byte) (mem.RegionID, error) {
	if len(b) != 8 || binary.LittleEndian.Uint32(b) != layoutVersion {
		return 0, errForeignLayout
	}
	return mem.RegionID(binary.LittleEndian.Uint32(b[4:])), nil
}
