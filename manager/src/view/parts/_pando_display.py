# SPDX-License-Identifier: MIT OR Apache-2.0
"""Displays values as IPython does: as text, and in the formats that their `_repr_*_` methods or `_repr_mimebundle_` return.

Each value is sent to the operator in notes: JSON lists of its number, a piece of its MIME bundle as JSON, and whether it is
the last piece. Figures of matplotlib become PNG images.
"""

import sys

import pando

_METHODS = (
    ("text/html", "_repr_html_"),
    ("text/markdown", "_repr_markdown_"),
    ("image/svg+xml", "_repr_svg_"),
    ("image/png", "_repr_png_"),
    ("image/jpeg", "_repr_jpeg_"),
    ("application/pdf", "_repr_pdf_"),
    ("text/latex", "_repr_latex_"),
    ("application/json", "_repr_json_"),
    ("application/javascript", "_repr_javascript_"),
)
# Characters of a piece: with JSON's escapes, it fits into a note.
_PIECE = 30000
_sent = 0
# Figures that the running code has displayed itself.
_shown = set()


def display(*values, raw=False, **_):
    """Displays values. With `raw`, each is a mapping of MIME types to data."""
    for value in values:
        data = dict(value) if raw else formats(value)
        if data is not None:
            publish(data)


def show_value(value):
    """Displays the value of the last expression of code."""
    data = formats(value)
    if data is not None:
        publish(data, True)


def publish(data, is_main_result=False):
    """Sends a MIME bundle to the operator. `is_main_result`: it is the value of the last expression."""
    global _sent
    import json

    _sent += 1
    number, text = _sent, json.dumps({"data": _plain(data), "is_main_result": is_main_result}, default=str)
    for start in range(0, len(text), _PIECE):
        is_last = start + _PIECE >= len(text)
        pando.note(json.dumps({"display": [number, text[start : start + _PIECE], is_last]}))


def formats(value):
    """A value in all formats that it has, by MIME type; None if it displays itself."""
    if not isinstance(value, type):
        own = _method(value, "_ipython_display_")
        if own is not None:
            own()
            return None
    data = {"text/plain": _call("repr", repr, value)}
    figure = sys.modules.get("matplotlib.figure")
    if figure is not None and isinstance(value, figure.Figure):
        _shown.add(id(value))
        data["image/png"] = _call("savefig", _png_of_figure, value)
    elif not isinstance(value, type):
        bundle = _call("_repr_mimebundle_", _method(value, "_repr_mimebundle_"))
        if isinstance(bundle, tuple):
            bundle = bundle[0]
        for kind, name in _METHODS:
            if not bundle or kind not in bundle:
                data[kind] = _call(name, _method(value, name))
        data.update(bundle or {})
    return {kind: given for kind, given in data.items() if given is not None}


def _method(value, name):
    """A display method of a value, unless the value answers to every name."""
    try:
        if getattr(value, "_ipython_canary_method_should_not_exist_", None) is not None:
            return None
        method = getattr(value, name, None)
    except Exception:
        return None
    return method if callable(method) else None


def _call(name, method, *arguments):
    """Calls a display method. A method that fails is reported on standard error, and its format is left out."""
    if method is None:
        return None
    try:
        given = method(*arguments)
    except NotImplementedError:
        return None
    except Exception as error:
        print("%s failed: %s: %s" % (name, type(error).__name__, error), file=sys.stderr)
        return None
    # Data with metadata.
    return given[0] if isinstance(given, tuple) and name not in ("repr", "_repr_mimebundle_") and given else given


def _plain(data):
    """A bundle whose binary formats are base64."""
    import base64

    return {str(kind): base64.b64encode(given).decode() if isinstance(given, bytes) else given for kind, given in data.items()}


def _png_of_figure(figure):
    import io

    image = io.BytesIO()
    figure.savefig(image, format="png", bbox_inches="tight")
    return image.getvalue()


def show_figures():
    """Displays the open figures of matplotlib that were not displayed yet, and closes all."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        for number in pyplot.get_fignums():
            figure = pyplot.figure(number)
            if id(figure) not in _shown:
                display(figure)
        pyplot.close("all")
    _shown.clear()
