#include "test.h"

/* test [ROUNDS [device]] */
int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 100;
  if (argc > 2) {
    use_device();
  }
  test_scores(rounds);
  test_chamfer(rounds / 2);
  test_heads(rounds / 4);
  if (argc > 2) {
    return 0;
  }
  test_refusals();
  test_threads();
  test_fork(); /* the last: plaid_forked is for good */
  return 0;
}
