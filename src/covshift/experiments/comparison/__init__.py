"""Experiments that train agents: arms, their runs, what the runs show, and the figure that comes of them."""
