// Lets studies/encoder hide AVX-512, AMX and the VNNI instructions from a library:
//
//   cc -shared -fPIC -O2 -o mask.so studies/encoder/hide/mask.c
//   LD_PRELOAD=./mask.so go run ./studies/encoder -avx2 ...
//
// Linux makes CPUID fault for a thread that asks for it (arch_prctl,
// ARCH_SET_CPUID), where the processor can. This answers the fault with what
// CPUID says, less these bits. With HIDE_CPUID set the whole process asks for it,
// which serves programs other than those of Go.
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <cpuid.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef ARCH_SET_CPUID
#define ARCH_SET_CPUID 0x1012
#endif

static void answer(int sig, siginfo_t *info, void *context) {
  greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
  const unsigned char *at = (const unsigned char *)r[REG_RIP];
  if (at[0] != 0x0f || at[1] != 0xa2) {  // not CPUID
    signal(sig, SIG_DFL);
    return;
  }
  unsigned leaf = r[REG_RAX], sub = r[REG_RCX], a, b, c, d;
  syscall(SYS_arch_prctl, ARCH_SET_CPUID, 1);
  __cpuid_count(leaf, sub, a, b, c, d);
  syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0);
  if (leaf == 7 && sub == 0) {
    b &= ~(1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30 | 1u << 31);  // AVX-512
    c &= ~(1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14);                                     // its VNNI and others
    d &= ~(1u << 2 | 1u << 3 | 1u << 8 | 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25);                // and AMX
  }
  if (leaf == 7 && sub == 1) {
    a &= ~(1u << 4 | 1u << 5 | 1u << 21 | 1u << 23);  // AVX-VNNI, BF16, AMX-FP16, AVX-IFMA
    d &= ~(1u << 4 | 1u << 5 | 1u << 8 | 1u << 10 | 1u << 19);
  }
  r[REG_RAX] = a, r[REG_RBX] = b, r[REG_RCX] = c, r[REG_RDX] = d;
  r[REG_RIP] += 2;
}

__attribute__((constructor)) static void begin(void) {
  struct sigaction s = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
  if (sigaction(SIGSEGV, &s, NULL) || (getenv("HIDE_CPUID") && syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0))) {
    perror("mask.so: this processor or kernel cannot hide CPUID");
    exit(1);
  }
}
