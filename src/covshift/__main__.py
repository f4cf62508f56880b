"""`python -m covshift` is `covshift`."""

from covshift.cli.main import main

main()
