"""For Python processes that tests start: plaid's functions are there, too."""

import os

if os.environ.get("PLAID_SUITE") == "lik":
    import plaid_ir.lik

    plaid_ir.lik.install()
