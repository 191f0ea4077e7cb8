/* The functions of the header: each makes the checks that need no Go, and calls the Go function of its name. */
#include "plaid_maxsim.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "_cgo_export.h"

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#ifdef __clang__
#pragma clang diagnostic ignored "-Wdll-attribute-on-redeclaration"
#endif
#else
#include <pthread.h>
#define EXPORT __attribute__((visibility("default")))
#endif

/* forked: this process is a fork, and the threads of Go's scheduler stayed in the other one. */
static volatile int forked;

EXPORT void plaid_forked(void) { forked = 1; }

#ifndef _WIN32
__attribute__((constructor)) static void notice_forks(void) { pthread_atfork(NULL, NULL, plaid_forked); }
#endif

static int failed(plaid_error *error, int code, const char *message) {
  if (error != NULL) {
    error->code = code;
    snprintf(error->message, sizeof error->message, "%s", message);
  }
  return code;
}

/* begin checks the room for the error and the process. */
static int begin(plaid_error *error) {
  if (error != NULL && error->size != (int64_t)sizeof *error) {
    return PLAID_ERR_ARGUMENT;
  }
  if (forked) {
    return failed(error, PLAID_ERR_FORKED,
                  "this process is a fork of one that has loaded the library: compute in the parent, "
                  "or start processes by spawn");
  }
  if (error != NULL) {
    error->code = PLAID_OK;
    error->message[0] = 0;
  }
  return PLAID_OK;
}

/* check checks a call, which begins with its size. */
static int check(const void *call, size_t size, plaid_error *error) {
  int64_t given;
  char message[96];
  int code = begin(error);
  if (code != PLAID_OK) {
    return code;
  }
  if (call == NULL) {
    return failed(error, PLAID_ERR_ARGUMENT, "call is NULL");
  }
  if ((uintptr_t)call % sizeof given != 0) {
    return failed(error, PLAID_ERR_ARGUMENT, "call is not aligned to 8 bytes");
  }
  memcpy(&given, call, sizeof given);
  if (given != (int64_t)size) {
    snprintf(message, sizeof message, "size is %lld; this library knows calls of %lld bytes", (long long)given,
             (long long)size);
    return failed(error, PLAID_ERR_ARGUMENT, message);
  }
  return PLAID_OK;
}

EXPORT int64_t plaid_maxsim_version(void) { return PLAID_MAXSIM_VERSION; }

EXPORT int plaid_backend(char *name, int64_t bytes, plaid_error *error) {
  int code = begin(error);
  return code != PLAID_OK ? code : goBackend(name, bytes, error);
}

/* FUNCTION defines a function and the one that says how much workspace it needs. */
#define FUNCTION(name, type, go)                                                            \
  EXPORT int name(const type *call, plaid_error *error) {                                   \
    int code = check(call, sizeof *call, error);                                            \
    return code != PLAID_OK ? code : go((type *)call, NULL, error);                         \
  }                                                                                         \
  EXPORT int name##_workspace(const type *call, int64_t *bytes, plaid_error *error) {       \
    int code = check(call, sizeof *call, error);                                            \
    if (code == PLAID_OK && bytes == NULL) {                                                \
      code = failed(error, PLAID_ERR_ARGUMENT, "bytes is NULL");                            \
    }                                                                                       \
    return code != PLAID_OK ? code : go((type *)call, bytes, error);                        \
  }

FUNCTION(plaid_score, plaid_score_call, goScore)
FUNCTION(plaid_gradients, plaid_gradient_call, goGradients)
FUNCTION(plaid_chamfer, plaid_chamfer_call, goChamfer)
FUNCTION(plaid_chamfer_gradients, plaid_chamfer_gradient_call, goChamferGradients)
FUNCTION(plaid_head, plaid_head_call, goHead)
