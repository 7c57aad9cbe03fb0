"""hpkit keeps large AI training alive on plain Slurm."""

__version__ = "0.1.0"
