package verbs_test

import (
	"fmt"
	"log"

	"github.com/tutti-go/tutti/verbs"
)

// What there is, without opening anything.
func ExampleInventory() {
	devices, err := verbs.Inventory(nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range devices {
		for _, p := range d.Ports {
			fmt.Printf("%s port %d: %v %v, %s, on %v\n", d.Name, p.Number, p.LinkLayer, p.State, p.Rate, p.Netdevs)
		}
	}
}

// A write, and a counter behind it by which the peer sees that it has come.
func ExampleCompletionQueue_PostAndPoll() {
	var (
		cq         *verbs.CompletionQueue // from Device.CreateCQ
		batch      *verbs.Batch           // from QueuePair.NewBatch
		memory     *verbs.MR              // from PD.RegisterMemory
		data, flag uint64                 // addresses at the peer
		key        uint32                 // and their region's
	)
	payload, err := memory.Segment(0, 1<<20)
	if err != nil {
		log.Fatal(err)
	}
	counter := [8]byte{1}
	for _, r := range []verbs.Request{
		{Opcode: verbs.Write, Segments: []verbs.Segment{payload}, RemoteAddr: data, RKey: key},
		{Opcode: verbs.Write, Inline: counter[:], RemoteAddr: flag, RKey: key, Flags: verbs.Signaled, ID: 7},
	} {
		if err := batch.Add(&r); err != nil {
			log.Fatal(err)
		}
	}
	done := make([]verbs.Completion, 16)
	n, err := cq.PostAndPoll(done, nil, batch)
	if err != nil {
		log.Fatal(err)
	}
	for i := range done[:n] {
		if err := cq.Check(&done[i]); err != nil {
			log.Fatal(err)
		}
		fmt.Println("everything up to request", done[i].ID, "is done")
	}
}
