"""The two ways a step ends early on purpose."""


class UserError(Exception):
    """Something the user can put right. The message is one sentence: what, where, what to do."""


class UpToDate(Exception):
    """The output exists, complete, made with the same options from the same inputs."""
