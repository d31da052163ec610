"""How a component of the page gets its script and its template."""

from __future__ import annotations

from pathlib import Path

WEB = Path(__file__).resolve().parents[2] / "assets" / "web"


def template(name: str) -> str:
    """assets/web/NAME.html, what a component shows before its script fills it."""
    return (WEB / f"{name}.html").read_text(encoding="utf-8")


def mount_script(function: str, module: str = "studio", event: str = "") -> str:
    """js_on_load that hands the component's inner element to a function of assets/web/MODULE.js.

    event: of the component; the function gets a second argument, which hands what it is given to its listeners.
    """
    at = f"new URL('web/{module}.js', new URL(window.gradio_config.root + '/', location.href))"
    root = "element.querySelector('[data-state]')"
    trigger = f", (given) => trigger('{event}', given)" if event else ""
    return f"(async () => {{ const page = await import({at}); await page.{function}({root}{trigger}); }})()"
