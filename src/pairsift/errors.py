"""Errors that a person can act on."""


class InputError(ValueError):
    """Something the user brought or asked for cannot be used.

    The message is one line: what was found, where, and what to do. The command line prints it and exits with code 2.
    """
