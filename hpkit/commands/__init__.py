"""One verb per module; `hpkit.cli.VERBS` names each as "module:attribute" and imports it only when it is called.

A command is a click command called `command`, with the shared options of `hpkit.commands.options.output`. Its callback
prints nothing. It returns a `hpkit.result.Result`, or it is a generator of events and lines (`hpkit.result.Running`)
that returns one. For what a person can act on it raises `hpkit.errors.HpkitError`.
"""
