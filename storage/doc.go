// Package storage keeps an index in one bbolt file.
//
// # Basics
//
// A [File] is an open index file. A [Snapshot] is a consistent picture of it, held
// open by a read transaction; a [Tx] changes it. Readers never wait for the
// writer, the writer never waits for readers, and each view shows the index as
// it was when the view was taken.
//
// # Generations
//
// All content belongs to a generation: one codec and everything encoded with
// it. A build writes a new generation in transactions of bounded size and makes
// it current by one pointer flip. Additions are staged the same way beyond the
// counters of [State] and become visible when the new State is put. What a
// writer that died has staged is removed when the file is next opened for
// writing.
//
// # Failures
//
// A commit ends with the writing of a meta page and a sync. Before that, a
// failure leaves the file as it was, and the next change may follow. If the meta
// page was written and the sync fails, nobody knows whether the disk has the
// commit: the open file shows what it held before and refuses changes with
// [ErrOutcomeUnknown]; the next Open finds one of the two. No view shows a commit
// before it is synced.
//
// # Caveats
//
// Byte slices that a View hands out are pages of the mapped file: they are
// valid until the View is closed, begin at any address, and must not be
// written to. bbolt locks the file: one process may have it open for writing,
// or any number for reading; within the writing process any number of views
// may be open at the same time.
package storage
