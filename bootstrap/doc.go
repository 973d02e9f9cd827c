// Package bootstrap is how the ranks of a job find each other and learn of
// each other's end, before and beside the fast paths. It carries opaque blobs
// and knows nothing of what is in them.
//
// Exchanger is the contract of every rendezvous; there are three. Launch
// starts local ranks as child processes and serves them over inherited
// sockets. Join meets ranks on any machines at an address that rank 0 serves.
// Memory is for ranks that are goroutines of one process. FromEnv finds in the
// environment which of the first two it is, and where.
//
// # The rendezvous
//
// Every rank dials rank 0, in any order, and tries again until it is there.
// When all have come, each is told its parent in a binomial tree and links up
// with it. From then on there is nothing central: blobs are gathered up the
// tree and sent down, in 2⌈log₂ n⌉ rounds over n-1 connections, and news of a
// rank that died or left go through it to all. A rank that is killed is noticed
// at once by its neighbours in the tree, one whose machine or network is gone
// after about fifteen seconds. A rank must Close before its process ends, else
// it counts as dead.
//
// A rank that has closed relays nothing any more. Until the others close, too,
// news reach those that are still linked to each other; a round is not possible
// without it, and who tries one is told that it has left.
//
// # Who may join
//
// With a secret (Options.Secret, TUTTI_SECRET, TUTTI_SECRET_FILE) both ends of
// every connection prove that they know it, by HMAC-SHA256 over fresh nonces
// of both and all that was said, and every frame that follows has a MAC under
// a key that only these two ends know. Nothing is encrypted. Without a secret,
// nothing listens beyond loopback or an abstract socket of the same user unless
// that is asked for (Options.AllowOpen, TUTTI_OPEN=1).
//
// Ranks that do not fit together (another version, another number of ranks, a
// rank twice or one that there is not) end the job with an error that names
// them, for all. One that does not know the secret, or belongs to another job,
// is told so and turned away; a stranger is dropped. Neither disturbs the job.
package bootstrap
