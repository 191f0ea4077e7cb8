// Package files opens, reads, writes, locks and maps files. It adds to package os:
//
//	[OpenInput], [Stream], [Read]         input that cannot hang, and waiting that ends with the context
//	[Watch], [WatchValue]                 detection of files that change during reading or afterwards
//	[WriteAtomic], [CreateAtomicFolder]   output that appears when it is complete
//	[OpenFile], [WaitLock], [Duplicate]   open files that can be renamed and removed, also on Windows; locks
//	[Map], [RecoverFault]                 files as memory
//	[HookSynced], [HookWaiting]           hooks with which tests simulate disks and waiting
//
// An incomplete file or folder is NAME.plaid-partial-XXXXXXXXXXXXXXXX next to NAME. It is locked as
// long as its writer lives, and NAME stays as it is meanwhile. The next writer for the same NAME removes
// leftovers of writers that were killed, on systems with locks; on Windows, files only.
package files
