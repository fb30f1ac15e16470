"""The one exception a user's mistake raises."""


class InputError(ValueError):
    """Bad input: one sentence saying what was expected, what was got and what to do.

    The command line prints it without a traceback; in Python it is a `ValueError`.
    """
