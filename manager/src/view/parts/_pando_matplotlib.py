# SPDX-License-Identifier: MIT OR Apache-2.0
"""A backend of matplotlib: `show` displays the figures as images. See `_pando_display`."""

import _pando_display
from matplotlib.backend_bases import FigureManagerBase as FigureManager
from matplotlib.backends.backend_agg import FigureCanvasAgg as FigureCanvas

__all__ = ["FigureCanvas", "FigureManager", "show"]


def show(*_, **__):
    """The function `matplotlib.pyplot.show`."""
    _pando_display.show_figures()
