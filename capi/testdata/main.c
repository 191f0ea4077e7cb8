#include "test.h"

/* test [ROUNDS [device [SEED [score|chamfer|head]]]] */
int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 100;
  if (argc > 2) {
    use_device();
  }
  if (argc > 3) {
    seed((uint64_t)atoll(argv[3]));
  }
  if (argc > 4) {
    strcmp(argv[4], "score") == 0 ? test_scores(rounds) : strcmp(argv[4], "head") == 0 ? test_heads(rounds) : test_chamfer(rounds);
    return 0;
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
