"""How the page looks: fonts of the reader's system, nothing fetched, contrast enough in light and dark."""

from __future__ import annotations

from pathlib import Path

import gradio as gr

from ..pages import styles

STATIC = Path(__file__).resolve().parent / "static"
SAME = {
    "body_background_fill": "var(--cv-paper)",
    "body_text_color": "var(--cv-ink)",
    "block_background_fill": "var(--cv-sheet)",
    "block_border_color": "var(--cv-line)",
    "button_secondary_background_fill": "var(--cv-track)",
    "button_secondary_background_fill_hover": "var(--cv-line)",
    "button_secondary_text_color": "var(--cv-ink)",
    "button_primary_background_fill": "*primary_700",
}
"""Settings that say the same in light and dark: these variables change their meaning by themselves."""


def theme() -> gr.themes.Base:
    """Returns the theme."""
    both = SAME | {f"{name}_dark": value for name, value in SAME.items()}
    return gr.themes.Default(
        primary_hue=gr.themes.colors.blue,
        neutral_hue=gr.themes.colors.zinc,
        font=[gr.themes.Font("system-ui"), gr.themes.Font("sans-serif")],
        font_mono=[gr.themes.Font("ui-monospace"), gr.themes.Font("monospace")],
    ).set(
        **both,
        block_radius="10px",
        button_primary_background_fill_hover="*primary_800",
        button_primary_text_color="white",
        block_label_text_color="*neutral_700",
        block_label_text_color_dark="*neutral_200",
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_300",
        body_text_color_subdued="*neutral_600",
        body_text_color_subdued_dark="*neutral_300",
    )


def head() -> str:
    """Returns style sheets and script, for the head of the page: Gradio rewrites those that it is given otherwise."""
    css, script = ((STATIC / name).read_text("utf-8") for name in ("demo.css", "demo.js"))
    return f"<style>{styles()}\n{css}</style><script>{script}</script>"
