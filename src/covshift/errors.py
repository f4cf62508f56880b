"""The error that a user can cause and can fix."""


class InputError(ValueError):
    """A value from outside is wrong; the message names it and says what would be right.

    The command line prints the message alone, without a traceback, and exits with status 2.
    """
