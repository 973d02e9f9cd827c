package engine

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/tutti-go/tutti/mem"
	"github.com/tutti-go/tutti/plan"
)

// NoColor is the color of a rank that joins no group.
const NoColor = -1

// Split cuts the communicator into groups: ranks that give the same color make
// one, numbered by key and, where keys are equal, by their present rank. All
// ranks call it; one that gives NoColor gets nil. It is MPI_Comm_split.
//
// A group has counters, scratch and threads of its own: groups that share ranks
// may work at the same time, each on a goroutine of its own. Buffers of Alloc
// and Register are good in all of them. A group is closed by its Close, or with
// the communicator that Init returned. Others are not told of its Close: a call
// of the group that needs who has closed it waits until its ctx ends.
//
// Errors: as for collectives, and what the medium says where there is no memory
// for the group; then no rank gets one.
func (c *Comm) Split(ctx context.Context, color, key int) (*Comm, error) {
	if color < NoColor {
		return nil, &ArgumentError{"split", fmt.Sprintf("color %d; want 0 or more, or NoColor", color)}
	}
	return c.divide(ctx, "split", color, key, nil)
}

// Group makes a group of the given ranks, in the order given. All ranks of the
// communicator call it, those who join with the same list, and those who do
// not with an empty one or one of which they are no part; these get nil.
// Several groups may be made by one call if they share no rank. See Split.
func (c *Comm) Group(ctx context.Context, ranks []int) (*Comm, error) {
	const call = "group"
	for i, r := range ranks {
		if r < 0 || r >= c.size {
			return nil, &ArgumentError{call, fmt.Sprintf("rank %d is not among %d ranks", r, c.size)}
		}
		if j := slices.Index(ranks, r); j < i {
			return nil, &ArgumentError{call, fmt.Sprintf("rank %d is twice in the group", r)}
		}
	}
	key := slices.Index(ranks, c.rank)
	if key < 0 {
		return c.divide(ctx, call, NoColor, 0, nil)
	}
	return c.divide(ctx, call, ranks[0], key, ranks)
}

// GroupError says that a rank which was to join a group did not call for the
// same one.
type GroupError struct {
	Rank, Other int // who reports, and who disagrees
	Reason      string
}

func (e *GroupError) Error() string {
	return fmt.Sprintf("rank %d: rank %d %s", e.Rank, e.Other, e.Reason)
}

// card is what a rank tells all others when it divides a communicator.
type card struct {
	color, key int64
	list       uint64 // a hash of the list of ranks, or 0
	control    uint64 // region, or 0 where there was no memory
}

const cardBytes = 4 * 8

func (d card) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(d.color))
	b = binary.LittleEndian.AppendUint64(b, uint64(d.key))
	b = binary.LittleEndian.AppendUint64(b, d.list)
	return binary.LittleEndian.AppendUint64(b, d.control)
}

func decodeCard(b []byte) card {
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	return card{int64(word(0)), int64(word(1)), word(2), word(3)}
}

// divide makes this rank's group, in three rounds in which all ranks take
// part: who is in which group, where its control region is, and whether
// everybody has connected. What one rank finds wrong all ranks are told of, so
// that nobody is left with half a group.
func (c *Comm) divide(ctx context.Context, call string, color, key int, list []int) (*Comm, error) {
	mine := card{color: int64(color), key: int64(key), list: hashOf(list)}
	cards, err := c.exchangeCards(ctx, mine)
	if err != nil {
		return nil, err
	}
	var child *Comm
	var members []int
	if color != NoColor {
		members = membersOf(cards, color)
		if err = c.agreeOnList(cards, mine, list); err == nil {
			child, err = c.newGroup(members)
		}
	}
	if child != nil {
		mine.control = uint64(child.control.Region())
	}
	cards, err = c.allFine(ctx, mine, err)
	if err == nil && child != nil {
		err = child.connect(ctx, members, cards)
	}
	_, err = c.allFine(ctx, mine, err)
	switch {
	case err != nil && child != nil:
		return nil, fmt.Errorf("%s: %w", call, errors.Join(err, child.discard()))
	case err != nil:
		return nil, fmt.Errorf("%s: %w", call, err)
	case child == nil:
		return nil, nil
	}
	child.start()
	c.family.adopt(child)
	return child, nil
}

// failedColor marks a rank that could not do its part.
const failedColor = -2

// allFine exchanges cards, and returns this rank's error or that of another.
func (c *Comm) allFine(ctx context.Context, mine card, err error) ([]card, error) {
	if err != nil {
		mine.color = failedColor
	}
	cards, failed := c.exchangeCards(ctx, mine)
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	for rank, d := range cards {
		if d.color == failedColor {
			return nil, &GroupError{c.rank, rank, "could not join its group; it has the reason"}
		}
	}
	return cards, nil
}

// exchangeCards gives every rank's card to every rank.
func (c *Comm) exchangeCards(ctx context.Context, mine card) ([]card, error) {
	all := make([]byte, c.size*cardBytes)
	if err := c.call(ctx, call{collective: plan.AllGather, own: true, in: mine.encode(), out: all, dtype: mem.U8}); err != nil {
		return nil, err
	}
	cards := make([]card, c.size)
	for rank := range cards {
		cards[rank] = decodeCard(all[rank*cardBytes:])
	}
	return cards, nil
}

// membersOf returns the ranks of a color in the order of the group.
func membersOf(cards []card, color int) []int {
	var members []int
	for rank, d := range cards {
		if d.color == int64(color) {
			members = append(members, rank)
		}
	}
	slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(cards[a].key, cards[b].key) })
	return members
}

// agreeOnList holds the ranks of an explicit list to the same list.
func (c *Comm) agreeOnList(cards []card, mine card, list []int) error {
	for _, rank := range list {
		switch d := cards[rank]; {
		case d.color == NoColor:
			return &GroupError{c.rank, rank, "is in this rank's list and joins no group"}
		case d.list != mine.list:
			return &GroupError{c.rank, rank, "is in this rank's list and calls with another one"}
		}
	}
	return nil
}

func hashOf(list []int) uint64 {
	if list == nil {
		return 0
	}
	h := fnv.New64a()
	for _, r := range list {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(r)))
	}
	return h.Sum64() | 1
}

// newGroup makes a communicator of some ranks of this one, not yet connected.
func (c *Comm) newGroup(members []int) (*Comm, error) {
	child := newComm(c.cfg, slices.Index(members, c.rank), len(members))
	child.family, child.parent = c.family, c
	child.patience, child.besides, child.crowded, child.threads = c.patience, c.besides, c.crowded, c.threads
	child.forgetLost = func() {}
	if err := child.makeControl(); err != nil {
		return nil, err
	}
	return child, nil
}

// connect finds the control regions of the group's other ranks. The links are
// the parent's.
func (c *Comm) connect(ctx context.Context, members []int, cards []card) error {
	world := make(map[int]int, len(members)) // from ranks of the fabric to ours
	of := make([]int, len(members))          // by rank: its node among the parent's
	for rank, theirs := range members {
		c.fabricRanks = append(c.fabricRanks, c.parent.fabricRank(theirs))
		world[c.fabricRanks[rank]] = rank
		of[rank] = c.parent.nodes[theirs]
		c.peerRegions[rank] = mem.RegionID(cards[theirs].control)
		if rank == c.rank {
			continue
		}
		c.links[rank] = c.parent.links[theirs]
		c.mappers[rank], c.copiers[rank] = c.parent.mappers[theirs], c.parent.copiers[theirs]
		if err := c.mapControl(ctx, rank); err != nil {
			return err
		}
	}
	c.nodes = plan.NodesOf(of)
	if err := c.findNodes(); err != nil {
		return err
	}
	c.forgetLost = c.family.fabric.Lost(func(peer int, err error) {
		if rank, ok := world[peer]; ok {
			c.failures.lost(rank, err)
		}
	})
	return nil
}

// fabricRank is the number that the fabric knows a rank by.
func (c *Comm) fabricRank(rank int) int {
	if c.parent == nil {
		return rank
	}
	return c.fabricRanks[rank]
}

// discard gives back what a group has that was not to be.
func (c *Comm) discard() error {
	c.forgetLost()
	return c.leave()
}
