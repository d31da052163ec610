"""How a component of the page gets its script."""

from __future__ import annotations


def mount_script(function: str) -> str:
    """js_on_load that hands the component's inner element to a function of assets/web/studio.js."""
    return (
        "(async () => { const at = new URL('web/studio.js', new URL(window.gradio_config.root + '/', location.href));"
        f" const page = await import(at); await page.{function}(element.querySelector('[data-state]')); }})()"
    )
