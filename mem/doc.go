// Package mem names what Tutti moves: element types, reduction operators,
// and buffers with the region that makes them reachable for other ranks.
//
// It is the ground floor. It moves nothing itself and knows neither ranks
// nor media; reduce, plan, link and everything above speak in its words.
package mem
