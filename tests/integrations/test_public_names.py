import subprocess
import sys

import covshift


def test_the_jobs_are_listed_and_can_be_imported() -> None:
    assert dir(covshift) == sorted(covshift.__all__)
    for name in covshift.__all__:
        assert getattr(covshift, name) is not None
        if not name.startswith("__"):
            assert name in str(covshift.__doc__)


def test_importing_covshift_loads_nothing_heavy() -> None:
    code = (
        "import covshift.integrations, sys; print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert printed.stdout.split() == [b"False", b"False"]
