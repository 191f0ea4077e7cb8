// Package storage keeps an index in one bbolt file.
//
// # Basics
//
// A [File] is an open index file. A [Snapshot] is a consistent state of it, held
// by a read transaction; a [Tx] changes it. Readers never wait for the writer,
// the writer never waits for readers, and a snapshot never changes.
//
// # Generations
//
// All content belongs to a generation: one codec and everything encoded with
// it. A build writes a new generation in transactions of bounded size and makes
// it current by setting one pointer. Additions are staged in the same way, beyond
// the counters of [State], and become visible when the new State is put. When a
// writer dies, its staged content is removed when the file is next opened for
// writing.
//
// # Failures
//
// A commit ends by writing a meta page and syncing the file. A failure before that
// leaves the file as it was, and the next change may follow. If the meta page was
// written and the sync fails, it is unknown whether the disk has the commit: the
// open file shows the state before and refuses changes with [ErrOutcomeUnknown];
// the next Open finds one of the two states. No snapshot shows a commit before it
// is synced.
//
// # Caveats
//
// Byte slices that a Snapshot returns are pages of the mapped file: they are valid
// until the Snapshot is closed, begin at any address, and must not be written to.
// bbolt locks the file: one process may have it open for writing, or any number
// for reading; the writing process may have any number of snapshots open.
package storage
