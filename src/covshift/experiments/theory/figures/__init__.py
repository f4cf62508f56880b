"""The figures of the study, in the order of the page."""

from collections.abc import Callable
from typing import NamedTuple

from matplotlib.figure import Figure


class Exhibit(NamedTuple):
    """A figure with what it shows.

    Attributes:
        name: for links and file names.
        title: the question that it answers.
        caption: what it shows, with the numbers.
        figure: the drawing.
    """

    name: str
    title: str
    caption: str
    figure: Figure


Draw = Callable[[], Exhibit]
