"""The page to try CodeVQA on: ``codevqa demo``, or ``python app.py``. Needs Gradio: ``pip install 'codevqa[demo]'``.

``serve`` starts it; ``page`` lays it out, ``api`` offers the same to programs; ``service`` checks and answers within
``limits``; ``live`` turns events into HTML; ``gate`` keeps out the rest. Importing this package imports none of Gradio.
"""

from __future__ import annotations

from .limits import DemoLimits
from .serve import serve_page

__all__ = ["DemoLimits", "serve_page"]
