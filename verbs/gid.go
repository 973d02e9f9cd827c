package verbs

import (
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// GID is the address of a port: on RoCE an IPv6 address, or an IPv4 address
// mapped into one.
type GID [16]byte

// Addr returns the GID as an IP address, an IPv4 address as such.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// Zero reports whether the GID is that of an empty entry.
func (g GID) Zero() bool { return g == GID{} }

func (g GID) String() string { return g.Addr().String() }

// GIDEntry is an entry of a port's GID table.
type GIDEntry struct {
	Index   int
	GID     GID
	Type    GIDType
	Netdev  string // the network device whose address it is, empty on InfiniBand and where not known
	Ifindex int    // of that device, or 0
}

// GIDs lists the entries of a port's GID table that are not empty, by index.
// Errors: *Error.
func (d *Device) GIDs(port int) ([]GIDEntry, error) {
	p, err := d.Port(port)
	if err != nil {
		return nil, err
	}
	entries, errno := sysQueryGIDs(d.ctx, port, p.GIDs)
	if errno == syscall.EOPNOTSUPP || errno == syscall.ENOSYS || errno == syscall.EPROTONOSUPPORT {
		return d.scanGIDs(p)
	}
	if errno != 0 {
		return nil, &Error{Op: "querying the GID table", Device: d.info.Name, Object: fmt.Sprintf("port %d", port), Err: errno}
	}
	for i := range entries {
		entries[i].Netdev = netdevName(entries[i].Ifindex)
	}
	return entries, nil
}

// scanGIDs is GIDs with a library that knows no table: one query an entry, and
// types and network devices from sysfs.
func (d *Device) scanGIDs(p Port) ([]GIDEntry, error) {
	var entries []GIDEntry
	for i := range p.GIDs {
		gid, errno := sysQueryGID(d.ctx, p.Number, i)
		if errno != 0 || gid.Zero() {
			continue // an entry that is empty, or another network namespace's
		}
		e := GIDEntry{Index: i, GID: gid}
		e.Type, e.Netdev = gidAttributes(sysfs(), d.info.Name, p.Number, i, p.LinkLayer)
		e.Ifindex = netdevIndex(e.Netdev)
		entries = append(entries, e)
	}
	return entries, nil
}

// gidAttributes reads the type and the network device of an entry from sysfs.
func gidAttributes(root fs.FS, device string, port, index int, link LinkLayer) (GIDType, string) {
	dir := fmt.Sprintf("class/infiniband/%s/ports/%d/gid_attrs", device, port)
	netdev := line(root, dir+"/ndevs/"+strconv.Itoa(index))
	return gidType(line(root, dir+"/types/"+strconv.Itoa(index)), link), netdev
}

// gidType reads sysfs's name of a type. The kernel calls RoCE v1 and InfiniBand
// the same.
func gidType(s string, link LinkLayer) GIDType {
	switch {
	case strings.HasPrefix(s, "RoCE v2"):
		return GIDRoCEv2
	case link == LinkEthernet:
		return GIDRoCEv1
	}
	return GIDInfiniBand
}

// sysfs is where the kernel says what there is.
func sysfs() fs.FS { return os.DirFS("/sys") }

// line returns the contents of a file of one line, or nothing.
func line(root fs.FS, name string) string {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
