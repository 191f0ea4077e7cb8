// Package files opens, reads, writes, locks and maps files, with what package os leaves to its users:
//
//	[OpenInput], [Stream], [Read]         what is read: nothing that hangs, and the context ends what waits
//	[Watch], [Keep]                       files that change while they are read, or afterwards
//	[WriteAtomic], [CreateAtomicFolder]   what is written appears when it is complete
//	[OpenFile], [WaitLock], [Duplicate]   open files that can be renamed and removed on Windows too, and their locks
//	[Map], [RecoverFault]                 files as memory
//	[HookSynced], [HookWaiting]           what tests put in place of a disk and of waiting
//
// What is in the making is NAME.plaid-partial-XXXXXXXXXXXXXXXX beside NAME, and locked as long as its
// writer lives; whatever has the name stays meanwhile. What a writer that was killed left is removed by
// the next one for the same NAME, where there are locks: on Windows, of files only.
package files
