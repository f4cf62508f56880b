"""The error that a user can cause and can fix."""


class InputError(ValueError):
    """A value from outside is wrong; the message names it and says what would be right.

    The command line prints the message alone, without a traceback, and exits with status 2.
    """


def reason_of(error: BaseException) -> str:
    """What another library's error says, or a user's function's, on one line: its type and its first line."""
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"
