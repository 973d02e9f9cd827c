package plan

// Reach is what a plan needs of the paths between ranks. A step falls into
// one of three classes by the peers' memory that it touches:
//
//   - it is a put if it is a Copy from the executing rank's own memory to
//     exactly one place, in a peer's Scratch or Out;
//   - otherwise it loads and stores, which needs the touched memory mapped
//     into the executing rank;
//   - a step that touches no peer's memory needs nothing.
//
// A peer's In and Out may also be within reach without being mapped, where the
// kernel copies between processes by address. That serves a step that is a
// Copy with one source and one destination, of which one belongs to the
// executing rank and the other to a peer.
//
// So a plan runs where
//
//   - nothing is mapped and peers expose only scratch, if [Reach.PutOnly];
//   - scratch is mapped and the callers' buffers are private, if
//     [Reach.ScratchOnly];
//   - scratch is mapped and the callers' buffers can be copied to and from, if
//     [Reach.AttachOnly];
//   - scratch and the callers' buffers are mapped: always.
//
// Where only some ranks map each other's memory, see [Plan.ReachOver].
type Reach struct {
	// PeerData: a step reads or writes a peer's In or Out. A put into a
	// peer's Out counts, since the peer must expose its buffer.
	PeerData bool
	// PeerDataMapped: a step reads or writes a peer's In or Out otherwise than
	// by a copy between one place there and one place in its own memory.
	// PeerData is then set too.
	PeerDataMapped bool
	// PeerScratchRead: a step reads a peer's Scratch, or stores into it in a
	// way that is no put, such as a reduce or a copy to several places.
	PeerScratchRead bool
	// PeerPut: a step is a put.
	PeerPut bool
}

// PutOnly reports whether one-sided puts into peers' scratch are enough.
func (r Reach) PutOnly() bool { return !r.PeerData && !r.PeerScratchRead }

// ScratchOnly reports whether load and store to peers' scratch are enough
// and the callers' buffers may stay private. PutOnly implies it.
func (r Reach) ScratchOnly() bool { return !r.PeerData }

// AttachOnly reports whether peers' In and Out are touched only by copies
// between one place there and one in the executing rank's own memory. What
// the plan does with scratch does not matter. ScratchOnly implies it.
func (r Reach) AttachOnly() bool { return !r.PeerDataMapped }

// IsPut reports whether the step is a put: a copy of the executing rank's
// own memory to one place in a peer's Scratch or Out.
func (s *Step) IsPut() bool {
	return s.Op == Copy && len(s.Srcs) == 1 && len(s.Dsts) == 1 &&
		s.Srcs[0].Rank == s.Rank && s.Dsts[0].Rank != s.Rank
}

// Reach returns what the plan needs.
func (p *Plan) Reach() Reach {
	var r Reach
	for i := range p.Steps {
		r.add(&p.Steps[i])
	}
	return r
}

// ReachOver reports whether the plan runs where only ranks of one node map each
// other's memory: every place that a step touches is in the executing rank's
// own node, or the step is a put to the Scratch of a rank of another node. If
// so, inside is what the steps need within the nodes; a put to another node
// does not count there. Over one node that is [Plan.Reach], and over nodes of
// one rank each, ok is [Reach.PutOnly]. A plan for another number of ranks does
// not run.
func (p *Plan) ReachOver(nodes Nodes) (inside Reach, ok bool) {
	if len(nodes) != p.Ranks {
		return Reach{}, false
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		switch q := s.stranger(nodes); {
		case q == nil:
			inside.add(s)
		case !s.isPutAcross(nodes):
			return Reach{}, false
		}
	}
	return inside, true
}

// stranger returns a place of the step that is in another node than the
// executing rank, or nil.
func (s *Step) stranger(nodes Nodes) *Place {
	for _, places := range [][]Place{s.Srcs, s.Dsts} {
		for i := range places {
			if !nodes.Together(places[i].Rank, s.Rank) {
				return &places[i]
			}
		}
	}
	return nil
}

// isPutAcross reports whether the step is a put to the Scratch of a rank of
// another node, the one way in which nodes reach each other.
func (s *Step) isPutAcross(nodes Nodes) bool {
	return s.IsPut() && s.Dsts[0].Buf == Scratch && !nodes.Together(s.Rank, s.Dsts[0].Rank)
}

// nodes returns the weakest grouping on which a plan with this reach can be
// run, as far as no grouping is given.
func (r Reach) nodes(ranks int) Nodes {
	if r.PutOnly() {
		return Apart(ranks)
	}
	return OneNode(ranks)
}

func (r *Reach) add(s *Step) {
	put := s.IsPut()
	r.PeerPut = r.PeerPut || put
	attach := s.Op == Copy && len(s.Srcs) == 1 && len(s.Dsts) == 1 &&
		(s.Srcs[0].Rank == s.Rank) != (s.Dsts[0].Rank == s.Rank)
	for _, places := range [][]Place{s.Srcs, s.Dsts} {
		for _, q := range places {
			switch {
			case q.Rank == s.Rank:
			case q.Buf != Scratch:
				r.PeerData = true
				r.PeerDataMapped = r.PeerDataMapped || !attach
			case !put:
				r.PeerScratchRead = true
			}
		}
	}
}
